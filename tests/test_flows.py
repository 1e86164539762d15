"""One generator serves a method and its ``a`` twin, errors and cancellation included."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nearcache.clock import FakeClock
from nearcache.flows import Flow, Pause, Run, ask, twins


class Engine:
    native_async = False

    def double(self, number: int) -> int:
        if number < 0:
            raise ValueError("negative")
        return 2 * number


class WaitingEngine(Engine):
    native_async = True

    async def adouble(self, number: int) -> int:
        await asyncio.sleep(0)
        return Engine.double(self, number) + 1000


class Host:
    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.clock = FakeClock(0)
        self.left = False

    def _quadruple(self, number: int, more: int = 0) -> Flow[int]:
        """Doubles twice."""
        try:
            once = yield ask("double", number)
            yield Pause(3)
            twice = yield ask("double", once)
            return int(twice + (yield Run(lambda: more)))
        finally:
            self.left = True

    quadruple, aquadruple = twins(_quadruple)


@pytest.mark.parametrize(("engine", "expected"), [(Engine(), 21), (WaitingEngine(), 3021)])
def test_the_same_steps_run_as_calls_and_awaited(engine: Engine, expected: int) -> None:
    host = Host(engine)
    assert host.quadruple(5, more=1) == 21
    assert asyncio.run(host.aquadruple(5, more=1)) == expected
    assert host.clock.monotonic_s() == 6


def test_an_error_of_a_step_is_raised_inside_the_flow() -> None:
    host = Host(Engine())
    with pytest.raises(ValueError, match="negative"):
        host.quadruple(-1)
    assert host.left


def test_a_cancelled_flow_leaves_by_its_finally() -> None:
    host = Host(WaitingEngine())

    async def cancelled() -> None:
        task = asyncio.create_task(host.aquadruple(1))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert host.left


def test_twins_have_their_names_and_are_plain_functions() -> None:
    assert Host.quadruple.__qualname__ == "Host.quadruple"
    assert Host.aquadruple.__name__ == "aquadruple"
    assert Host(Engine()).quadruple.__func__ is Host.quadruple  # type: ignore[attr-defined]
