"""What is done to a site while its clients ask: one entry per fault.

A fault is a context: what it does at first, and what it undoes. While it is open, and until
all clients have good answers again, what it excuses is counted and not blamed.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from nearcache.engines.shm import data_path
from nearcache.lab.servers import free_port
from tests.site.clients import SIZES
from tests.site.servers import Server
from tests.site.stores import PASSWORD, USER, RedisStore, SharedStore, mounted, unmounted
from tests.site.versions import another_version

if TYPE_CHECKING:
    from tests.site.trial import Trial

KILLS = 5
REQUESTS_BETWEEN = 60
FROZEN_S = 10
NOBODY = 65534
HUNG_AFTER_S = 6
SILENT_S = 10
AWAY = frozenset(
    {
        "EngineUnavailable",
        "SessionsAway",
        "taken for logged out",
        "older session",
        "overlap of flights",
    }
)
"""What a server that does not answer makes of a site. Django's session engines take an error
of the cache for an empty session, ours does not; on_error="miss" drops what was to be written.
"""
EMPTY = frozenset({"lost", "logged out", "SessionInterrupted", "LockLost"})
EMPTY |= {"overlap of flights", "overlap of locks"}
"""What a store that lost its data makes of a site."""
UNREAD = frozenset({"lost", "logged out"})
"""What an older version makes of a value that it cannot read: a miss."""
RESTARTED = frozenset({"unanswered"})
STARTED_ANEW = RESTARTED | {"lost", "logged out"}
"""All processes ended, and the store is another one: nobody held anything in it."""
OUT_OF_MEANS = AWAY | RESTARTED | {"OSError", "OperationalError", "error of the server"}
"""What a process makes of a site that has none of something left. Who cannot import a module, or
start a thread, says so by an error of Python's.
"""
NO_DESCRIPTORS = OUT_OF_MEANS | {"RegionError", "ImportError", "RuntimeError"}
"""RuntimeError: a worker that has no descriptor left to accept with ends beside its requests, and
an interpreter that ends takes no new work of theirs.
"""
NO_MEMORY = NO_DESCRIPTORS | {"MemoryError"}

Doing = Callable[["Trial"], AbstractContextManager[None]]


@dataclass(frozen=True)
class Fault:
    do: Doing
    stores: tuple[str, ...] = ("redis", "shm")
    excuses: frozenset[str] = frozenset()
    fits: Callable[[Server], bool] = lambda server: True
    kills: bool = False
    """Whether holders of locks die: with Redis, a lock lives on until its time is over."""
    timeout_s: int = 600
    """After which the server kills a worker that hangs."""
    noisy: bool = False
    """Whether Python and asgiref, too, say what they could not do."""
    hangs_if: str = ""
    """What a log says when Python itself lets a request hang."""
    environment: dict[str, str] = field(default_factory=dict)
    """Of the server, beside what it has anyway."""
    always: bool = False
    """Whether it excuses during the whole run: the settings of the server are a part of it."""

    @property
    def says(self) -> str:
        return (self.do.__doc__ or "").strip()


@contextmanager
def nothing(trial: Trial) -> Iterator[None]:
    """Nothing happens, and nothing may go wrong."""
    trial.work(KILLS * REQUESTS_BETWEEN)
    yield


# -- processes --------------------------------------------------------------------------------


@contextmanager
def kills(trial: Trial) -> Iterator[None]:
    """SIGKILL to workers that answer, one after the other."""
    for _ in range(KILLS):
        pid = trial.a_worker()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            trial.judge.count("killed")
        trial.revive()
        trial.work(REQUESTS_BETWEEN)
    yield


@contextmanager
def freezes(trial: Trial) -> Iterator[None]:
    """SIGSTOP to workers, for a second; then they go on, or are killed."""
    for _ in range(KILLS):
        pid = trial.a_worker()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            trial.judge.count("frozen")
            trial.wait(1)
            os.kill(pid, trial.random.choice((signal.SIGCONT, signal.SIGKILL)))
        trial.revive()
        trial.work(REQUESTS_BETWEEN // 2)
    yield


@contextmanager
def timeouts(trial: Trial) -> Iterator[None]:
    """Requests hang inside a lock or a computation until the server kills their worker."""
    trial.manners.hangs = 0.03
    trial.work(KILLS * REQUESTS_BETWEEN)
    yield
    trial.manners.hangs = 0


def vm_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@contextmanager
def limited(trial: Trial, which: int, used: Callable[[int], int], more: int) -> Iterator[None]:
    """Every worker may have a little more than it has; afterwards what it might before."""
    before: dict[int, tuple[int, int]] = {}
    for pid in trial.workers():
        with contextlib.suppress(OSError):
            before[pid] = resource.prlimit(pid, which)
            resource.prlimit(pid, which, (used(pid) + more, before[pid][1]))
            trial.judge.count("limited")
    yield
    for pid, limits in before.items():
        with contextlib.suppress(OSError):
            resource.prlimit(pid, which, limits)


@contextmanager
def descriptors_gone(trial: Trial) -> Iterator[None]:
    """RLIMIT_NOFILE of all workers is reached."""
    with limited(trial, resource.RLIMIT_NOFILE, descriptors, more=2):
        trial.work(100)
        yield


@contextmanager
def memory_gone(trial: Trial) -> Iterator[None]:
    """RLIMIT_AS of all workers is reached, by large values; who cannot recover is killed."""
    trial.manners.sizes = (300_000, 1_000_000)
    more = trial.random.choice((100_000, 1_000_000, 2_000_000, 3_000_000, 5_000_000))
    with limited(trial, resource.RLIMIT_AS, vm_bytes, more):
        trial.work(100)
        trial.manners.sizes = SIZES
        yield
    if trial.python_hangs():
        for pid in trial.silent(SILENT_S):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                trial.judge.count("killed")


@contextmanager
def two_settings(trial: Trial) -> Iterator[None]:
    """A second server on the same store, with another serializer and packed."""
    caches = trial.store.caches(trial.on_error, serializer="pickle", compressor="zlib")
    with trial.beside(caches=caches) as other, trial.asked_too(other):
        trial.work(KILLS * REQUESTS_BETWEEN)
        yield


@contextmanager
def two_versions(trial: Trial) -> Iterator[None]:
    """A second server on the same store is of a newer version: the first cannot read it all."""
    trial.manners.unread = True
    with trial.beside(another_version()) as other, trial.asked_too(other):
        assert other.layout() != trial.site.layout()
        trial.work(KILLS * REQUESTS_BETWEEN)
        yield
    trial.manners.unread = False


@contextmanager
def two_layouts(trial: Trial) -> Iterator[None]:
    """A second server at the same LOCATION has another layout: a file and users of its own."""
    inside = trial.directory / f"inside-{trial.judge.counts['faults']}"
    inside.mkdir()
    with trial.beside(another_version(), inside=str(inside)) as other, trial.users_of(other):
        assert other.layout() != trial.site.layout()
        trial.work(KILLS * REQUESTS_BETWEEN)
        yield


@contextmanager
def another_user(trial: Trial) -> Iterator[None]:
    """The site is restarted, and its store is another user's; and again, and it is its own."""
    trial.site.end()
    shared(trial).hand_over(NOBODY)
    trial.site.start()
    trial.site.wait_ready((500,))
    trial.work(100)
    trial.site.end()
    shared(trial).hand_over(os.geteuid())
    trial.site.start()
    yield


