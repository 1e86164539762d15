"""A lock is taken from a process that is gone, and never from one that cannot be looked at."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from nearcache import _core
from tests.faults.beside import HANGS_S, command, need_namespaces, run

LOCK, TTL_MS = b"lock", 600_000


def test_a_living_holder_keeps_its_lock_when_another_process_has_no_descriptor_left(
    store: _core.Store, base: Path
) -> None:
    assert store.lock_acquire(LOCK, TTL_MS)
    code = """
    store = opened()
    leave_no_descriptor()
    print(store.lock_acquire(LOCK, TTL_MS), store.lock_wait(LOCK, None, TTL_MS, 0)[0])
    """
    assert run(code, base) == "None None"


def test_a_living_holder_keeps_its_lock_when_proc_is_gone(store: _core.Store, base: Path) -> None:
    need_namespaces()
    assert store.lock_acquire(LOCK, TTL_MS)
    code = """
    store = opened()
    detach_proc()
    print(store.lock_acquire(LOCK, TTL_MS), store.lock_wait(LOCK, None, TTL_MS, 0)[0])
    """
    assert run(code, base) == "None None"


def test_the_lock_of_a_dead_holder_is_free_without_proc_as_well(
    store: _core.Store, base: Path
) -> None:
    need_namespaces()
    run("assert opened().lock_acquire(LOCK, TTL_MS)", base)
    code = """
    store = opened()
    detach_proc()
    print(store.lock_acquire(LOCK, TTL_MS) is not None)
    """
    assert run(code, base) == "True"


def test_a_lock_taken_by_a_child_without_a_descriptor_left_is_its_own(
    store: _core.Store, base: Path
) -> None:
    """It cannot read its own start time, by which others would know it."""
    code = """
    store = opened()
    told, tell = os.pipe()
    answer, reply = os.pipe()
    child = os.fork()
    if not child:
        store.get(b"k")  # a child of root's opens the file itself
        leave_no_descriptor()
        token = store.lock_acquire(LOCK, TTL_MS)
        ticket = store.lock_wait(b"other", None, TTL_MS, 0)[0]
        os.write(tell, b"taken" if token and ticket else b"refused")
        os.read(answer, 1)
        os._exit(0)
    os.close(tell)
    print(os.read(told, 10).decode(), flush=True)
    sys.stdin.readline()
    os.write(reply, b"x")
    os.waitpid(child, 0)
    print("ended", flush=True)
    sys.stdin.readline()
    """
    forker = subprocess.Popen(
        command(code, base), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert forker.stdin
    assert forker.stdout
    assert forker.stdout.readline() == "taken\n"
    assert store.lock_acquire(LOCK, TTL_MS) is None
    forker.stdin.write("\n")
    forker.stdin.flush()
    assert forker.stdout.readline() == "ended\n"
    assert store.lock_acquire(LOCK, TTL_MS)
    forker.communicate("\n", timeout=HANGS_S)


def test_a_child_without_a_descriptor_left_keeps_its_place_when_it_can_read_its_start_time(
    store: _core.Store, base: Path
) -> None:
    token = store.lock_acquire(LOCK, TTL_MS)
    assert token
    code = """
    store = opened()
    if os.fork():
        sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
    store.get(b"k")  # a child of root's opens the file itself
    leave_no_descriptor()
    ticket = store.lock_wait(LOCK, None, TTL_MS, 0)[1]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(store.lock_wait(LOCK, ticket, TTL_MS, 0)[1] == ticket, flush=True)
    """
    assert run(code, base) == "True"


def test_a_zombie_holds_nothing(store: _core.Store, base: Path) -> None:
    code = "assert opened().lock_acquire(LOCK, TTL_MS); os.kill(os.getpid(), 9)"
    holder = subprocess.Popen(command(code, base))
    os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
    assert store.lock_acquire(LOCK, TTL_MS)
    assert holder.wait() == -signal.SIGKILL


def test_without_proc_a_store_says_what_it_misses(base: Path) -> None:
    need_namespaces()
    code = """
    detach_proc()
    try:
        opened()
    except NearcacheError as error:
        print(type(error).__name__, error)
    """
    told = run(code, base)
    assert told.startswith("RegionError /proc/self/stat: cannot be read")
    assert "mount" in told
    assert list(base.parent.iterdir()) == []
