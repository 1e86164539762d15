"""``fork`` of the C library, as uWSGI and C code call it: Python is told nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., str]


def test_no_reply_is_another_workers(run: Run, cache_settings: dict[str, Any]) -> None:
    """The parent used the cache, so its connection is there to be shared."""
    run(
        cache_settings,
        """
        cache = configured()
        fill(cache, 4)
        wait_for([in_child(lambda: check_gets(cache, worker, 20_000)) for worker in range(4)])
        check_gets(cache, 0, 100)
        """,
    )


@pytest.mark.parametrize("fork", ["raw_fork", "os.fork"])
def test_every_kind_of_call(run: Run, cache_settings: dict[str, Any], fork: str) -> None:
    run(
        cache_settings,
        f"""
        cache = configured()
        check_everything(cache, "parent", 20)
        children = [in_child(lambda: check_everything(cache, w, 60), {fork}) for w in range(4)]
        wait_for(children)
        assert cache.get("sum") == 2 + 4 * 6
        """,
    )


@pytest.mark.parametrize("fork", ["raw_fork", "os.fork"])
def test_calls_of_coroutines(run: Run, cache_settings: dict[str, Any], fork: str) -> None:
    run(
        cache_settings,
        f"""
        cache = configured()
        asyncio.run(acheck_everything(cache, "parent", 20))
        work = lambda worker: asyncio.run(acheck_everything(cache, worker, 40))
        wait_for([in_child(lambda: work(worker), {fork}) for worker in range(4)])
        """,
    )


def test_a_child_of_a_child(run: Run, cache_settings: dict[str, Any]) -> None:
    """One that used the cache, and one that did not before it was forked itself."""
    run(
        cache_settings,
        """
        cache = configured()
        fill(cache, 4)
        def child(worker, uses):
            if uses:
                check_gets(cache, worker, 100)
            grandchild = in_child(lambda: check_gets(cache, worker + 1, 2000))
            check_gets(cache, worker, 2000)
            wait_for([grandchild])
        wait_for([in_child(lambda: child(0, True)), in_child(lambda: child(2, False))])
        """,
    )


def test_threads_of_a_child_that_notice_it_at_once(
    run: Run, cache_settings: dict[str, Any]
) -> None:
    run(
        cache_settings,
        """
        cache = configured()
        fill(cache, 8)
        check_lock(cache)
        def child():
            start = threading.Barrier(8)
            failed = []
            def work(worker):
                try:
                    start.wait()
                    check_gets(cache, worker, 100)
                    check_everything(cache, worker, 10)
                except BaseException as error:
                    failed.append(error)
                    raise
            threads = [threading.Thread(target=work, args=(worker,)) for worker in range(8)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            assert not failed
        for _ in range(10):
            wait_for([in_child(child)])
            cache.delete_many([f"count {worker}" for worker in range(8)])
        """,
    )


@pytest.mark.parametrize("fork", ["raw_fork", "os.fork"])
def test_a_fork_while_other_threads_sleep_inside_calls(
    run: Run, cache_settings: dict[str, Any], fork: str
) -> None:
    """Whatever they hold stays held in the child for ever."""
    run(
        cache_settings,
        f"""
        cache = configured()
        fill(cache, 8)
        begun, go_on, ends = threading.Event(), threading.Event(), []
        def compute():
            begun.set()
            go_on.wait()
            return "computed"
        def lead():
            ends.append(cache.get_or_set("slow", compute, 600))
        def take():
            with cache.lock("held", timeout=600, wait=600):
                ends.append("computed")
        held = cache.lock("held", timeout=600)
        held.acquire()
        threads = [threading.Thread(target=each) for each in (lead, lead, take)]
        for thread in threads: thread.start()
        begun.wait()
        def child(worker):
            check_gets(cache, worker, 300)
            check_everything(cache, worker, 20)
            assert not cache.lock("held", timeout=5).acquire(blocking=False)
            assert cache.get_or_set("slow", lambda: "mine", 600, wait=0) == "mine"
            cache.delete("slow")
        wait_for([in_child(lambda: child(worker), {fork}) for worker in (4, 5)])
        go_on.set()
        held.release()
        for thread in threads: thread.join()
        assert ends == ["computed"] * 3, ends
        """,
    )


@pytest.mark.parametrize("place", ["tcp", "unix", "shm"])
def test_no_call_imports_a_module(request: pytest.FixtureRequest, run: Run, place: str) -> None:
    """Whoever is forked while another thread imports waits for the lock of the import for ever."""
    settings = request.getfixturevalue("shm_settings" if place == "shm" else "redis_settings")
    if place == "tcp":
        # Nobody need listen: the name of a host is looked up before.
        settings = settings | {"LOCATION": "redis://127.0.0.1:1", "OPTIONS": {"on_error": "miss"}}
    run(
        settings,
        """
        import asyncio
        import logging
        import sys

        logging.disable()
        cache = configured()
        before = set(sys.modules)
        cache.get("key")
        cache.set("key", {"list": [1, 2.5, "x" * 100_000]})
        cache.get("key")
        cache.get_or_set("computed", lambda: 3)
        cache.set_many({"a": 1, "b": b"2"})
        cache.get_many(["a", "b"])
        cache.delete_many(["a", "b"])
        if "tcp" not in sys.argv:
            cache.set("count", 1)
            cache.incr("count")
            with cache.lock("name", timeout=60), cache.lock("other"):
                pass
            async def in_a_task():
                await cache.aset("key", 1)
                await cache.aget("key")
                async with cache.alock("name", timeout=60):
                    pass
            asyncio.run(in_a_task())
        assert set(sys.modules) == before, set(sys.modules) - before
        """,
        place,
    )
