"""Values of a live Redis: read-only, paced, decoded only where that is safe."""

from __future__ import annotations

import pickle
import signal
import subprocess
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nearcache.codec import make_codec
from nearcache.codec.errors import Undecodable
from nearcache.errors import LabError
from nearcache.lab.own.data import MOST_VALUE_BYTES, read_directory
from nearcache.lab.own.live_values import decoder_of, new_directory, write_values
from nearcache.lab.own.sampling import READ_ONLY, LiveSample, Pacer, sample_redis
from tests.redis.servers import Server, running

from .test_cli import LAB, environment, lab, left_behind

DJANGO = {"BACKEND": "django.core.cache.backends.redis.RedisCache"}
DJANGO_REDIS = {"BACKEND": "django_redis.cache.RedisCache"}
ZLIB = "django_redis.compressors.zlib.ZlibCompressor"


@pytest.fixture(scope="module")
def own_redis(redis_directory: Path) -> Iterator[Server]:
    """Of this file: on the one that files share, connections of other tests may still ask."""
    with running(redis_directory) as server:
        yield server


@pytest.fixture
def server(own_redis: Server) -> Server:
    with own_redis.client() as client:
        client.flushall()
        for number in range(200):
            client.set(f":1:user:{number}", pickle.dumps({"id": number, "x": "y" * number}), ex=600)
        client.set(":1:count:1", 42)
        client.hset("a:hash", mapping={"a": "b"})
        client.set("huge", b"x" * (MOST_VALUE_BYTES + 1))
        client.config_resetstat()
    return own_redis


def url_of(server: Server) -> str:
    return f"unix://{server.path}?db=0"


def quick(**more: Any) -> Pacer:
    return Pacer(1.0, **more)


def test_nothing_but_questions_is_asked(server: Server) -> None:
    sample_redis(url_of(server), keys=500, pacer=quick())
    with server.client() as client:
        stats = client.info("commandstats")
    asked = {name.removeprefix("cmdstat_").replace("|", " ").upper() for name in stats}
    connecting = {"AUTH", "HELLO", "SELECT", "CLIENT SETINFO", "INFO", "CONFIG RESETSTAT", "CLIENT"}
    assert {"TYPE", "SCAN", "GETRANGE", "MEMORY USAGE"} <= asked
    assert asked - connecting <= {" ".join(words) for words in READ_ONLY}


def test_sizes_types_lifetimes_and_compressibility_are_seen(server: Server) -> None:
    found = sample_redis(url_of(server), keys=500, pacer=quick())
    assert found.keys_in_database == 203
    users = [each for each in found.taken if each.prefix == "user"]
    assert len(users) == 200
    assert all(0 < (each.ttl_ms or 0) <= 600_000 for each in users)
    assert all((each.memory or 0) > each.size_bytes for each in users)
    assert min(each.squeezed for each in users if each.squeezed) < 0.7
    assert {each.type for each in found.taken} == {"string", "hash"}
    assert found.skipped == {"too large": 1, "no string but a hash": 1}


def test_a_pattern_and_a_number_bound_what_is_taken(server: Server) -> None:
    found = sample_redis(url_of(server), match=":1:user:*", keys=30, pacer=quick())
    assert len(found.taken) == 30
    assert {each.prefix for each in found.taken} == {"user"}
    assert found.scanned <= 203