@contextmanager
def restarts(trial: Trial) -> Iterator[None]:
    """The server ends as it should, and starts again."""
    trial.site.end()
    yield
    trial.site.start()


# -- clients ----------------------------------------------------------------------------------


@contextmanager
def interrupts(trial: Trial) -> Iterator[None]:
    """gevent.Timeout, SIGALRM or cancellation ends requests in their midst."""
    trial.manners.interrupts = 0.4
    trial.work(KILLS * REQUESTS_BETWEEN * 2)
    yield
    trial.manners.interrupts = 0


@contextmanager
def disconnects(trial: Trial) -> Iterator[None]:
    """Clients are gone before they are answered."""
    trial.manners.disconnects = 0.4
    trial.work(KILLS * REQUESTS_BETWEEN)
    yield
    trial.manners.disconnects = 0


# -- redis-server -----------------------------------------------------------------------------


def redis(trial: Trial) -> RedisStore:
    assert isinstance(trial.store, RedisStore)
    return trial.store


@contextmanager
def redis_killed(trial: Trial) -> Iterator[None]:
    """redis-server is killed, and away for 100 requests."""
    redis(trial).server.kill()
    trial.work(100)
    yield
    redis(trial).start()


@contextmanager
def redis_emptied(trial: Trial) -> Iterator[None]:
    """redis-server is killed and started at once: it is empty."""
    redis(trial).server.kill()
    redis(trial).start()
    yield


