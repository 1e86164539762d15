"""The user's own caches: measured where they are, told apart honestly, their secrets kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.cache.backends.locmem import LocMemCache

from nearcache.lab.base.redact import redact
from nearcache.lab.own.alias import own_alias, reach_of, with_place
from nearcache.lab.results.sample import read_sample
from tests.redis.servers import Server, running

from .test_cli import lab

LOCMEM = "django.core.cache.backends.locmem.LocMemCache"
DATABASE = "django.core.cache.backends.db.DatabaseCache"
FILES = "django.core.cache.backends.filebased.FileBasedCache"
REDIS = "django.core.cache.backends.redis.RedisCache"


@pytest.mark.parametrize(
    ("settings", "reach"),
    [
        ({"BACKEND": LOCMEM}, "process"),
        ({"BACKEND": "django.core.cache.backends.dummy.DummyCache"}, "process"),
        ({"BACKEND": "tests.lab.test_own_alias.OurMemory"}, "process"),
        ({"BACKEND": "django.core.cache.backends.filebased.FileBasedCache"}, "host"),
        ({"BACKEND": "nearcache.backends.SharedMemoryCache"}, "host"),
        ({"BACKEND": DATABASE}, "network"),
        ({"BACKEND": REDIS, "LOCATION": "redis://10.0.0.1"}, "network"),
        ({"BACKEND": REDIS, "LOCATION": "unix:///run/redis.sock?db=1"}, "host"),
        ({"BACKEND": REDIS, "LOCATION": ["unix:///a", "redis://b"]}, "network"),
        ({"BACKEND": "nowhere.Cache"}, "network"),
        (
            {
                "BACKEND": "nearcache.backends.RecordingCache",
                "OPTIONS": {"of": {"BACKEND": LOCMEM}},
            },
            "process",
        ),
    ],
)
def test_who_shares_a_cache_is_read_from_its_class_and_place(
    settings: dict[str, Any], reach: str
) -> None:
    assert reach_of(settings) == reach


def test_a_database_cache_on_sqlite_is_this_host_s() -> None:
    databases = {"default": {"ENGINE": "django.db.backends.sqlite3"}}
    assert reach_of({"BACKEND": DATABASE}, databases) == "host"


def test_a_cache_that_culls_is_said_to() -> None:
    candidate = own_alias("m", "files", {"BACKEND": DATABASE, "OPTIONS": {"MAX_ENTRIES": 50}})
    assert "it holds 50 entries" in candidate.note
    memory = own_alias("m", "memory", {"BACKEND": LOCMEM}).note
    assert "it holds" not in memory  # nobody else's keys are pushed out
    assert "MAX_ENTRIES is 300" in memory


def test_a_fault_says_where_it_was_unless_it_does_already() -> None:
    settings = {"LOCATION": ["unix:/run/a", "unix:/run/b"]}
    said = with_place("Connection refused", settings)
    assert said == "Connection refused (LOCATION unix:/run/a, unix:/run/b)"
    assert with_place("no connection to h:1", {"LOCATION": "h:1"}) == "no connection to h:1"
    assert with_place("option 'sizee' is unknown", settings) == "option 'sizee' is unknown"


def test_settings_that_end_the_process_and_entries_that_are_none_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for text, said in (
        ("import sys; sys.exit('no environment')", "does not import (SystemExit: no environment)"),
        ("CACHES = {'odd': {'LOCATION': 'x'}}", "CACHES['odd'] of ownsettings is no dict with a"),
    ):
        (tmp_path / "ownsettings.py").write_text(text)
        result = lab("run", "backends", "--settings", "ownsettings", "--out", "out")
        assert result.returncode == 2
        assert said in result.stderr


def test_a_recorded_alias_is_measured_without_its_recording_and_beside_its_twin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a KEY_FUNCTION may be a function, which cannot be sent to another process."""
    (tmp_path / "ownsettings.py").write_text(
        "from nearcache.recording.options import recorded\n"
        "SECRET_KEY = 'not-for-print'\n"
        f"entry = {{'BACKEND': {FILES!r}, 'LOCATION': {str(tmp_path / 'files')!r},\n"
        "         'KEY_FUNCTION': lambda key, prefix, version: f'ours-{key}'}\n"
        f"CACHES = {{'default': recorded(entry, {str(tmp_path / 'trace')!r}, share=1)}}\n"
    )
    monkeypatch.chdir(tmp_path)
    result = lab(
        "run", "backends", "--quick", "--time-limit", "3", "--payloads", "S",
        "--operations", "get,set", "--settings", "ownsettings", "--out", "out",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    (path,) = Path("out").glob("*.json")
    candidates = read_sample(path).candidates
    assert candidates["default"].state == candidates["default (twin)"].state == "measured"
    assert "without its recording" in candidates["default"].note
    assert candidates["default"].proof["backend"] == FILES
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://user:pa:ss@host/0 refused", "redis://***@host/0 refused"),
        ("redis://:p%40ss@host refused", "redis://***@host refused"),
        ("at rediss://h?password=hunter22&db=1", "at rediss://h?password=***&db=1"),
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("http://a/b:c and x@y", "http://a/b:c and x@y"),
    ],
)
def test_passwords_of_urls_are_hidden(text: str, shown: str) -> None:
    assert redact(text) == shown


