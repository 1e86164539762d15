"""One generator serves a method and its ``a`` twin, errors and cancellation included."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from nearcache.base.clock import FakeClock
from nearcache.base.sans_io import Flow, Pause, Run, arun, ask, call, run, steps_of, twins


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


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


class Interrupted(Engine):
    def double(self, number: int) -> int:
        raise KeyboardInterrupt


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("engine", [Engine(), WaitingEngine(), Interrupted()])
def test_what_an_error_came_through_is_freed_with_it(engine: Engine) -> None:
    """A lease or a claim may be there, which is given back when nobody refers to it any more."""

    class Lease:
        pass

    leases: list[weakref.ref[Lease]] = []

    def flow() -> Flow[None]:
        lease = Lease()
        leases.append(weakref.ref(lease))
        yield ask("double", -1)

    with contextlib.suppress(ValueError, KeyboardInterrupt):
        run(flow(), engine, FakeClock(0))

    async def awaited() -> None:
        with contextlib.suppress(ValueError, KeyboardInterrupt):
            await arun(flow(), engine, FakeClock(0))

    asyncio.run(awaited())
    assert [each() for each in leases] == [None, None]


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


class FlowingEngine:
    """Its methods are flows themselves; ``steps`` is what they asked for."""

    native_async = True
    clock = FakeClock(0)

    def __init__(self) -> None:
        self.steps: list[str] = []

    @property
    def engine(self) -> FlowingEngine:
        return self

    def _triple(self, number: int) -> Flow[int]:
        return 3 * (yield call(self, "told", number))

    triple, atriple = twins(_triple)

    def told(self, number: int) -> int:
        self.steps.append("told")
        return number

    async def atold(self, number: int) -> int:
        self.steps.append("atold")
        return number


class Overridden(FlowingEngine):
    def triple(self, number: int) -> int:
        self.steps.append("own")
        return -number

    async def atriple(self, number: int) -> int:
        self.steps.append("own")
        return -number


class Around:
    """Hands everything on to the engine in it."""

    native_async = True

    def __init__(self, inside: FlowingEngine) -> None:
        self.inside = inside

    def __getattr__(self, name: str) -> Any:
        if name == "told":
            raise AssertionError("the steps are those of the engine inside")
        return getattr(self.inside, name)


class Ninefold(Host):
    def _ninefold(self, number: int) -> Flow[int]:
        once = yield from steps_of(self.engine, "triple", number)
        return int((yield from steps_of(self.engine, "triple", once)))

    ninefold, aninefold = twins(_ninefold)


@pytest.mark.parametrize("around", [lambda engine: engine, Around], ids=["itself", "around"])
def test_the_steps_of_an_engine_s_flow_are_the_caller_s(around: Any) -> None:
    engine = FlowingEngine()
    host = Ninefold(around(engine))
    assert host.ninefold(1) == 9
    assert asyncio.run(host.aninefold(1)) == 9
    assert engine.steps == ["told", "told", "atold", "atold"]


def test_a_method_that_is_no_flow_is_one_step() -> None:
    engine = Overridden()
    host = Ninefold(engine)
    assert host.ninefold(1) == asyncio.run(host.aninefold(1)) == 1
    assert engine.steps == ["own"] * 4


def test_twins_have_their_names_and_are_plain_functions() -> None:
    assert Host.quadruple.__qualname__ == "Host.quadruple"
    assert Host.aquadruple.__name__ == "aquadruple"
    assert Host(Engine()).quadruple.__func__ is Host.quadruple  # type: ignore[attr-defined]
