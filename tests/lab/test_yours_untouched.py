"""Caches of the user's, of every kind, holding what is theirs: every experiment leaves it alone.

The experiments are those of the registry, so a new one is here without being named. What is
looked at afterwards is not what the lab says, but the stores themselves: each foreign key, its
value and its time to live.
"""

from __future__ import annotations

import os
import pickle
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import CacheHandler
from django.test import override_settings

from nearcache.cli.lab.common import own_aliases
from nearcache.errors import LabError
from nearcache.lab.experiments.registry import EXPERIMENTS
from nearcache.lab.own.guard import OwnCache, Refused
from nearcache.lab.own.replaying import make_ready
from nearcache.lab.results.sample import Sample
from nearcache.lab.runner.driver import measure
from nearcache.lab.runner.laboratory import RunOptions, new_sample, prepare, takes
from nearcache.lab.servers import Servers
from nearcache.recording.cache import RecordingCache
from nearcache.recording.trace import read
from tests.needs import need, need_package
from tests.recording.test_recording import make
from tests.redis.servers import Server, running

from .conftest import Silent
from .private_servers import some_servers
from .test_cli import lab

DJANGO = "django.core.cache.backends"
LONG_S = 500_000  # what the lab writes lives ten minutes: a touched key would show
FOREIGN = {f"theirs:{number}": {"user": number, "basket": ["a"] * number} for number in range(60)}
ON_REDIS = {"ours", "django", "django-redis"}

SETTINGS = """
SECRET_KEY = "not-for-print"
USE_TZ = True
SQLITE = "django.db.backends.sqlite3"
DATABASES = {{"default": {{"ENGINE": SQLITE, "NAME": {here!r} + "/db.sqlite3"}}}}
CACHES = {{
    "default": {{"BACKEND": "{django}.dummy.DummyCache"}},
    "ours": {{"BACKEND": "nearcache.backends.RedisCache", "LOCATION": "redis://127.0.0.1:{redis}/1"}},
    "django": {{"BACKEND": "{django}.redis.RedisCache", "LOCATION": "redis://127.0.0.1:{redis}/2"}},
    "django-redis": {{
        "BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:{redis}/3",
    }},
    "shared": {{
        "BACKEND": "nearcache.backends.SharedMemoryCache", "LOCATION": {here!r} + "/shm/cache",
        "OPTIONS": {{"size": "8MB"}},
    }},
    "memory": {{
        "BACKEND": "{django}.locmem.LocMemCache", "LOCATION": "theirs",
        "OPTIONS": {{"MAX_ENTRIES": 10000}},
    }},
    "files": {{
        "BACKEND": "{django}.filebased.FileBasedCache", "LOCATION": {here!r} + "/files",
        "OPTIONS": {{"MAX_ENTRIES": 10000}},
    }},
    "database": {{
        "BACKEND": "{django}.db.DatabaseCache", "LOCATION": "theirs",
        "OPTIONS": {{"MAX_ENTRIES": 10000}},
    }},
    "pymemcache": {{
        "BACKEND": "{django}.memcached.PyMemcacheCache", "LOCATION": "127.0.0.1:{memcached}",
        "KEY_PREFIX": "p",
    }},
    "pylibmc": {{
        "BACKEND": "{django}.memcached.PyLibMCCache", "LOCATION": "127.0.0.1:{memcached}",
        "KEY_PREFIX": "l",
    }},
    "disk": {{"BACKEND": "diskcache.DjangoCache", "LOCATION": {here!r} + "/disk"}},
}}
"""


