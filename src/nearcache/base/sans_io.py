"""Written once, run twice: the same steps as plain calls, or awaited.

A *flow* is a generator. It yields a step, which others do for it, and receives the outcome. A step
is a method of an engine (:func:`ask`) or of another object (:func:`call`), a pause
(:class:`Pause`), or any function (:class:`Run`). A flow does no I/O itself, so one text serves
``get`` and ``aget``::

    def _move(self, old, new):
        raw = yield ask("get", old)
        ...

    move, amove = twins(_move)

A flow may catch errors, and go on with further steps. After what is no Exception (a killed
greenlet, GeneratorExit) it cleans up, and yields no step.

An engine that waits for a network has ``native_async``, and an ``a`` twin of each method. The
methods of any other engine take microseconds, so awaited flows call them straight, too.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Generator
from types import CoroutineType
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from nearcache.base.clock import Clock

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="Host")


class Ask(NamedTuple):
    """Call this method of the engine."""

    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class MethodCall(NamedTuple):
    """Call this method of that object, which has an ``a`` twin of it."""

    target: Any
    method: str
    args: tuple[Any, ...]


class Pause(NamedTuple):
    """Wait for so long, and let others run."""

    seconds: float


class Run(NamedTuple):
    """Call this function. In an awaited flow its result may be awaitable."""

    function: Callable[[], Any]


Step = Ask | MethodCall | Pause | Run
Flow = Generator[Step, Any, R]


class Host(Protocol):
    """An object that has flows; ``engine`` is None if they ask none."""

    @property
    def clock(self) -> Any: ...

    @property
    def engine(self) -> Any: ...


# The constructors of named tuples are Python. A lock has several steps, so they are passed by.
_made = tuple.__new__


def ask(method: str, *args: Any, **kwargs: Any) -> Ask:
    return _made(Ask, (method, args, kwargs))


def call(target: Any, method: str, *args: Any) -> MethodCall:
    return _made(MethodCall, (target, method, args))


def steps_of(engine: Any, method: str, *args: Any) -> Flow[Any]:
    """The steps of an engine's method, to be a part of another flow of that engine.

    If :func:`twins` made the method, these are the steps of its flow: no run goes on inside a run.
    """
    bound = getattr(engine, method)
    flow = getattr(bound, "flow", None)
    return _one_step(ask(method, *args)) if flow is None else flow(bound.__self__, *args)


def _one_step(step: Step) -> Flow[Any]:
    return (yield step)


def run(flow: Flow[R], engine: Any, clock: Clock) -> R:
    """The flow's result; its steps are plain calls."""
    act: Callable[[Any], Any] = flow.send
    outcome: Any = None
    try:
        while True:
            try:
                step = act(outcome)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            try:
                if isinstance(step, MethodCall):  # most steps are; another function would be dear
                    target, method, args = step
                    outcome, act = getattr(target, method)(*args), flow.send
                else:
                    outcome, act = _done(step, engine, clock), flow.send
            except BaseException as error:  # noqa: BLE001 - the flow decides, and cleans up
                outcome, act = error, flow.throw
    finally:
        # The very first, so that nothing comes between. The traceback of an error holds this
        # frame, and `outcome` may be that error: a cycle. What a cycle holds, a lease perhaps, is
        # not given back before the collector comes.
        outcome = None
        # After an interrupt between two steps the flow cleans up now, and not only when nobody
        # refers to the traceback any more. It must not yield then.
        flow.close()


async def arun(flow: Flow[R], engine: Any, clock: Clock) -> R:
    """The flow's result; its steps are awaited."""
    act: Callable[[Any], Any] = flow.send
    outcome: Any = None
    try:
        while True:
            try:
                step = act(outcome)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            try:
                outcome, act = await _adone(step, engine, clock), flow.send
            except BaseException as error:  # noqa: BLE001 - CancelledError too: it cleans up
                outcome, act = error, flow.throw
    finally:
        outcome = None
        flow.close()


def twins(
    flow: Callable[Concatenate[S, P], Flow[R]],
) -> tuple[Callable[Concatenate[S, P], R], Callable[Concatenate[S, P], Coroutine[Any, Any, R]]]:
    """A method and its ``a`` twin, of a flow that is a method.

    Both are plain functions, as Django 6.1 reads ``__func__`` of them. ``method.flow`` is the flow.
    """

    def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return run(flow(self, *args, **kwargs), self.engine, self.clock)

    async def amethod(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await arun(flow(self, *args, **kwargs), self.engine, self.clock)

    # `help` shows what callers get: the result, and not the flow.
    returns = flow.__annotations__.get("return", "")
    flow.__annotations__["return"] = returns.removeprefix("Flow[").removesuffix("]")
    method.flow = flow  # type: ignore[attr-defined]
    name = flow.__name__.lstrip("_")
    for function, called in ((method, name), (amethod, f"a{name}")):
        functools.update_wrapper(function, flow)
        function.__name__ = called
        function.__qualname__ = f"{flow.__qualname__.rpartition('.')[0]}.{called}".lstrip(".")
    return method, amethod


def _done(step: Ask | Pause | Run, engine: Any, clock: Clock) -> Any:
    if isinstance(step, Ask):
        return getattr(engine, step.method)(*step.args, **step.kwargs)
    if isinstance(step, Pause):
        return clock.sleep(step.seconds)
    result = step.function()
    if isinstance(result, CoroutineType):
        result.close()
        raise TypeError(
            f"{step.function!r} returned a coroutine, which a plain call cannot await: use"
            " aget_or_set; @memoize has to be told (asgiref.sync.markcoroutinefunction)"
        )
    return result


async def _adone(step: Step, engine: Any, clock: Clock) -> Any:
    if isinstance(step, Ask):
        if getattr(engine, "native_async", False):
            twin = f"a{step.method.strip('_')}"  # "alen" for "__len__"
            return await getattr(engine, twin)(*step.args, **step.kwargs)
        return getattr(engine, step.method)(*step.args, **step.kwargs)
    if isinstance(step, MethodCall):
        return await getattr(step.target, f"a{step.method}")(*step.args)
    if isinstance(step, Pause):
        return await clock.asleep(step.seconds)
    result = step.function()
    return await result if inspect.isawaitable(result) else result