@contextmanager
def redis_flushed(trial: Trial) -> Iterator[None]:
    """FLUSHALL."""
    redis(trial).server.ask("FLUSHALL")
    yield


@contextmanager
def redis_frozen(trial: Trial) -> Iterator[None]:
    """redis-server stands still for 10 s; its connections stay open."""
    redis(trial).server.pause()
    trial.wait(FROZEN_S)
    yield
    redis(trial).server.resume()


@contextmanager
def redis_full(trial: Trial) -> Iterator[None]:
    """maxmemory is reached, and nothing is evicted."""
    redis(trial).server.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
    redis(trial).server.ask("CONFIG", "SET", "maxmemory", "1mb")
    trial.work(100)
    yield
    redis(trial).server.ask("CONFIG", "SET", "maxmemory", "0")


@contextmanager
def redis_client_kill(trial: Trial) -> Iterator[None]:
    """CLIENT KILL of all connections, again and again."""
    for _ in range(KILLS * 2):
        redis(trial).server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        redis(trial).server.ask("CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes")
        trial.judge.count("connections cut")
        trial.work(REQUESTS_BETWEEN // 4)
    yield


@contextmanager
def redis_timeout(trial: Trial) -> Iterator[None]:
    """``timeout 1``: connections that were idle for a second are closed by the server."""
    redis(trial).server.ask("CONFIG", "SET", "timeout", "1")
    trial.manners.pause_s = 1.7
    trial.work(5 * len(trial.clients))
    yield
    trial.manners.pause_s = 0
    redis(trial).server.ask("CONFIG", "SET", "timeout", "0")


@contextmanager
def redis_password(trial: Trial) -> Iterator[None]:
    """The password is another one, and back again."""
    server = redis(trial).server
    server.ask("ACL", "SETUSER", USER, "resetpass", ">another")
    server.ask("CLIENT", "KILL", "USER", USER)
    trial.work(100)
    yield
    server.ask("ACL", "SETUSER", USER, "resetpass", f">{PASSWORD}")


@contextmanager
def redis_rights(trial: Trial) -> Iterator[None]:
    """The user may no longer write."""
    server = redis(trial).server
    server.ask("ACL", "SETUSER", USER, "-@write", "-@scripting")
    trial.work(100)
    yield
    server.ask("ACL", "SETUSER", USER, "+@all")


@contextmanager
def redis_replica(trial: Trial) -> Iterator[None]:
    """The server becomes a replica, of a primary that is away: it keeps its data."""
    server = redis(trial).server
    server.ask("REPLICAOF", "127.0.0.1", str(free_port()))
    trial.work(100)
    yield
    server.ask("REPLICAOF", "NO", "ONE")


# -- shared memory ----------------------------------------------------------------------------


def shared(trial: Trial) -> SharedStore:
    assert isinstance(trial.store, SharedStore)
    return trial.store


@contextmanager
def file_removed(trial: Trial) -> Iterator[None]:
    """Somebody removes the files of the cache while it is in use."""
    for path in shared(trial).directory.iterdir():
        path.unlink()
    # All go on with the removed file until one has made another: then all leave it at once.
    while not data_path(shared(trial).location).exists() and not trial.judge.violations:
        trial.work(1)
    trial.work(REQUESTS_BETWEEN)
    yield


@contextmanager
def another_size(trial: Trial) -> Iterator[None]:
    """The site is restarted with another size."""
    store = shared(trial)
    trial.site.end()
    store.size = "16MB" if store.size == "32MB" else "32MB"
    trial.site.settings["caches"] = store.caches(trial.on_error)
    yield
    trial.site.start()


@contextmanager
def read_only(trial: Trial) -> Iterator[None]:
    """The file system of the cache may only be read, and workers are born."""
    store = shared(trial)
    mounted("--bind", str(store.memory), str(store.memory))
    mounted("-o", "remount,bind,ro", str(store.memory))
    try:
        for pid in trial.workers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        trial.work(REQUESTS_BETWEEN)
    finally:
        unmounted(store.memory)
    # Who was born there has the file as it was mounted then.
    for pid in trial.workers():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    yield


@contextmanager
def memory_full(trial: Trial) -> Iterator[None]:
    """The file system of the cache is full when workers start and the file is gone."""
    store = shared(trial)
    trial.site.end()
    data_path(store.location).unlink()
    filler = store.memory / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 65536)
    trial.site.start()
    trial.site.wait_ready((200, 500))
    trial.work(100)
    yield
    filler.unlink()


