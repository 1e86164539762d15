"""Every way a process or thread can end while it writes, other than a plain kill."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from subprocess import Popen
from textwrap import dedent
from typing import Any

import pytest

from nearcache.engines.shm import SUFFIX
from tests.torture.conftest import Start, line, owner_deaths

Run = Callable[..., str]

LARGE_WRITES = """
engine = open_cache().engine
value = bytes(engine.max_item_bytes - 100)
def write(name):
    while True:
        engine.set(name, value, None)
"""


def test_a_fork_storm_leaves_the_cache_whole(cache: Any, run: Run) -> None:
    code = """
    FORKS, AT_ONCE = 300, 16
    def child(number):
        for sequence in range(5):
            key = f"child{number}-{sequence}"
            cache.set(key, values.make(key, number, sequence, 5000))
            values.read("parent", cache.get("parent"))
            again(cache.engine.incr, b"counted", 1)
        os._exit(0)
    cache = open_cache()
    cache.set("parent", values.make("parent", 0, 0, 1000), None)
    cache.engine.set(b"counted", b"0", None)
    running, ended, killed = [], 0, 0
    for number in range(FORKS):
        pid = os.fork()
        if not pid:
            try:
                child(number)
            finally:
                os._exit(1)
        running.append(pid)
        if number % 5 == 0:
            time.sleep(random.random() * 0.005)  # until somewhere in its work
            os.kill(pid, signal.SIGKILL)
        while len(running) >= AT_ONCE or (number == FORKS - 1 and running):
            status = os.waitstatus_to_exitcode(os.waitpid(running.pop(0), 0)[1])
            assert status in (0, -signal.SIGKILL), status
            ended, killed = ended + (status == 0), killed + (status != 0)
    counted = int(cache.engine.get(b"counted"))
    assert 5 * ended <= counted <= 5 * ended + 5 * killed, (ended, killed, counted)
    for key in cache.keys("child*"):
        value = cache.get(key)
        if value is not None:
            values.read(key, value)
    print(cache.engine.stats()["processes"])
    """
    # The parent, and this process if it has looked already.
    assert run(code) in {"1", "2"}
    assert cache.check() == []


@pytest.fixture
def contender(start: Start) -> Popen[str]:
    """Keeps the lock busy: who finds it so waits for it, and then has it, without the GIL.

    Only then can another thread of that process execute a program or end the interpreter.
    """
    process = start(LARGE_WRITES + "print('writes', flush=True); write(b'contended')")
    assert line(process) == "writes"
    return process


@pytest.mark.parametrize("holder", ["main", "other"])
def test_exec_while_a_thread_holds_the_lock_lets_go_of_it(
    cache: Any, run: Run, holder: str
) -> None:
    # The next program has the process id, and so the thread id, of a main thread that held it.
    code = """
    engine = open_cache().engine
    def hold():
        while True:
            engine.check()  # nearly all of it under the lock, and without the GIL
    def execute():
        time.sleep(random.random() * 0.01)
        code = open("/proc/self/cmdline").read().split("\\0")[2]
        next = [sys.argv[1], str(int(sys.argv[2]) - 1), sys.argv[3]]
        os.execv(sys.executable, [sys.executable, "-c", code, *next])
    if sys.argv[2] == "0" or engine.stats()["owner_deaths"] >= 3:
        sys.exit()
    main, other = (hold, execute) if sys.argv[3] == "main" else (execute, hold)
    threading.Thread(target=other, daemon=True).start()
    main()
    """
    for number in range(5000):
        cache.engine.set(b"%d" % number, bytes(500), None)
    run(code, "100", holder)
    assert cache.engine.set(b"after", b"exec", None)
    assert owner_deaths(cache) > 0
    assert cache.check() == []


def test_threads_that_write_while_the_interpreter_ends_do_no_harm(
    cache: Any, run: Run, contender: Popen[str]
) -> None:
    code = """
    for name in (b"one", b"two", b"three"):
        threading.Thread(target=write, args=[name], daemon=True).start()
    time.sleep(0.01)
    """
    for _ in range(10):
        run(LARGE_WRITES + dedent(code))
    contender.kill()
    contender.wait()
    assert cache.engine.set(b"one", b"after", None)
    assert cache.check() == []


def test_openers_that_are_killed_while_they_make_the_file_leave_one_good_file(
    run: Run, memory_path: Path
) -> None:
    code = """
    def opener(base, number):
        cache = SharedMemoryCache(base, {"OPTIONS": {"size": "1MB"}})
        cache.set(f"opener{number}", number)
        os._exit(0)
    for attempt in range(50):
        base = f"{sys.argv[1]}{attempt}"
        pids = []
        for number in range(4):
            pid = os.fork()
            if not pid:
                try:
                    opener(base, number)
                finally:
                    os._exit(1)
            pids.append(pid)
        for pid in pids[:2]:
            time.sleep(random.random() * 0.004)  # until somewhere in its work
            os.kill(pid, signal.SIGKILL)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        assert codes[2:] == [0, 0], codes
        cache = SharedMemoryCache(base, {"OPTIONS": {"size": "1MB"}})
        for number, code in enumerate(codes):
            assert cache.get(f"opener{number}") in ({number} if code == 0 else {number, None})
        assert cache.check() == []
    """
    run(code)
    left = {path.name.partition(".")[2] for path in memory_path.iterdir()}
    assert left == {SUFFIX[1:], "lock", "owners"}


@pytest.mark.parametrize("deleted", [{".seg"}, {".seg", ".lock"}], ids=["data", "data and lock"])
def test_all_meet_again_in_one_file_after_it_was_deleted(
    cache: Any,
    start: Start,
    memory_path: Path,
    eventually: Callable[..., None],
    deleted: set[str],
) -> None:
    code = """
    cache, me, sequence = open_cache(), int(sys.argv[2]), 0
    print("on", flush=True)
    while True:
        sequence += 1
        for other in range(4):
            seen = cache.get(f"p{other}")
            if seen is not None:
                values.read(f"p{other}", seen)
        cache.set(f"p{me}", values.make(f"p{me}", me, sequence, 3000), None)
        time.sleep(0.001)
    """
    processes = [start(code, str(number)) for number in range(4)]
    assert [line(process) for process in processes] == ["on"] * 4

    def all_in_one_file_but(old: int) -> bool:
        if not data.exists() or data.stat().st_ino == old:
            return False
        seen = cache.get_many([f"p{number}" for number in range(4)])
        pids = [process.pid for process in processes]
        return len(seen) == 4 and {mapped_inode(pid, data) for pid in pids} == {data.stat().st_ino}

    data = Path(cache.engine.path)
    old = 0
    for _ in range(3):
        eventually(partial(all_in_one_file_but, old), 60)
        old = data.stat().st_ino
        for path in memory_path.iterdir():
            if path.suffix in deleted:
                path.unlink()
    eventually(partial(all_in_one_file_but, old), 60)
    assert all(process.poll() is None for process in processes)
    assert cache.check() == []


def mapped_inode(pid: int, path: Path) -> int:
    """The inode of the mapping made last under that name; old ones are never unmapped."""
    with open(f"/proc/{pid}/maps") as maps:
        rows = [row.split() for row in maps if str(path) in row and "(deleted)" not in row]
    return int(rows[-1][4]) if rows else 0