@dataclass(frozen=True)
class Site:
    """The user's: a settings module, and what its stores hold."""

    module: str
    here: Path
    aliases: list[str]
    redis: Server
    memcached: int

    def caches(self) -> CacheHandler:
        return CacheHandler(import_module(self.module).CACHES)

    def held(self) -> dict[str, dict[str, Any]]:
        """Of every alias, each foreign key with its value and its end, asked of the store."""
        return {alias: dict(sorted(self._held_by(alias))) for alias in self.aliases}

    def _held_by(self, alias: str) -> Iterator[tuple[str, Any]]:
        if alias in ON_REDIS:
            with self.redis.client(
                db=1 + ["ours", "django", "django-redis"].index(alias)
            ) as client:
                for key in client.scan_iter("*theirs:*"):
                    yield key.decode(), (client.dump(key), client.pexpiretime(key))
        elif alias == "files":
            for path in (self.here / "files").iterdir():
                yield path.name, path.read_bytes()
        elif alias == "database":
            with closing(sqlite3.connect(self.here / "db.sqlite3")) as database:
                rows = database.execute("SELECT cache_key, value, expires FROM theirs")
                yield from ((key, (value, expires)) for key, value, expires in rows)
        else:
            cache = self.caches()[alias]
            for key in FOREIGN:
                yield key, (cache.get(key), self._lives_long(alias, cache, key))
            cache.close()

    def _lives_long(self, alias: str, cache: Any, key: str) -> bool | None:
        """Of stores that tell what is left and not when it ends."""
        if alias == "shared":
            return bool(cache.ttl(key) > LONG_S / 2)
        if alias == "disk":
            return bool(cache._cache.get(cache.make_key(key), expire_time=True)[1])
        if "memcache" in alias or alias == "pylibmc":
            from pymemcache.client.base import Client

            client = Client(("127.0.0.1", self.memcached))
            try:
                words = client.raw_command(f"mg {cache.make_key(key)} t").split()
            finally:
                client.close()
            return len(words) > 1 and int(words[1][1:]) > LONG_S / 2
        return None


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    need("redis-server", "memcached")
    need_package("django_redis", "pymemcache", "pylibmc", "diskcache")
    here = tmp_path_factory.mktemp("theirs")
    (here / "shm").mkdir(mode=0o700)
    with some_servers() as servers, running(here) as redis, pytest.MonkeyPatch.context() as patch:
        memcached = _memcached_port(servers)
        text = SETTINGS.format(django=DJANGO, here=str(here), redis=redis.port, memcached=memcached)
        (here / "theirsettings.py").write_text(text)
        patch.syspath_prepend(str(here))
        patch.chdir(here)
        module = import_module("theirsettings")
        with closing(sqlite3.connect(here / "db.sqlite3")) as database:
            database.execute(
                "CREATE TABLE theirs (cache_key varchar(255) NOT NULL PRIMARY KEY, "
                "value text NOT NULL, expires datetime NOT NULL)"
            )
        aliases = [name for name in module.CACHES if name != "default"]
        found = Site("theirsettings", here, aliases, redis, memcached)
        _store_what_is_theirs(found, module.DATABASES)
        yield found
    sys.modules.pop("theirsettings", None)


def _memcached_port(servers: Servers) -> int:
    servers.start("memcached-tcp")
    return int(servers.places()["memcached_port"])


def _store_what_is_theirs(site: Site, databases: Mapping[str, Any]) -> None:
    """By processes of the site, with its settings."""
    script = (
        "import django, pickle, sys; django.setup();"
        "from django.core.cache import caches;"
        "foreign, aliases, life = pickle.loads(sys.stdin.buffer.read());"
        "[caches[a].set(k, v, life) for a in aliases for k, v in foreign.items()]"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=pickle.dumps((FOREIGN, site.aliases, LONG_S)),
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": site.module,
            "PYTHONPATH": os.pathsep.join([str(site.here), *filter(None, sys.path)]),
        },
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    with override_settings(CACHES=import_module(site.module).CACHES):
        for key, value in FOREIGN.items():  # LocMemCache is this process's
            site.caches()["memory"].set(key, value, LONG_S)


def run_on(site: Site, name: str, recording: Path) -> Sample | LabError:
    """The experiment with its quick plan, once round, on all aliases; or why it takes none.

    Short phases, values of one kB and of 10, and neither a baseline nor twins: what is asked is
    what is written to these caches, not how fast.
    """
    experiment = EXPERIMENTS[name]
    if not takes(experiment, "takes_own_aliases"):
        return LabError("not on aliases of a user's")
    quick = replace(experiment.plans["quick"], repetitions=1, rounds=1, time_limit_s=3600)
    # The phase of warmup is a limit, within which requests write as they miss.
    quick = replace(quick, phase_ms=300 if name == "warmup" else 1)
    experiment = replace(experiment, plans={"quick": quick})
    extra = own_aliases(site.module, site.aliases)
    played = make_ready(read([recording]), None, recording.parent)
    data = played.order if name == "replay" else ""
    payloads = [each for each in ("S", "F") if each in experiment.payloads]
    wanted = RunOptions(plan="quick", extra=extra, seed=7, data=data, payloads=payloads)
    order = prepare(experiment, wanted)
    theirs = [c for c in order.candidates if c.settings_module and not c.twin_of]
    order = replace(order, candidates=theirs)
    sample = new_sample(order, "a test")
    measure(order, sample, Silent(), lambda sample: None)
    return sample


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "trace"
    cache = make(path)
    _some_traffic(cache)
    cache.recorder.flush()
    return path


