"""gevent copies the parent's greenlets into a forked child, and there they go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.needs import need_package

Run = Callable[..., str]
PATCHED = """
import gevent.monkey
gevent.monkey.patch_all()
"""
NATIVE = """
from gevent.monkey import get_original
from tests.raw_fork import c_fork

def a_reply_can_be_read():
    # While this waits no greenlet runs.
    poll = get_original("select", "poll")()
    for number in os.listdir("/proc/self/fd"):
        try:
            is_socket = os.readlink(f"/proc/self/fd/{number}").startswith("socket:")
        except FileNotFoundError:  # the directory itself
            continue
        if is_socket:
            poll.register(int(number), 1)
    return bool(poll.poll(10))
"""


@pytest.fixture(autouse=True)
def _gevent() -> None:
    need_package("gevent")


GET, CLIENT = "cache.get('asked')", "cache.client.echo('asked').decode()"
USE, SLEEP = "cache.get('own')", "gevent.sleep(0.001)"


@pytest.mark.parametrize(
    ("ask", "fork", "child_does"),
    [
        (GET, "os.fork", USE),
        (GET, "os.fork", SLEEP),
        (GET, "c_fork", USE),
        (GET, "c_fork", SLEEP),  # so the copy is the first who uses the cache in the child
        (CLIENT, "os.fork", USE),
        (CLIENT, "os.fork", SLEEP),
        (CLIENT, "c_fork", USE),
    ],
)
def test_a_copy_that_is_due_to_read_leaves_the_reply_to_its_parent(
    run: Run, redis_settings: dict[str, Any], ask: str, fork: str, child_does: str
) -> None:
    """The reply has come, and the loop has seen it, but the fork is a moment earlier."""
    run(
        redis_settings,
        NATIVE,
        first=PATCHED,
        then=f"""
        cache = configured()
        cache.set("asked", "asked", 600)
        {ask}  # connected
        while True:
            asked = gevent.spawn(lambda: {ask})
            while not (asked.ready() or a_reply_can_be_read()):
                gevent.sleep(0)
            if not asked.ready():  # the server may be so fast that nobody has to wait
                break
        gevent.sleep(1e-9)  # due in the same round of the loop; a timer goes first
        assert not asked.ready()
        def child():
            {child_does}
            check_everything(cache, "child", 20)
            assert not asked.successful()
        wait_for([in_child(child, {fork})])
        assert asked.get() == "asked"
        """,
    )


def test_greenlets_that_ask_all_the_time(run: Run, redis_settings: dict[str, Any]) -> None:
    run(
        redis_settings,
        """
        cache = configured()
        parent, over, asked = os.getpid(), [], []
        def ask(worker):
            number = 0
            while not over and os.getpid() == parent:
                key, value = f"own {worker} {number % 7}", value_of(worker, number)
                cache.set(key, value, 600)
                assert cache.get(key) == value
                number += 1
            asked.append(number)
        greenlets = [gevent.spawn(ask, worker) for worker in range(20)]
        for number in range(40):
            gevent.sleep(0.001 * (number % 10))
            wait_for([in_child(lambda: check_everything(cache, os.getpid(), 2), os.fork)])
        over.append(True)
        gevent.joinall(greenlets, raise_error=True)
        assert min(asked) > 0
        """,
        first=PATCHED,
    )