def test_secrets_of_settings_are_hidden_wherever_they_appear() -> None:
    settings = {
        "LOCATION": "redis://:hunter22@host",
        "OPTIONS": {"PASSWORD": "opensesame", "sign_keys": ["0123456789abcdef"], "db": "main"},
    }
    text = redact("bad opensesame, hunter22, 0123456789abcdef, main", settings)
    assert text == "bad ***, ***, ***, main"


class OurMemory(LocMemCache):
    """Named in a test above; its base makes it private."""


@pytest.fixture
def locked_redis(redis_directory: Path) -> Any:
    with running(redis_directory, "--requirepass", "hunter22hunter22") as server:
        yield server


def settings_with(tmp_path: Path, entry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ownsettings.py").write_text(
        f"SECRET_KEY = 'not-for-print'\nCACHES = {{'default': {entry}}}\n"
    )
    monkeypatch.chdir(tmp_path)


def test_a_redis_of_the_user_s_is_left_as_it_was_and_its_password_nowhere(
    locked_redis: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with locked_redis.client(password="hunter22hunter22") as client:
        client.set("theirs", "precious")
        client.config_resetstat()
    location = f"redis://:hunter22hunter22@127.0.0.1:{locked_redis.port}/0"
    settings_with(tmp_path, f"{{'BACKEND': {REDIS!r}, 'LOCATION': {location!r}}}", monkeypatch)
    result = lab(
        "run", "backends", "--quick", "--time-limit", "4", "--payloads", "S",
        "--operations", "get,set,delete,incr", "--settings", "ownsettings", "--out", "out",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    with locked_redis.client(password="hunter22hunter22") as client:
        asked = {name.removeprefix("cmdstat_") for name in client.info("commandstats")}
        assert client.keys("*") == [b"theirs"]
    assert not asked & {"flushall", "flushdb", "keys", "unlink", "rename", "config|set", "eval"}
    (path,) = Path("out").glob("*.json")
    entry = read_sample(path).candidates["default"]
    assert entry.state == "measured"
    assert entry.reach == "network"
    assert entry.stored["S"][1] == "MEMORY USAGE"
    everything = path.read_text() + path.with_suffix(".html").read_text()
    assert "hunter22" not in everything + result.stdout + result.stderr


def test_a_wrong_password_is_a_reason_that_does_not_tell_it(
    locked_redis: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ownbackend.py").write_text(
        "from django.core.cache.backends.redis import RedisCache\n"
        "class Chatty(RedisCache):\n"
        "    def get(self, *args, **kwargs):\n"
        "        raise RuntimeError(f'no luck at {self._servers} with wrongwrong')\n"
        "    set = get\n"
    )
    location = f"redis://:wrongwrong@127.0.0.1:{locked_redis.port}/0"
    settings_with(
        tmp_path, f"{{'BACKEND': 'ownbackend.Chatty', 'LOCATION': {location!r}}}", monkeypatch
    )
    result = lab(
        "run", "backends", "--quick", "--time-limit", "2", "--payloads", "S", "--operations", "get",
        "--settings", "ownsettings", "--out", "out",
    )  # fmt: skip
    (path,) = Path("out").glob("*.json")
    entry = read_sample(path).candidates["default"]
    assert entry.state == "failed"
    assert "no luck at" in entry.reason
    everything = path.read_text() + path.with_suffix(".html").read_text()
    assert "wrongwrong" not in everything + result.stdout + result.stderr


def test_an_alias_with_a_candidate_s_name_does_not_replace_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ownsettings.py").write_text(
        f"SECRET_KEY = 'x'\nCACHES = {{'default': {{'BACKEND': {LOCMEM!r}}}, "
        f"'locmem': {{'BACKEND': {LOCMEM!r}}}}}\n"
    )
    monkeypatch.chdir(tmp_path)
    result = lab(
        "run", "backends", "--quick", "--time-limit", "2", "--payloads", "S", "--operations",
        "get,set", "--settings", "ownsettings", "--alias", "locmem", "--out", "out",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    (path,) = Path("out").glob("*.json")
    assert {"locmem", "your locmem"} <= set(read_sample(path).candidates)
