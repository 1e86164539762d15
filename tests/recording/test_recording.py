"""A recording: what is in it, what is not, and that the application never notices."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import caches
from django.core.cache.backends.base import BaseCache
from django.core.cache.backends.locmem import LocMemCache
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from nearcache.backends import RecordingCache, SharedMemoryCache
from nearcache.memoize import memoize
from nearcache.recording import calls
from nearcache.recording.options import recorded
from nearcache.recording.recorder import BLOCK_RECORDS, Recorder, RecorderOptions
from nearcache.recording.trace import (
    OPERATIONS,
    NotARecording,
    Outcome,
    Record,
    Recording,
    read,
)

LOCMEM = "django.core.cache.backends.locmem.LocMemCache"


def make(path: Path, **options: Any) -> RecordingCache:
    """A recording cache over a LocMemCache of its own; everything is in the sample."""
    of = {"BACKEND": LOCMEM, "LOCATION": str(path), "TIMEOUT": 300}
    entry = recorded(of, str(path), **{"share": 1, "salt": "0123456789abcdef", **options})
    entry.pop("BACKEND")
    return RecordingCache(entry.pop("LOCATION"), entry)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "site.trace"


def written(cache: RecordingCache) -> Recording:
    cache.recorder.flush()
    return read([Path(cache.recorder.options.path)])


def only(cache: RecordingCache) -> Record:
    (record,) = written(cache)
    return record


def test_a_set_is_noted_with_size_type_prefix_and_time_to_live(path: Path) -> None:
    cache = make(path)
    cache.set("user:7:name", "x" * 500, 60)
    record = only(cache)
    assert (record.operation, record.prefix, record.type) == ("set", "user", "str")
    assert (record.size, record.ttl_ms, record.of) == (500, 60_000, 1)
    assert record.outcome == 0
    assert record.squeezed is not None
    assert record.squeezed < 0.1
    assert record.latency_ns > 0


def test_hits_and_misses_are_told_apart_also_for_a_stored_none(path: Path) -> None:
    cache = make(path)
    cache.set("a:1", None)
    assert cache.get("a:1", default="other") is None
    assert cache.get("a:2", "other") == "other"
    assert cache.get("a:2", default="named") == "named"
    gets = [record.outcome for record in written(cache) if record.operation == "get"]
    assert gets == [Outcome.HIT, Outcome.MISS, Outcome.MISS]


def test_every_method_of_django_s_is_noted_under_its_name(path: Path) -> None:
    cache = make(path)
    cache.set("k:1", 1)
    cache.add("k:1", 2)
    cache.get("k:1")
    cache.touch("k:1", 30)
    assert "k:1" in cache
    cache.incr("k:1")
    cache.decr("k:1")
    with pytest.raises(ValueError, match="k:none"):
        cache.incr("k:none")
    cache.incr_version("k:1")
    cache.decr_version("k:1", version=2)
    cache.set_many({"k:2": "b", "k:3": "c"}, 30)
    assert cache.get_many(key for key in ("k:2", "k:9")) == {"k:2": "b"}
    cache.get_or_set("k:4", lambda: "made")
    cache.get_or_set("k:4", lambda: "not made")
    cache.delete("k:1")
    cache.delete("k:1")
    cache.delete_many(keys=["k:2", "k:3"])
    cache.clear()
    records = list(written(cache))
    assert {record.operation for record in records} == set(OPERATIONS)
    seen = {(r.operation, r.outcome) for r in records}
    assert ("add", Outcome.REFUSED) in seen
    assert ("incr", Outcome.MISS) in seen
    assert ("get_or_set", Outcome.MISS) in seen
    assert ("get_or_set", Outcome.HIT) in seen
    assert ("delete", Outcome.REFUSED) in seen
    assert [r.of for r in records if r.operation == "get_many"] == [2, 2]


def test_awaited_calls_are_noted_as_such(path: Path) -> None:
    cache = make(path)

    async def calls() -> None:
        await cache.aset("a:1", "v")
        assert await cache.aget("a:1") == "v"
        assert await cache.aget_many(["a:1"]) == {"a:1": "v"}
        assert await cache.aget_or_set("a:2", lambda: 5) == 5
        await cache.aclear()

    asyncio.run(calls())
    records = list(written(cache))
    assert len(records) == 5
    assert all(record.outcome & Outcome.ASYNC for record in records)


def test_the_time_to_compute_a_value_is_not_the_cache_s(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = make(path)
    now_ns = 1_000
    monkeypatch.setattr(calls, "clock", lambda: now_ns)
    set_in_cache = cache.inner.set

    def compute() -> str:
        nonlocal now_ns
        now_ns += 30_000_000
        return "made"

    def slowly(*arguments: Any, **named: Any) -> None:
        nonlocal now_ns
        now_ns += 700
        set_in_cache(*arguments, **named)

    cache.inner.set = cache.inner.add = slowly
    cache.get_or_set("a:1", compute)
    assert only(cache).latency_ns == 700


def test_neither_keys_nor_values_are_in_the_file(path: Path) -> None:
    cache = make(path)
    value = {"name": "Annabel Example", "card": "4111-1111"}
    cache.set("user:annabel@example.org:secret-token", value)
    cache.get("user:annabel@example.org:secret-token")
    cache.recorder.flush()
    data = path.read_bytes()
    # Long ones: three letters may be among the bytes of a time or a hash.
    for text in ("annabel", "secret", "token", "Annabel", "4111-1111", "example"):
        assert text.encode() not in data
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("key", "prefix"),
    [
        ("user:7:name", "user"),
        ("template.cache.sidebar.d41d8cd98f", "template.cache.sidebar"),
        ("views.decorators.cache.cache_page..GET.9f2", "views.decorators.cache.cache_page"),
        ("django.contrib.sessions.cacheq7w8e9", "django.contrib.sessions"),
        (
            "django.contrib.sessions.cacheabcdefghijklmnopqrstuvwxyzabcdef",
            "django.contrib.sessions",
        ),
        ("token", ""),
        ("7:user", ""),
        ("", ""),
    ],
)
def test_a_prefix_is_the_first_word_and_never_a_last_one(key: str, prefix: str, path: Path) -> None:
    cache = make(path)
    cache.get(key)
    assert only(cache).prefix == prefix


def test_prefixes_can_be_left_out(path: Path) -> None:
    cache = make(path, prefixes=False)
    cache.get("user:7")
    cache.recorder.flush()
    assert b"user" not in path.read_bytes()


def test_the_same_key_has_the_same_hash_with_the_same_salt_only(tmp_path: Path) -> None:
    def hashed(name: str, salt: str) -> int:
        cache = make(tmp_path / name, salt=salt)
        cache.get("user:7")
        return only(cache).key

    first = hashed("a", "0123456789abcdef")
    assert hashed("b", "0123456789abcdef") == first
    assert hashed("c", "fedcba9876543210") != first


def test_a_version_that_is_the_cache_s_own_is_the_same_key(path: Path) -> None:
    cache = make(path)
    cache.get("a:1")
    cache.get("a:1", version=1)
    cache.get("a:1", version=2)
    first, second, third = (record.key for record in written(cache))
    assert first == second != third


@pytest.mark.parametrize("shape", ["user:{}", "{}", "session:{:032x}", "page/{}/of/the/site"])
@pytest.mark.parametrize("share", [0.01, 0.2])
def test_keys_are_in_or_out_for_good_and_as_many_as_asked(
    shape: str, share: float, tmp_path: Path
) -> None:
    def recorder() -> Recorder:
        options = RecorderOptions(
            path=str(tmp_path / "x"), share=share, max_bytes=10**6, salt=b"salt",
            prefixes=True, backend="",
        )  # fmt: skip
        return Recorder(options)

    keys = [shape.format(number) for number in range(20_000)]
    one, other = recorder(), recorder()
    taken = [key for key in keys if one.takes(key)]
    assert taken == [key for key in keys if other.takes(key)]
    assert 0.7 * share < len(taken) / len(keys) < 1.4 * share


def test_a_call_that_is_not_in_the_sample_leaves_nothing(path: Path) -> None:
    cache = make(path, share=0)
    cache.set("a:1", "v")
    assert cache.get("a:1") == "v"
    assert cache.get_many(["a:1"]) == {"a:1": "v"}
    cache.recorder.flush()
    assert not path.exists()


def test_a_forked_process_records_its_own_calls_and_nobody_s_twice(path: Path) -> None:
    cache = make(path)
    cache.set("parent:1", "v")
    pid = os.fork()
    if pid == 0:
        cache.set("child:1", "v")
        cache.recorder.flush()
        os._exit(0)
    os.waitpid(pid, 0)
    cache.set("parent:2", "v")
    found = written(cache)
    assert sorted(record.prefix for record in found) == ["child", "parent", "parent"]
    assert found.processes == 2


def test_what_a_killed_process_had_written_is_read(path: Path) -> None:
    script = (
        "import os, sys, signal; from pathlib import Path\n"
        "from django.conf import settings; settings.configure()\n"
        "from tests.recording.test_recording import make, BLOCK_RECORDS\n"
        "cache = make(Path(sys.argv[1]))\n"
        "for i in range(BLOCK_RECORDS + 10): cache.get(f'a:{i}')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    found = read([path])
    assert len(found) == BLOCK_RECORDS
    assert found.torn == 0


def test_what_is_buffered_is_written_when_a_process_ends(path: Path) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from django.conf import settings; settings.configure()\n"
        "from tests.recording.test_recording import make\n"
        "make(Path(sys.argv[1])).get('a:1')\n"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)
    assert len(read([path])) == 1


@pytest.mark.parametrize("left", [1, 10, 16, 30, 200])
def test_a_torn_last_block_is_counted_and_the_rest_is_read(left: int, path: Path) -> None:
    cache = make(path)
    for name in ("first", "second"):
        cache.set(f"{name}:1", "v")
        cache.recorder.flush()
    whole = path.read_bytes()
    second = whole.index(b"NCR1", 1)
    path.write_bytes(whole[: second + left])
    found = read([path])
    assert [record.prefix for record in found] == ["first"]
    assert found.torn == 1


def test_a_block_torn_in_the_middle_costs_only_itself(path: Path) -> None:
    cache = make(path)
    for name in ("first", "second", "third"):
        cache.set(f"{name}:1", "v")
        cache.recorder.flush()
    whole = path.read_bytes()
    second = whole.index(b"NCR1", 1)
    third = whole.index(b"NCR1", second + 1)
    path.write_bytes(whole[: second + 25] + whole[third:])
    found = read([path])
    assert [record.prefix for record in found] == ["first", "third"]
    assert found.torn == 1


def test_a_file_that_is_no_recording_says_so(path: Path) -> None:
    path.write_text("hello")
    with pytest.raises(NotARecording):
        read([path])


def test_the_file_never_grows_beyond_its_bound_and_the_cache_goes_on(path: Path) -> None:
    cache = make(path, size="64KB")
    for number in range(4 * BLOCK_RECORDS):
        cache.set(f"a:{number}", number)
    assert cache.get(f"a:{4 * BLOCK_RECORDS - 1}") == 4 * BLOCK_RECORDS - 1
    assert path.stat().st_size <= 64 * 1024
    told = cache.recorder.as_dict()
    assert told["state"] == "full"
    assert told["written"] == len(read([path]))
    assert told["lost"] > 0


@pytest.mark.parametrize("fault", ["no directory", "another's file", "a link", "a directory"])
def test_a_file_that_cannot_be_written_is_counted_and_the_cache_works(
    fault: str, tmp_path: Path
) -> None:
    path = tmp_path / "none" / "x" if fault == "no directory" else tmp_path / "x"
    if fault == "another's file":
        path.write_text("precious")
    elif fault == "a link":
        (tmp_path / "target").write_text("")
        path.symlink_to(tmp_path / "target")
    elif fault == "a directory":
        path.mkdir()
    cache = make(path)
    cache.set("a:1", "v")
    assert cache.get("a:1") == "v"
    cache.recorder.flush()
    told = cache.recorder.as_dict()
    assert told["errors"] >= 1
    assert told["lost"] == 2
    assert told["state"] not in ("recording", "full")
    if fault == "another's file":
        assert path.read_text() == "precious"


def test_a_value_that_cannot_be_measured_costs_a_record_and_nothing_else(path: Path) -> None:
    class Odd:
        def __reduce__(self) -> Any:
            raise RuntimeError("not while recording")

    cache = make(path)
    cache.inner.get = lambda key, default=None, version=None: Odd()
    assert isinstance(cache.get("a:1"), Odd)
    assert cache.recorder.as_dict()["errors"] == 1


def test_a_file_that_is_moved_away_is_begun_anew(path: Path) -> None:
    cache = make(path)
    cache.get("a:1")
    cache.recorder.flush()
    path.rename(path.with_suffix(".old"))
    cache.get("b:1")
    assert [record.prefix for record in written(cache)] == ["b"]


def test_errors_of_the_cache_reach_the_caller_and_are_noted(path: Path) -> None:
    cache = make(path)

    def away(*_args: Any, **_named: Any) -> Any:
        raise ConnectionError("away")

    cache.inner.get = away
    with pytest.raises(ConnectionError):
        cache.get("a:1")
    assert only(cache).outcome == Outcome.ERROR


def test_what_django_does_not_know_is_the_wrapped_cache_s(path: Path) -> None:
    cache = make(path)
    assert cache._cache is cache.inner._cache
    cache.default_timeout = 7
    assert cache.inner.default_timeout == 7
    assert cache.key_prefix == ""


def test_it_passes_for_the_cache_that_it_wraps(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    of = {"BACKEND": "nearcache.backends.SharedMemoryCache", "LOCATION": str(tmp_path / "c")}
    entry = recorded(of, str(tmp_path / "t"), share=1, salt="0123456789abcdef")
    cache = RecordingCache(entry["LOCATION"], entry)
    assert isinstance(cache, SharedMemoryCache)
    assert isinstance(cache, RecordingCache)
    assert isinstance(cache, BaseCache)
    assert cache.get_or_set("k:1", lambda: 3, 60, early=1.0) == 3
    assert cache.ttl("k:1") > 0
    assert isinstance(make(tmp_path / "l"), LocMemCache)


def test_what_memoize_asks_is_noted(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    made = []

    @memoize(timeout=60, early=1.0, ignore=["made"])
    def double(number: int) -> int:
        made.append(number)
        return 2 * number

    @memoize(timeout=60)
    async def triple(number: int) -> int:
        return 3 * number

    of = {"BACKEND": "nearcache.backends.SharedMemoryCache", "LOCATION": str(tmp_path / "c")}
    entry = recorded(of, str(tmp_path / "t"), share=1, salt="0123456789abcdef")
    with override_settings(CACHES={"default": entry}):
        assert (double(4), double(4)) == (8, 8)
        assert asyncio.run(triple(4)) == 12
        caches["default"].recorder.flush()
    assert made == [4]
    found = [(record.operation, record.outcome) for record in read([tmp_path / "t"])]
    awaited = ("get_or_set", Outcome.MISS | Outcome.ASYNC)
    assert found == [("get_or_set", Outcome.MISS), ("get_or_set", Outcome.HIT), awaited]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"share": 2}, "is 2; write a number from 0 to 1"),
        ({"shar": 1}, "did you mean 'share'?"),
        ({"of": "default"}, "must be an entry of CACHES"),
        ({"of": {"BACKEND": "nearcache.backends.RecordingCache"}}, "a recording cache itself"),
        ({"salt": "short"}, "a secret needs 16 or more"),
    ],
)
def test_a_wrong_option_fails_at_start_up(options: dict[str, Any], said: str, path: Path) -> None:
    given = {"of": {"BACKEND": LOCMEM}, "salt": "0123456789abcdef", **options}
    with pytest.raises(ImproperlyConfigured) as caught:
        RecordingCache(str(path), {"OPTIONS": given})
    assert said in str(caught.value)
    assert "short" not in str(caught.value)


def test_it_needs_a_file_and_a_cache(path: Path) -> None:
    with pytest.raises(ImproperlyConfigured, match="LOCATION"):
        RecordingCache("", {"OPTIONS": {"of": {"BACKEND": LOCMEM}, "salt": "0123456789abcdef"}})
    with pytest.raises(ImproperlyConfigured, match="of"):
        RecordingCache(str(path), {"OPTIONS": {}})
