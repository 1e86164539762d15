"""``gunicorn -k gevent --preload``: imported, perhaps used, forked; only then patched by gevent.

These tests are programs, because gevent patches the whole process; but for two of the parts.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nearcache.base.per_process import Mutex
from nearcache.coordination.lock_renewal import renewer_of
from nearcache.coordination.locks import Lock
from nearcache.engines.memory import MemoryEngine
from tests.redis.servers import Server

ROOT = Path(__file__).parents[2]
# They do something when they are imported, or want to be told what to be.
PROGRAMS = ("nearcache.__main__", "nearcache.lab.endpoint.wsgi", "nearcache.web.standalone")
HEAD = """
import faulthandler, importlib, os, pkgutil, sys, threading, time
import django
from django.conf import settings
settings.configure(CACHES={{"default": {cache!r}}})
django.setup()
from django.core.cache import cache
import nearcache
for module in pkgutil.walk_packages(nearcache.__path__, "nearcache."):
    if module.name not in {programs!r}:
        importlib.import_module(module.name)
from nearcache.memoize import memoize

def watch():
    # Not before a fork: a child with its parent's watchdog, but not the thread, never ends.
    faulthandler.dump_traceback_later(100, exit=True)

calls = []

def slow(name):
    calls.append(name)
    time.sleep(0.3)
    return name

remembered = memoize(timeout=60)(slow)

def until_renewed(lock):
    ends_at_s = lock._lease._ends_at_s
    while lock._lease._ends_at_s == ends_at_s:
        time.sleep(0.01)

def use(number):
    with cache.lock("crowd", timeout=60, wait=90):
        inside.append(number)
        assert len(inside) == 1
        time.sleep(0.002)
        inside.clear()
    assert cache.get_or_set("computed", lambda: slow("computed"), 60, stale=60) == "computed"
    assert remembered("memoized") == "memoized"
    cache.set(f"k{{number}}", number)
    assert cache.get(f"k{{number}}") == number

inside = []
"""
FORKED = """
def before():
    cache.set("before", 1)
    with cache.lock("before", timeout=60):
        assert cache.get_or_set("early", lambda: slow("early"), 60) == "early"
    remembered("early")
    calls.clear()

if {used}:
    before()
    held = cache.lock("held", timeout=60)
    held.acquire()  # so that the renewer's thread runs
pid = os.fork()
watch()
if pid:
    assert os.waitpid(pid, 0)[1] == 0
    if {used}:
        held.release()
    sys.exit()

from gevent import monkey; monkey.patch_all()
import gevent
greenlets = [gevent.spawn(use, number) for number in range(32)]
gevent.joinall(greenlets, raise_error=True)
assert sorted(calls) == ["computed", "memoized"], calls
for name in ("crowd", "before"):
    assert cache.lock(name, timeout=5).acquire(blocking=False), name
# A lock is renewed, by a greenlet, and lets go of.
with cache.lock("renewed", timeout=3) as lock:
    until_renewed(lock)
    lock.check()
assert cache.lock("renewed", timeout=5).acquire(blocking=False)
os._exit(0)
"""
LATE = """
watch()
# Not forked at all: what the older renewer had is renewed, and let go of.
early = cache.lock("early", timeout=6)
early.acquire()
from gevent import monkey; monkey.patch_all()
import gevent
greenlets = [gevent.spawn(use, number) for number in range(32)]
gevent.joinall(greenlets, raise_error=True)
assert sorted(calls) == ["computed", "memoized"], calls
until_renewed(early)
early.check()
early.release()
for name in ("crowd", "early"):
    assert cache.lock(name, timeout=5).acquire(blocking=False), name
os._exit(0)
"""


@pytest.fixture(params=["redis", "shm"])
def settings(request: pytest.FixtureRequest, server: Server, private_path: Path) -> dict[str, Any]:
    if request.param == "redis":
        return {
            "BACKEND": "nearcache.backends.RedisCache",
            "LOCATION": f"unix://{server.path}",
            "OPTIONS": {"SOCKET_TIMEOUT": 20},  # a slow host is no fault
        }
    return {
        "BACKEND": "nearcache.backends.SharedMemoryCache",
        "LOCATION": str(private_path / "cache"),
        "OPTIONS": {"size": "4MB"},
    }


def run(settings: dict[str, Any], program: str, **values: Any) -> None:
    text = HEAD.format(cache=settings, programs=PROGRAMS) + textwrap.dedent(program).format(
        **values
    )
    # gevent and Python warn of patching late, and of forking with threads: rightly.
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", text],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    # What is said there is Python's: a thread from before the patch ends under another name.
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("used", [False, True], ids=["imported", "used"])
def test_a_child_that_is_patched_after_the_fork(settings: dict[str, Any], used: bool) -> None:
    run(settings, FORKED, used=used)


def test_a_process_that_is_patched_late(settings: dict[str, Any]) -> None:
    run(settings, LATE)


def test_a_keeper_made_before_threading_was_patched_hands_over(
    eventually: Callable[[Callable[[], object]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, native = MemoryEngine(), threading.Lock
    before = renewer_of(engine, b"n")
    with monkeypatch.context() as patched, Lock(engine, b"n", timeout_s=3) as lock:
        assert before._kept
        patched.setattr(threading, "Lock", lambda: native())
        after = renewer_of(engine, b"n")
        assert after is renewer_of(engine, b"n")
        assert after is not before
        assert after._kept
        assert not before._kept
        lease = lock._lease
        assert lease
        ends_at_s = lease._ends_at_s
        eventually(lambda: lease._ends_at_s > ends_at_s)
        lock.check()
    eventually(lambda: not after._kept)


def test_a_mutex_is_of_the_kind_that_threading_makes_now(monkeypatch: pytest.MonkeyPatch) -> None:
    mutex, native = Mutex(), threading.Lock
    before = mutex.now()
    assert before is mutex.now()
    with monkeypatch.context() as patched:
        patched.setattr(threading, "Lock", lambda: native())
        assert mutex.now() is mutex.now() is not before