def _some_traffic(cache: RecordingCache) -> None:
    for number in range(60):
        cache.get(f"a:{number}")
        cache.set(f"a:{number}", "x" * 200)
        cache.get_many([f"a:{number}", "none"])
        cache.incr("counter") if cache.add("counter", 1) else None
        cache.delete(f"a:{number - 1}")
    cache.clear()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_is_theirs_is_there_afterwards(site: Site, name: str, recording: Path) -> None:
    before = site.held()
    assert {alias: len(found) for alias, found in before.items()} == dict.fromkeys(
        site.aliases, len(FOREIGN)
    )
    found = run_on(site, name, recording)
    assert site.held() == before
    if isinstance(found, LabError):
        refused = lab("run", name, "--quick", "--settings", site.module, "--out", "out")
        assert refused.returncode == 2
        assert (
            "measures none of your caches" in refused.stderr or "needs --replay" in refused.stderr
        )
        return
    measured = {a for a in site.aliases if found.candidates[a].state == "measured"}
    reasons = {a: found.candidates[a].reason for a in site.aliases if a not in measured}
    assert measured == (ON_REDIS if name == "codecs" else set(site.aliases)), reasons


def test_a_full_cache_that_culls_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond MAX_ENTRIES a third of it would go, and not a third of ours."""
    files = tmp_path / "files"
    entry = {"BACKEND": f"{DJANGO}.filebased.FileBasedCache", "LOCATION": str(files)}
    (tmp_path / "fullsettings.py").write_text(
        f"SECRET_KEY = 'x'\nCACHES = {{'default': {entry}}}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    cache = CacheHandler({"default": entry})["default"]
    for number in range(280):
        cache.set(f"theirs:{number}", number, LONG_S)
    before = {path.name: path.read_bytes() for path in files.iterdir()}
    result = lab(
        "run", "backends", "--quick", "--payloads", "S", "--settings", "fullsettings",
        "--operations", "get", "--out", "out",
    )  # fmt: skip
    assert "it has room for 20 more entries" in result.stdout + result.stderr
    assert {path.name: path.read_bytes() for path in files.iterdir()} == before


# -- the object that arms get -----------------------------------------------------------------


class Spy:
    """A backend with every method there is; it notes what reached it."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.client = self._cache = object()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_args, **_more: self.called.append(name)


ONE_KEY = (
    *("touch", "delete", "incr", "decr", "incr_version", "decr_version"),
    *("expire", "pexpire", "persist", "lock"),
)
WRITES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("set", "add", "get_or_set"), ("KEY", 1)),
    **dict.fromkeys(ONE_KEY, ("KEY",)),
}


@pytest.mark.parametrize("prefix", ["", "a"])
@pytest.mark.parametrize("name", [*WRITES, "set_many", "delete_many"])
def test_only_keys_of_the_run_are_written(name: str, prefix: str) -> None:
    spy = Spy()
    cache = OwnCache(spy, "run:1")
    call = getattr(cache, prefix + name)
    for key, is_ours in (("run:1:x", True), ("run:2:x", False), ("theirs", False)):
        arguments = WRITES.get(name, ({"run:1:y": 1, key: 1},) if name == "set_many" else ([key],))
        ready = tuple(key if each == "KEY" else each for each in arguments)
        spy.called.clear()
        if is_ours:
            call(*ready)
            assert spy.called == [prefix + name]
        else:
            with pytest.raises(Refused, match="no key of this run"):
                call(*ready)
            assert not spy.called


@pytest.mark.parametrize(
    "name",
    [
        *("clear", "flush_all", "delete_pattern", "client", "aclient", "_cache", "engine"),
        *("keys", "iter_keys", "sadd", "eval", "reset", "cull", "_engine", "get_client"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "a"])
def test_whatever_else_a_backend_has_is_refused(name: str, prefix: str) -> None:
    spy = Spy()
    with pytest.raises(Refused, match="not for the lab"):
        getattr(OwnCache(spy, "run:1"), prefix + name)
    assert not spy.called


def test_a_value_without_a_lifetime_gets_one() -> None:
    from django.core.cache.backends.locmem import LocMemCache

    backend = LocMemCache("lifetimes", {"TIMEOUT": None})
    OwnCache(backend, "run:1").set("run:1:x", 1)
    assert backend._expire_info[backend.make_key("run:1:x")] is not None  # type: ignore[attr-defined]