FAULTS: dict[str, Fault] = {
    "nothing": Fault(nothing),
    "kills": Fault(kills, excuses=RESTARTED, kills=True, stores=("redis", "shm", "small")),
    "freezes": Fault(
        freezes,
        excuses=RESTARTED | {"EngineUnavailable", "SessionsAway", "overlap of flights"},
        kills=True,
    ),
    "timeouts": Fault(
        timeouts,
        # Who waits for the lock of one who hangs may be killed as well; gunicorn says 500 then.
        excuses=RESTARTED | {"error of the server"},
        fits=lambda server: server.timeouts,
        kills=True,
        timeout_s=HUNG_AFTER_S,
        always=True,
    ),
    "descriptors-gone": Fault(descriptors_gone, excuses=NO_DESCRIPTORS, noisy=True),
    "memory-gone": Fault(
        memory_gone,
        excuses=NO_MEMORY,
        noisy=True,
        # What glibc keeps for threads, 64 MB each, is counted already, and would be used first.
        environment={"MALLOC_ARENA_MAX": "1"},
        # Whoever starts a thread then waits for ever for its first word, in CPython.
        hangs_if="Exception ignored in thread started by|can't start new thread",
        # So a worker hangs for good if its event loop was the one that waits.
        kills=True,
    ),
    "two-settings": Fault(two_settings),
    "two-versions": Fault(two_versions, ("redis",), UNREAD),
    "two-layouts": Fault(two_layouts, ("shm",)),
    "restarts": Fault(restarts, excuses=RESTARTED, kills=True),
    "interrupts": Fault(
        interrupts, fits=lambda server: server.main_thread or server.greenlets or server.tasks
    ),
    "disconnects": Fault(disconnects),
    "redis-killed": Fault(redis_killed, ("redis",), AWAY | EMPTY),
    "redis-emptied": Fault(redis_emptied, ("redis",), AWAY | EMPTY),
    "redis-flushed": Fault(redis_flushed, ("redis",), EMPTY),
    "redis-frozen": Fault(redis_frozen, ("redis",), AWAY | {"LockLost"}),
    "redis-full": Fault(redis_full, ("redis",), AWAY),
    "redis-client-kill": Fault(redis_client_kill, ("redis",), AWAY),
    "redis-timeout": Fault(redis_timeout, ("redis",)),
    "redis-password": Fault(redis_password, ("redis",), AWAY | {"EngineConfiguration"}),
    "redis-rights": Fault(redis_rights, ("redis",), AWAY | {"EngineConfiguration"}),
    "redis-replica": Fault(redis_replica, ("redis",), AWAY),
    "file-removed": Fault(file_removed, ("shm",), EMPTY),
    "another-size": Fault(another_size, ("shm",), STARTED_ANEW),
    "another-user": Fault(
        another_user,
        ("shm",),
        RESTARTED | {"RegionError", "SessionsAway", "taken for logged out", "older session"},
    ),
    "read-only": Fault(
        read_only, ("small",), AWAY | EMPTY | RESTARTED | {"RegionError"}, kills=True
    ),
    "memory-full": Fault(memory_full, ("small",), STARTED_ANEW | {"RegionError", "SessionsAway"}),
}
