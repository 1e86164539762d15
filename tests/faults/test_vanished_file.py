"""The file is removed under those who use it: by a logout (systemd's RemoveIPC), by hand."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nearcache import _core
from nearcache.backends import SharedMemoryCache
from nearcache.errors import LockLost, LockNotAcquired
from tests.faults.beside import HANGS_S, command, run

Eventually = Callable[..., None]


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """Where the room of a file costs time when it is taken."""
    parent = Path("/dev/shm")
    if not parent.is_dir() or shutil.disk_usage(parent).free < 1 << 30:
        pytest.skip("no gigabyte of memory is free in /dev/shm")
    directory = Path(tempfile.mkdtemp(dir=parent))
    yield directory / "cache"
    shutil.rmtree(directory)


def test_nobody_makes_the_new_file_in_the_middle_of_a_get(in_memory: Path) -> None:
    """By the processor's time of the threads, which does not depend on what else runs."""
    code = """
    import os, time
    store = _core.Store(sys.argv[1], size_bytes=256 << 20)
    os.unlink(store.path)
    before_s, longest_s = time.process_time() - time.thread_time(), 0
    while not os.path.exists(store.path):
        began_s = time.thread_time()
        store.get(b"k")
        longest_s = max(longest_s, time.thread_time() - began_s)
        time.sleep(0.001)
    making_s = time.process_time() - time.thread_time() - before_s
    print(longest_s < making_s / 2 or (longest_s, making_s))
    """
    assert run(code, in_memory) == "True"


def test_a_file_that_was_left_is_given_back_while_threads_use_the_store(base: Path) -> None:
    code = """
    import os, threading, time
    store = opened()
    done = False
    wrong = []
    def use(number):
        value = b"\\x80" + bytes([number]) * 5000
        while not done:
            store.set(b"k%d" % number, value, None)
            if store.get(b"k%d" % number) not in (value, None):
                wrong.append(number)
            store.lock_release(b"l", store.lock_acquire(b"l", 1000) or 0)
    threads = [threading.Thread(target=use, args=(number,)) for number in range(3)]
    [thread.start() for thread in threads]
    def maps():
        return open("/proc/self/maps").read()
    def left():
        fds = [os.readlink("/proc/self/fd/" + fd) for fd in os.listdir("/proc/self/fd")
               if os.path.islink("/proc/self/fd/" + fd)]
        return maps().count(sys.argv[1]), sum(fd.startswith(sys.argv[1]) for fd in fds)
    before = left()
    for _ in range(2):
        for name in (store.path, sys.argv[1] + ".lock"):
            os.unlink(name)
        # The old file is "(deleted)" among the mappings until it is given back.
        while not os.path.exists(store.path) or store.path + " (deleted)" in maps():
            time.sleep(0.01)
        while left() != before:
            time.sleep(0.1)
    done = True
    [thread.join() for thread in threads]
    print(wrong, store.check())
    """
    assert run(code, base) == "[] []"


@pytest.mark.parametrize("timeout", [None, 3600])
def test_a_lock_in_a_file_that_is_gone_is_lost(
    private_path: Path, eventually: Eventually, timeout: int | None
) -> None:
    cache: Any = SharedMemoryCache(str(private_path / "cache"), {"OPTIONS": {"size": "1MB"}})
    lock = cache.lock("job", timeout=timeout)
    assert lock.acquire()
    lock.check()
    Path(cache.engine.path).unlink()
    eventually(lambda: lock.lost)
    with pytest.raises(LockLost):
        lock.check()
    with cache.lock("job", wait=60):
        pass
    assert cache.stats()["locks_lost"] == 1


def test_a_lock_in_a_file_that_stays_is_not_lost(private_path: Path) -> None:
    cache: Any = SharedMemoryCache(str(private_path / "cache"), {"OPTIONS": {"size": "1MB"}})
    with cache.lock("job", timeout=None) as lock:
        run("opened().get(b'k')", private_path / "cache")
        lock.check()
        with pytest.raises(LockNotAcquired), cache.lock("job", wait=0):
            pass
    assert cache.stats()["locks_lost"] == 0


def test_a_child_goes_over_to_the_new_file_as_its_parent_does(base: Path) -> None:
    code = """
    import time
    store = opened()
    os.unlink(store.path)
    before = store.lock_epoch
    while store.lock_epoch == before:
        time.sleep(0.001)
    # A thread has begun to make it.
    child = os.fork()
    if not child:
        while store.get(b"k") != b"\\x80parent":
            time.sleep(0.001)
        os._exit(0)
    while True:
        store.set(b"k", b"\\x80parent", None)
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.001)
    print(status)
    """
    assert run(code, base) == "0"


def test_a_clock_that_was_set_back_hides_no_vanished_file(base: Path, shifted_clock: Path) -> None:
    """The next look was due an hour later by then."""
    code = """
    import time
    store = opened()
    os.unlink(store.path)
    os.environ["WALL_CLOCK_SHIFT_S"] = "0"
    while not os.path.exists(store.path):
        store.get(b"k")
        time.sleep(0.001)
    print("made")
    """
    shift = {"LD_PRELOAD": str(shifted_clock), "WALL_CLOCK_SHIFT_S": "3600"}
    assert run(code, base, **shift) == "made"


WATCH = """
import time
store = opened()
print("on", flush=True)
last_old = first_new = None
while not first_new:
    began = time.monotonic_ns()
    if store.get(b"k") == b"\\x80old":
        last_old = began
    else:
        first_new = time.monotonic_ns()
print(last_old, first_new, any(store.get(b"k") for _ in range(1000)))
"""


def test_nobody_is_answered_from_the_old_file_once_anybody_is_from_the_new_one(
    store: _core.Store, base: Path
) -> None:
    store.set(b"k", b"\x80old", None)
    users = [
        subprocess.Popen(command(WATCH, base), stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    for user in users:
        assert user.stdout
        assert user.stdout.readline() == "on\n"
    for path in base.parent.iterdir():
        path.unlink()
    told = [user.communicate(timeout=HANGS_S)[0].split() for user in users]
    assert [again for _, _, again in told] == ["False"] * 3
    # What began before may end later.
    assert max(int(old) for old, _, _ in told) < min(int(new) for _, new, _ in told)
    assert store.get(b"k") is None
