"""Containers that share a directory and not a PID namespace: a process id of one means nothing,
or another process, in the other. A file is used in one namespace at a time.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nearcache import _core
from nearcache.errors import RegionError
from tests.faults.beside import HANGS_S, SIZE_BYTES, command, need_namespaces, run

Eventually = Callable[..., None]

CONTAINER = "--pid --fork --kill-child --mount-proc"
"""A PID namespace of its own, with the ``/proc`` that belongs to it."""
LOCK, TTL_MS = b"lock", 600_000

OPEN = """
try:
    store = opened()
    print(store.created, store.get(b"k"), store.lock_acquire(LOCK, TTL_MS) is not None)
except NearcacheError as error:
    print(type(error).__name__, error)
"""
HOLD = """
store = opened()
store.set(b"k", b"\\x80v", None)
held = store.lock_acquire(LOCK, TTL_MS)
print(os.getpid(), held is not None, flush=True)
for line in sys.stdin:
    print(store.lock_renew(LOCK, held, TTL_MS), store.get(b"k"), store.check(), flush=True)
"""


@pytest.fixture(autouse=True)
def _namespaces() -> None:
    need_namespaces(CONTAINER)


@contextmanager
def holder(
    base: Path, unshare: str = CONTAINER, code: str = HOLD
) -> Iterator[subprocess.Popen[str]]:
    """A process of a container, with a value and a lock in the store."""
    process = subprocess.Popen(
        command(code, base, mount=":", unshare=unshare),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout
        assert process.stdout.readline() == "1 True\n"
        try:
            yield process
        finally:
            process.kill()


def asked(process: subprocess.Popen[str]) -> str:
    assert process.stdin
    assert process.stdout
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def refused(told: str) -> bool:
    wanted = ("RegionError", "--pid=container:", "shareProcessNamespace", "LOCATION")
    return all(each in told for each in wanted)


def test_a_second_container_is_refused_and_the_first_keeps_its_lock(base: Path) -> None:
    with holder(base) as first:
        # Its process is number 1 there, too.
        assert refused(run(OPEN, base, mount=":", unshare=CONTAINER))
        with pytest.raises(RegionError, match="another container"):
            _core.Store(str(base), size_bytes=SIZE_BYTES)
        assert asked(first) == "True b'\\x80v' []"


def test_a_container_is_refused_by_the_host_and_takes_no_lock_of_it(
    store: _core.Store, base: Path
) -> None:
    token = store.lock_acquire(LOCK, TTL_MS)
    store.set(b"k", b"\x80v", None)
    assert token
    assert refused(run(OPEN, base, mount=":", unshare=CONTAINER))
    assert store.lock_renew(LOCK, token, TTL_MS)
    assert store.get(b"k") == b"\x80v"
    assert store.check() == []


def test_what_a_container_held_that_was_killed_is_free_and_its_values_are_there(
    base: Path,
) -> None:
    with holder(base) as first:
        first.send_signal(signal.SIGKILL)
        first.wait(HANGS_S)
        assert run(OPEN, base, mount=":", unshare=CONTAINER) == "False b'\\x80v' True"
    assert run(OPEN, base) == "False b'\\x80v' True"


def test_containers_in_one_namespace_share(base: Path) -> None:
    with holder(base) as first:
        inside = ["nsenter", "--target", str(child_of(first.pid)), "--pid", "--mount"]
        beside = [*inside, *command(OPEN, base)]
        done = subprocess.run(beside, capture_output=True, text=True, check=True, timeout=HANGS_S)
        assert done.stdout.strip() == "False b'\\x80v' False"
        assert asked(first) == "True b'\\x80v' []"


def child_of(pid: int) -> int:
    """``unshare`` forks, and its child is the first process of the namespace."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


FORKED = """
import signal
CLONE_NEWPID = 0x20000000
store = opened()
store.set(b"k", b"\\x80v", None)
held = store.lock_acquire(LOCK, TTL_MS)
assert ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWPID) == 0
child = os.fork()
if not child:
    assert os.getpid() == 1
    for use in (lambda: store.lock_acquire(LOCK, TTL_MS), lambda: store.get(b"k"),
                lambda: store.set(b"k", b"\\x80w", None), lambda: store.delete(b"k")):
        try:
            print("used:", use(), flush=True)
        except NearcacheError as error:
            print(type(error).__name__, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(store.lock_renew(LOCK, held, TTL_MS), store.get(b"k"), store.check())
"""


def test_a_child_in_a_namespace_of_its_own_uses_nothing_of_its_parent_s(base: Path) -> None:
    """It would take all other processes for dead."""
    told = run(FORKED, base).splitlines()
    assert told == ["RegionError"] * 4 + ["True b'\\x80v' []"]


def test_a_proc_of_another_namespace_is_refused(base: Path) -> None:
    without_its_proc = CONTAINER.replace(" --mount-proc", "")
    told = run(OPEN, base, mount=":", unshare=without_its_proc)
    assert told.startswith("RegionError")
    assert "mount the /proc of this PID namespace" in told


def test_a_container_is_refused_after_the_lock_file_was_removed(
    store: _core.Store, base: Path, eventually: Eventually
) -> None:
    token = store.lock_acquire(LOCK, TTL_MS)
    store.set(b"k", b"\x80v", None)
    assert token
    lock_file = Path(f"{base}.lock")
    lock_file.unlink()
    eventually(lambda: store.get(b"k") == b"\x80v" and lock_file.exists())
    assert refused(run(OPEN, base, mount=":", unshare=CONTAINER))
    assert store.lock_renew(LOCK, token, TTL_MS)


def test_a_process_whose_descriptors_were_closed_is_seen_again(base: Path) -> None:
    """By a daemon, as it begins."""
    code = """
store = opened()
store.set(b"k", b"\\x80v", None)
os.closerange(3, 100)
def seen():
    links = [os.path.join("/proc/self/fd", each) for each in os.listdir("/proc/self/fd")]
    return any(os.path.exists(each) and os.readlink(each).endswith(".lock") for each in links)
while not seen():
    store.get(b"k")
print(os.getpid(), True, flush=True)
sys.stdin.read()
"""
    with holder(base, code=code):
        assert refused(run(OPEN, base))


def test_a_process_that_looks_too_late_uses_nothing_of_the_container_that_came(
    store: _core.Store, base: Path, eventually: Eventually
) -> None:
    """The lock file was removed, and another process made it again and ended."""
    store.set(b"k", b"\x80v", None)
    Path(f"{base}.lock").unlink()
    assert run(OPEN, base) == "False b'\\x80v' True"
    with holder(base) as first:

        def is_refused() -> bool:
            try:
                store.get(b"k")
            except RegionError as error:
                return "another container" in str(error)
            return False

        eventually(is_refused)
        with pytest.raises(RegionError, match="another container"):
            store.lock_acquire(LOCK, TTL_MS)
        assert asked(first) == "True b'\\x80v' []"
