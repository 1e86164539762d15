"""Somebody truncates the file under those who have it mapped: misses, and then a new file."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.faults.beside import HANGS_S, SIZE_BYTES, command, run

USE = """
import os, threading, time
store = opened()
inode = os.stat(store.path).st_ino
for number in range(300):
    store.set(b"k%d" % number, b"\\x80" + b"v" * 1000, None)
wrong = []
def use(count):
    for number in range(count):
        key = b"k%d" % (number % 300)
        if store.get(key) not in (None, b"\\x80" + b"v" * 1000):
            wrong.append(key)
        try:
            store.set(key, b"\\x80" + b"v" * 1000, None)
            store.delete(b"k%d" % ((number + 7) % 300))
            token = store.lock_acquire(b"l", 1000)
            token and store.lock_release(b"l", token)
            store.scan(0, 10), len(store), store.stats(), store.lock_epoch
        except NearcacheError:
            pass  # a lock was cut off while it was held
"""


@pytest.mark.parametrize("length", [0, 4096, 41 * 4096, SIZE_BYTES // 2, SIZE_BYTES - 4096])
def test_a_truncated_file_gives_misses_and_then_a_new_one(base: Path, length: int) -> None:
    code = f"""
    os.truncate(store.path, {length})
    use(300)
    while os.stat(store.path).st_ino == inode:
        use(1)
    other = opened()
    while not other.get(b"new"):
        store.set(b"new", b"\\x80v", None)
    print(wrong, os.path.getsize(store.path), other.check())
    """
    assert run(USE + "\n" + _dedent(code), base) == f"[] {SIZE_BYTES} []"


def test_threads_and_other_processes_live_through_a_truncation(base: Path) -> None:
    user = """
    threads = [threading.Thread(target=use, args=(3000,)) for _ in range(3)]
    [thread.start() for thread in threads]
    print("on", flush=True)
    os.truncate(store.path, int(sys.stdin.readline()))
    [thread.join() for thread in threads]
    while os.stat(store.path).st_ino == inode:
        use(1)
    print(wrong)
    """
    onlooker = """
    print("on", flush=True)
    sys.stdin.readline()
    while not (store.set(b"k", b"\\x80v", None) and store.get(b"k") == b"\\x80v"):
        pass
    print(wrong)
    """
    # The second user's truncation hits the new file, or the old one once more.
    beside = [started(code, base) for code in (user, user, onlooker)]
    for each in beside:
        assert each.stdout
        assert each.stdout.readline() == "on\n"
    ends = [each.communicate("200000\n", timeout=HANGS_S) for each in beside]
    assert [out for out, _ in ends] == ["[]\n"] * 3, ends


def started(code: str, base: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(USE + "\n" + _dedent(code), base),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _dedent(code: str) -> str:
    lines = code.splitlines()
    return "\n".join(line[4:] for line in lines)


ENDS_BY_SIGBUS = {
    "somebody sends it": "os.kill(os.getpid(), signal.SIGBUS)",
    "a mapping of somebody else's was truncated": """
file = open(sys.argv[1] + ".other", "w+b")
file.truncate(4096)
other = mmap.mmap(file.fileno(), 4096)
file.truncate(0)
other[0]
""",
}


@pytest.mark.parametrize("why", ENDS_BY_SIGBUS)
@pytest.mark.parametrize("before", ["", "import faulthandler; faulthandler.enable()"])
def test_a_bus_error_that_is_not_ours_ends_the_process_as_ever(
    base: Path, why: str, before: str
) -> None:
    code = f"import mmap, signal\n{before}\nstore = opened()\n{ENDS_BY_SIGBUS[why]}"
    done = subprocess.run(command(code, base), capture_output=True, check=False, timeout=HANGS_S)
    assert done.returncode == -signal.SIGBUS
    assert (b"Bus error" in done.stderr) == bool(before)


def test_a_handler_that_was_there_before_still_gets_what_is_not_ours(base: Path) -> None:
    code = """
    import signal
    signal.signal(signal.SIGBUS, lambda number, frame: print("theirs"))
    store = opened()
    os.truncate(store.path, 0)
    store.get(b"k")
    os.kill(os.getpid(), signal.SIGBUS)
    """
    assert run(code, base) == "theirs"
