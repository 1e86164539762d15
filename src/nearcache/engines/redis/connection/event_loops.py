"""What belongs to one event loop, and ends with it.

A loop may live for one request only (``async_to_sync``, ``asyncio.run``), and asyncio tells nobody
when a loop ends. Two things notice it, by asyncio's public interface alone:

    an asynchronous generator   every tidy end of a loop calls ``loop.shutdown_asyncgens()``, which
                                runs the generator's ``finally``: connections are closed there
    a timer far in the future   only the loop holds the timer, and only the timer holds the things
                                of the loop: they go when the loop is closed or forgotten

So a loop that is thrown away leaves nothing behind here, and a loop that is reused keeps its
connections. No loop touches the things of another.

A forked child may go on with a copy of its parent's loop. The things of that loop belong to the
parent. The child keeps them untouched, also beyond the copy's end: both processes share one epoll,
so a child that takes a socket out of it, as finalizers of redis-py's connections do, takes it from
the parent, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncGenerator, Callable, Hashable
from typing import Protocol, TypeVar

from nearcache.base.per_process import OfProcess, generation

FAR_S = 10 * 365 * 86_400.0


class Ending(Protocol):
    """A thing that is told when its loop ends."""

    async def at_loop_end(self) -> None: ...


T = TypeVar("T", bound=Ending)


class _Loop:
    """The things of one loop, by key."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.things: dict[Hashable, Ending] = {}
        self._process = generation()
        loop.call_later(FAR_S, self._hold)
        self._watch = self._until_the_end()
        # Runs to the first `yield`, which makes the loop remember the generator.
        with contextlib.suppress(StopIteration):
            self._watch.__anext__().send(None)

    def __del__(self) -> None:
        if self._process != generation():
            _inherited.append(self.things)

    def _hold(self) -> None:
        self.loop.call_later(FAR_S, self._hold)

    async def _until_the_end(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            loops = _loops.here()
            reference = loops.get(id(self.loop))
            if reference is not None and reference() is self:
                del loops[id(self.loop)]
            if self._process == generation():
                # A caller that asks during the shutdown must get new things, and not these.
                things, self.things = list(self.things.values()), {}
                for thing in things:
                    await thing.at_loop_end()


_inherited: list[dict[Hashable, Ending]] = []
"""Things of the parent's, of loops whose copies are gone here."""
_loops: OfProcess[dict[int, weakref.ref[_Loop]]] = OfProcess(dict)


def of_this_loop(key: Hashable, make: Callable[[], T]) -> T:
    """The running loop's thing of that key, made on first use."""
    loop = asyncio.get_running_loop()
    loops = _loops.here()
    reference = loops.get(id(loop))
    mine = reference() if reference is not None else None
    # An id is used again: it may be that of a new loop, and the entry a forgotten loop's.
    if mine is None or mine.loop is not loop:
        mine = _Loop(loop)
        loops[id(loop)] = weakref.ref(mine)
        _forget_the_dead(loops)
    found = mine.things.get(key)
    if found is None:
        found = mine.things[key] = make()
    return found  # type: ignore[return-value]


def _forget_the_dead(loops: dict[int, weakref.ref[_Loop]]) -> None:
    for identity, reference in list(loops.items()):
        # Only this very entry: another thread may have put a new loop in its place.
        if reference() is None and loops.get(identity) is reference:
            loops.pop(identity, None)
