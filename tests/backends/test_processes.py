"""What happens between processes: forks, restarts, kills, threads, greenlets, tasks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from nearcache.backends import SharedMemoryCache

Eventually = Callable[..., None]

PRELUDE = """
import os, sys, time
from django.conf import settings
settings.configure(CACHES={"default": {
    "BACKEND": "nearcache.backends.SharedMemoryCache",
    "LOCATION": sys.argv[1],
    "OPTIONS": {"size": "4MB"},
}})
from django.core.cache import cache, caches
from nearcache.errors import EngineBusy
def incr(key):
    while True:
        try:
            return cache.incr(key)
        except EngineBusy:  # nothing was added: somebody was stopped inside
            pass
def set_surely(key, value):
    while cache.get(key) != value:
        cache.set(key, value)  # is dropped where somebody was stopped inside
"""


def start(code: str, location: str, before: str = "") -> subprocess.Popen[str]:
    """A process with ``cache`` on that location; ``before`` runs before anything is imported."""
    script = before + PRELUDE + textwrap.dedent(code)
    return subprocess.Popen(
        [sys.executable, "-c", script, location],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(code: str, location: str, before: str = "") -> str:
    """What the process printed; it must end well."""
    process = start(code, location, before)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out.strip()


def line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline().strip()


@pytest.fixture
def location(private_path: Path) -> str:
    return str(private_path / "cache")


@pytest.fixture
def cache(location: str) -> Any:
    return SharedMemoryCache(location, {"OPTIONS": {"size": "4MB"}})


def test_another_process_sees_what_this_one_sets(cache: Any, location: str) -> None:
    cache.set("k", ("from", "here"))
    assert run("print(cache.get('k')); cache.set('k', 'from there')", location) == (
        "('from', 'here')"
    )
    assert cache.get("k") == "from there"


def test_the_cache_is_warm_after_all_processes_ended(location: str) -> None:
    run("cache.set('k', 'warm', None)", location)
    assert run("print(cache.get('k'))", location) == "warm"


def test_the_cache_is_warm_after_a_kill(location: str) -> None:
    process = start("cache.set('k', 'warm'); print('set', flush=True); time.sleep(60)", location)
    assert line(process.stdout) == "set"
    process.kill()
    process.communicate()
    assert run("print(cache.get('k')); print(cache.check())", location) == "warm\n[]"


def test_looking_from_outside_leaves_a_cache_of_any_sizes_as_it_is(private_path: Path) -> None:
    location = str(private_path / "tuned")
    code = """
    from nearcache.backends import SharedMemoryCache
    cache = SharedMemoryCache(sys.argv[1], {"OPTIONS": {
        "size": "3MB", "max_item": "50KB", "mean_item": 100}})
    cache.get("k", "cold") and print(cache.get("k", "cold"))
    cache.set("k", "warm")
    """
    run(code, location)
    look = [sys.executable, "-m", "nearcache", "shm", "stats", location]
    assert subprocess.run(look, capture_output=True, check=False).returncode == 0
    assert run(code, location) == "warm"


def test_a_cache_used_before_a_fork_works_after_it(location: str) -> None:
    code = """
    cache.set("before", 1)
    children = []
    for i in range(4):
        pid = os.fork()
        if not pid:
            assert cache.get("before") >= 1
            for _ in range(500):
                incr("before")
            set_surely(f"child{i}", i)
            os._exit(0)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 4
    print(cache.get("before"), sorted(cache.get_many(f"child{i}" for i in range(4)).values()))
    print(cache.check())
    """
    assert run(code, location) == "2001 [0, 1, 2, 3]\n[]"


def test_forking_while_threads_use_the_cache_does_not_hang(location: str) -> None:
    code = """
    # Neither Python's import lock nor that of Django's `caches` survives such a fork, so
    # everything is imported before, and the threads use a backend object each.
    import threading
    from nearcache.backends import SharedMemoryCache
    def make():
        return SharedMemoryCache(sys.argv[1], {"OPTIONS": {"size": "4MB"}})
    make().set("imported", True)
    stop = False
    def work(n):
        mine = make()
        while not stop:
            mine.set(f"t{n}", "x" * 500)
            mine.get(f"t{n}")
    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    [t.start() for t in threads]
    for _ in range(20):
        pid = os.fork()
        if not pid:
            make().set("child", os.getpid())
            make().get("child")
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    stop = True
    [t.join() for t in threads]
    print(make().check())
    """
    before = "import warnings; warnings.simplefilter('ignore')\n"  # 3.12 warns of such forks
    assert run(code, location, before) == "[]"


def test_processes_and_threads_lose_no_increment(cache: Any, location: str) -> None:
    cache.set("n", 0)
    code = """
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: [incr("n") for _ in range(300)], range(3)))
    """
    processes = [start(code, location) for _ in range(3)]
    assert [process.communicate(timeout=120)[1] for process in processes] == [""] * 3
    assert cache.get("n") == 2700


def test_get_or_set_computes_once_among_four_processes(cache: Any, location: str) -> None:
    code = """
    def compute():
        incr("computed")
        time.sleep(0.05)
        return "value"
    print("ready", flush=True)
    input()
    print(cache.get_or_set("k", compute))
    """
    cache.set("computed", 0)
    processes = [start(code, location) for _ in range(4)]
    for process in processes:
        assert line(process.stdout) == "ready"
    for process in processes:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.communicate(timeout=120)[0].strip() for process in processes] == ["value"] * 4
    assert cache.get("computed") == 1


def test_a_killed_lock_holder_frees_its_lock_at_once(cache: Any, location: str) -> None:
    holder = start(
        "cache.lock('job', timeout=3600).acquire(); print('held', flush=True); input()", location
    )
    assert line(holder.stdout) == "held"
    assert not cache.lock("job").acquire(blocking=False)
    holder.kill()
    holder.communicate()
    with cache.lock("job", blocking_timeout=60) as lock:
        assert lock.token


def test_a_killed_computation_is_taken_over(cache: Any, location: str) -> None:
    code = """
    def compute():
        print("computing", flush=True)
        input()
    cache.get_or_set("k", compute)
    """
    leader = start(code, location)
    assert line(leader.stdout) == "computing"
    follower = start("print(cache.get_or_set('k', lambda: 'mine'))", location)
    leader.kill()
    leader.communicate()
    assert follower.communicate(timeout=120)[0].strip() == "mine"


def test_a_frozen_process_does_not_stop_the_others(
    cache: Any, location: str, eventually: Eventually
) -> None:
    code = "print('on', flush=True)\nwhile True: cache.set('busy', 'x' * 5000); cache.get('busy')"
    frozen = start(code, location)
    assert line(frozen.stdout) == "on"
    os.kill(frozen.pid, signal.SIGSTOP)
    try:
        cache.set("k", 1)
        assert cache.get("k") in (1, None)
        eventually(lambda: not cache.delete("k"))
        assert cache.get("k") is None
    finally:
        frozen.kill()
        frozen.communicate()
    assert cache.check() == []


def test_two_aliases_of_one_location_are_one_cache(location: str) -> None:
    code = """
    from django.test import override_settings
    first = settings.CACHES["default"]
    second = {**first, "KEY_PREFIX": "p:*", "TIMEOUT": None}
    with override_settings(CACHES={"default": first, "second": second}):
        caches["second"].set("k", "second")
        caches["default"].set("k", "first")
        print(caches["second"].get("k"), caches["default"].get("k"))
        print(caches["default"].engine is caches["second"].engine, caches["second"].keys())
    """
    assert run(code, location) == "second first\nTrue ['k']"


def test_greenlets_share_the_cache_and_its_locks(location: str) -> None:
    before = "from gevent import monkey; monkey.patch_all()\n"
    code = """
    import gevent
    cache.set("n", 0)
    computed, inside = [], []
    def compute():
        computed.append(1)
        gevent.sleep(0.02)
        return "value"
    def work(i):
        for _ in range(50):
            cache.incr("n")
            gevent.sleep(0)
        with cache.lock("job"):
            inside.append(i)
            gevent.sleep(0.001)
            assert inside.pop() == i
        return cache.get_or_set("k", compute)
    jobs = [gevent.spawn(work, i) for i in range(20)]
    gevent.joinall(jobs, raise_error=True)
    print({job.value for job in jobs}, len(computed), cache.get("n"))
    """
    assert run(code, location, before) == "{'value'} 1 1000"


def test_tasks_share_the_cache_without_threads(location: str) -> None:
    code = """
    import asyncio, threading
    async def work(i):
        for _ in range(50):
            await cache.aincr("n")
        async with cache.lock("job"):
            await asyncio.sleep(0.001)
        return await cache.aget_or_set("k", lambda: "value")
    async def main():
        await cache.aset("n", 0)
        values = await asyncio.gather(*(work(i) for i in range(20)))
        threads = {each.name for each in threading.enumerate()} - {"nearcache-leases"}
        print(set(values), await cache.aget("n"), threads)
    asyncio.run(main())
    """
    assert run(code, location) == "{'value'} 1000 {'MainThread'}"


def test_without_settings_the_cache_has_its_place_and_works() -> None:
    code = """
    from nearcache.backends import SharedMemoryCache
    from nearcache.engines import shm
    import tempfile, pathlib
    home = pathlib.Path(tempfile.mkdtemp())
    shm.TMPFS = str(home)
    settings.BASE_DIR = home  # which tells the project, as there is no settings module
    cache = SharedMemoryCache("", {})
    cache.set("k", 1)
    print(cache.get("k"), oct((home / f"nearcache-{os.geteuid()}").stat().st_mode)[-3:])
    import shutil; shutil.rmtree(home)
    """
    assert run(code, "/unused/by/this") == "1 700"


@pytest.mark.parametrize(
    ("prepare", "options", "message"),
    [
        (lambda path: path.chmod(0o755), {}, "chmod 700"),
        (lambda path: path.chmod(0o1777), {}, "set LOCATION to"),
        (lambda path: path.rmdir(), {"size": "900GB"}, "size"),
        (lambda path: (path.rmdir(), path.write_text("")), {}, "directory"),
        (lambda path: None, {"max_item": "100MB"}, "max_item is too large"),
        pytest.param(
            lambda path: os.chown(path, 4711, -1),
            {},
            "belongs to user 4711",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away"),
        ),
    ],
    ids=[
        "open to others",
        "for all, as /dev/shm",
        "no room",
        "a file for a directory",
        "sizes that do not fit",
        "foreign",
    ],
)
def test_a_place_that_cannot_be_used_is_one_clear_error(
    private_path: Path, prepare: Callable[[Path], object], options: dict[str, str], message: str
) -> None:
    directory = private_path / "place"
    directory.mkdir(mode=0o700)
    prepare(directory)
    cache = SharedMemoryCache(str(directory / "cache"), {"OPTIONS": {"size": "4MB", **options}})
    with pytest.raises(Exception, match=message) as caught:
        cache.get("k")
    assert type(caught.value).__name__ in {"RegionError", "RegionFull"}
    left = list(directory.glob("*.seg*")) if directory.is_dir() else []
    assert left == []
