"""The holder of a lock renews it for another time while the renewer renews it for the old one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nearcache import _core
from nearcache.coordination.locks import Lock
from nearcache.errors import ReplyTimeout
from tests.redis.servers import wait_for

SHORT_S, LONG_S = 0.9, 1000.0


class Between:
    """A store that has something done between its answer to the holder and the holder."""

    def __init__(self, store: Any, before_the_answer: Callable[[], None]) -> None:
        self._store = store
        self._before_the_answer = before_the_answer
        self.kept: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def lock_renew(self, name: bytes, token: int, ttl_ms: int) -> bool:
        held = self._store.lock_renew(name, token, ttl_ms)
        if threading.current_thread() is threading.main_thread():
            self._before_the_answer()
        else:
            self.kept.append(ttl_ms)
        return bool(held)


@pytest.fixture
def store(tmp_path: Path) -> Any:
    return _core.Store(str(tmp_path / "locks"), size_bytes=1 << 20)


def pass_short_time(store: Any) -> None:
    """Until a lock of that time, which nobody renews, is over."""
    witness = Lock(store, b"witness", timeout_s=SHORT_S, auto_renew=False)
    witness.acquire()
    wait_for(lambda: witness.lost)


def test_a_time_that_the_keeper_may_have_shortened_is_not_believed(store: Any) -> None:
    engine = Between(store, lambda: wait_for(lambda: engine.kept))
    lock = Lock(engine, b"job", timeout_s=SHORT_S)
    lock.acquire()
    lock.renew(LONG_S)  # the renewer's renewal came to the store after this one
    assert lock._lease is not None
    assert lock._lease.left_s < LONG_S - 1 or engine.kept[-1] == LONG_S * 1000
    wait_for(lambda: engine.kept[-1] == LONG_S * 1000)
    wait_for(lambda: lock._lease is not None and lock._lease.left_s > SHORT_S)
    pass_short_time(store)
    assert not lock.lost
    assert not Lock(store, b"job").acquire(blocking=False)


class Stop(BaseException): ...


@pytest.mark.parametrize("error", [ReplyTimeout("lost on its way"), Stop()], ids=["lost", "killed"])
def test_a_time_that_nobody_answered_for_is_made_sure_of(store: Any, error: BaseException) -> None:
    def lose_it() -> None:
        raise error

    engine = Between(store, lose_it)
    lock = Lock(engine, b"job", timeout_s=LONG_S)
    lock.acquire()
    with pytest.raises(type(error)):
        lock.renew(SHORT_S)  # it was carried out
    wait_for(lambda: engine.kept == [LONG_S * 1000])
    pass_short_time(store)
    assert not lock.lost
    assert not Lock(store, b"job").acquire(blocking=False)


def test_a_renewal_that_fails_by_a_bug_is_not_tried_without_a_pause(store: Any) -> None:
    class Bug(Between):
        def lock_renew(self, *_: Any) -> bool:
            self.kept.append(0)
            raise ZeroDivisionError

    engine = Bug(store, lambda: None)
    lock = Lock(engine, b"job", timeout_s=0.3)
    lock.acquire()
    wait_for(lambda: engine.kept)
    wait_for(lambda: lock.lost)
    assert len(engine.kept) <= 3