def test_the_share_of_the_server_s_time_is_bounded() -> None:
    now = [0.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    pacer = Pacer(0.01, clock=lambda: now[0], sleep=sleep)
    pacer.floor_s = 0.001
    for _ in range(5):
        now[0] += 0.003
        pacer.spend(0.003)
    assert pacer.spent_s == pytest.approx(0.010)
    assert pacer.spent_s / pacer.wall_s <= 0.01
    assert slept == pytest.approx([0.198] * 5)


def test_neither_keys_nor_the_password_are_kept(
    redis_directory: Path, server: Server, tmp_path: Path
) -> None:
    with running(redis_directory, "--requirepass", "hunter22hunter22") as locked:
        with locked.client(password="hunter22hunter22") as client:
            client.set(":1:user:ann", "a value")
        url = url_of(locked).replace("unix://", "unix://:hunter22hunter22@")
        found = sample_redis(url, pacer=quick())
    write_values(found, decoder_of(None, pickles=False), new_directory(tmp_path / "kept"))
    text = "".join(path.read_text(errors="replace") for path in (tmp_path / "kept").iterdir())
    assert "a value" in text
    assert "hunter22" not in text + found.source
    assert "ann" not in text
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o700


def test_nobody_there_is_one_line_without_the_password(tmp_path: Path) -> None:
    with pytest.raises(LabError) as caught:
        sample_redis(f"unix://:hunter22@{tmp_path}/none.sock")
    assert "cannot be sampled" in str(caught.value)
    assert "hunter22" not in str(caught.value)


# -- decoding ------------------------------------------------------------------------------


def test_pickles_stay_bytes_unless_they_were_asked_for(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    evil = b"cos\nsystem\n(S'touch " + str(ran).encode() + b"'\ntR."
    evil = b"\x80\x02" + evil
    for entry in (None, DJANGO, DJANGO_REDIS):
        with pytest.raises(Undecodable):
            decoder_of(entry, pickles=False)(evil)
    assert not ran.exists()


@pytest.mark.parametrize(
    ("entry", "raw", "value"),
    [
        (None, b"42", 42),
        (None, pickle.dumps({"a": (1, 2)}), {"a": (1, 2)}),
        (None, zlib.compress(pickle.dumps("x" * 100)), "x" * 100),
        (None, make_codec("auto").encode([1, "two"]), [1, "two"]),
        (DJANGO, pickle.dumps((1, 2)), (1, 2)),
        (DJANGO_REDIS, b"7", 7),
        (
            {**DJANGO_REDIS, "OPTIONS": {"COMPRESSOR": ZLIB}},
            zlib.compress(pickle.dumps("y" * 100)),
            "y" * 100,
        ),
        (
            {"BACKEND": "nearcache.backends.RedisCache", "OPTIONS": {"compressor": "zlib"}},
            make_codec("auto", "zlib", 0).encode("z" * 500),
            "z" * 500,
        ),
        (
            {"BACKEND": "nearcache.backends.RecordingCache", "OPTIONS": {"of": DJANGO}},
            pickle.dumps("inner"),
            "inner",
        ),
    ],
)  # fmt: skip
def test_values_are_decoded_as_their_alias_would(entry: Any, raw: bytes, value: Any) -> None:
    assert decoder_of(entry, pickles=True)(raw) == value


def test_what_needs_no_pickle_is_decoded_without_asking() -> None:
    json_entry = {
        **DJANGO_REDIS,
        "OPTIONS": {"SERIALIZER": "django_redis.serializers.json.JSONSerializer"},
    }
    assert decoder_of(json_entry, pickles=False)(b'{"a": 1}') == {"a": 1}
    assert decoder_of(None, pickles=False)(make_codec("exact").encode((1, "b"))) == (1, "b")


def test_a_cache_in_a_form_of_its_own_is_refused() -> None:
    entry = {"BACKEND": "django.core.cache.backends.memcached.PyLibMCCache"}
    with pytest.raises(LabError, match="a form of its own"):
        decoder_of(entry, pickles=True)


def test_what_was_written_is_read_again_as_the_same_values(server: Server, tmp_path: Path) -> None:
    found = sample_redis(url_of(server), keys=500, pacer=quick())
    directory = new_directory(tmp_path / "kept")
    kinds, _ = write_values(found, decoder_of(None, pickles=True), directory)
    assert kinds == {"json": 201}
    values = [pickle.loads(each) for each in read_directory(directory, pickles=False).values]
    assert 42 in values
    assert {"id": 7, "x": "y" * 7} in values


def test_bytes_that_are_not_decoded_keep_their_size(server: Server, tmp_path: Path) -> None:
    found = sample_redis(url_of(server), match=":1:user:*", keys=50, pacer=quick())
    directory = new_directory(tmp_path / "kept")
    kinds, why = write_values(found, decoder_of(None, pickles=False), directory)
    assert kinds == {"stored": 50}
    assert why.total() == 50
    sizes = sorted(path.stat().st_size for path in directory.glob("*.stored"))
    assert sizes == sorted(each.size_bytes for each in found.taken)
    assert read_directory(directory, pickles=False).undecoded == 50


def test_an_empty_database_is_too_little(own_redis: Server, tmp_path: Path) -> None:
    with own_redis.client() as client:
        client.flushall()
    found = sample_redis(url_of(own_redis), pacer=quick())
    assert isinstance(found, LiveSample)
    assert not found.taken
    result = lab(
        "run", "backends", "--quick", "--sample", url_of(own_redis), "--out", str(tmp_path / "out")
    )
    assert result.returncode == 2
    assert "no key that matches '*' has a value" in result.stderr.splitlines()[-1]


def test_who_forgot_django_s_prefix_is_told_of_it(server: Server, tmp_path: Path) -> None:
    result = lab(
        "run", "backends", "--sample", url_of(server), "--match", "user:*", "--out", str(tmp_path)
    )
    assert result.returncode == 2
    assert "try --match '*:user:*'" in result.stderr


def test_a_directory_with_something_in_it_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    with pytest.raises(LabError, match="is not empty"):
        new_directory(tmp_path)


def test_a_run_with_a_sample_says_what_it_took(server: Server, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    result = lab(
        "run", "backends", "--quick", "--time-limit", "2", "--sample", url_of(server),
        "--match", ":1:user:*", "--keys", "40", "--pickle", "--save", str(kept),
        "--operations", "get,set", "--candidates", "locmem", "--out", str(tmp_path / "out"),
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "of the server's time" in result.stderr
    assert "40 decoded" in result.stderr
    assert f"kept in {kept}" in result.stderr
    assert len(list(kept.glob("*.json"))) == 41


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_values_are_taken_leaves_none_of_them(
    number: signal.Signals, server: Server, tmp_path: Path
) -> None:
    with server.client() as client:
        # Hundreds of pages without a match: sampling takes its time.
        client.mset({f"other:{i}": i for i in range(60_000)})
    words = ["run", "backends", "--sample", url_of(server), "--match", "none:*"]
    process = subprocess.Popen(
        [*LAB, *words, "--out", str(tmp_path)], stderr=subprocess.PIPE, text=True, env=environment()
    )
    with process:
        while not left_behind(process.pid):
            assert process.poll() is None, "the run ended before the signal"
            time.sleep(0.01)
        process.send_signal(number)
        assert process.stderr is not None
        said = process.stderr.read()
    assert process.returncode == 128 + number, said
    assert "Traceback" not in said
    assert not left_behind(process.pid)
    assert not list(tmp_path.iterdir())
