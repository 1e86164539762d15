"""Threads that renew what this process holds in a store, and tell the store what it has missed.

A renewer *keeps* leases of locks and claims of computations. Each of them says when it is due,
and renews itself when the renewer asks for it. The renewer refers to them weakly: a lease that
nobody holds any more ends by itself, or is undone if it says how. A *debt* is a message that the
store did not get, a release for instance: it is repeated until its time is over.

There is one renewer for each server, so that a server that does not answer delays its own locks
only. The daemon thread of a renewer (under gevent a greenlet) ends when it was not needed for
``LINGER_S``, as starting a thread takes longer than taking a lock and releasing it. While the
renewer keeps something, it looks every ``LOOK_S`` for what an interrupted undo left behind. If
the system gives no thread, the next caller that adds something tries again.

A caller that adds something may be interrupted at any instruction, by a signal handler that raises
or by ``greenlet.kill``. So there is no lock here that could stay held. There are only dicts and
lists, whose operations happen or do not, and nothing lets another greenlet run:

K1  A caller puts its lease in before it looks for the thread. The thread takes itself off before it
    looks for work. So no lease is left without a thread.
K2  The thread says "wake me for anything" before it looks what is due first. That holds until the
    thread has said when it wakes by itself.

A forked child has no renewer: the parent renews what the parent holds. gevent may patch a process
late, in a worker that was forked after this module was imported: a renewer that was made since
takes over what an older one has.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from typing import Any, Protocol

from nearcache.base.per_process import OfProcess, generation
from nearcache.base.threads import Sole
from nearcache.errors import EngineConfiguration, EngineUnavailable

logger = logging.getLogger("nearcache.locks")

RENEWALS_PER_TTL = 3
RETRY_S = (0.05, 1.0)
"""The shortest and the longest pause before a store that did not answer is asked again."""
LINGER_S = 0.25
"""How long an idle thread waits for something to do: less than the life of what it renews."""
LOOK_S = 5.0
"""The longest sleep while something is kept: an interrupt may have cut an undo short."""
UNDO_S = 60.0
"""How long a renewer tries to undo what was lost."""


class Kept(Protocol):
    """A thing that a renewer renews. ``keep`` raises nothing, and sets ``renew_at_s`` anew."""

    renew_at_s: float

    def keep(self) -> None: ...


class _Debt:
    """A message that the store must get, and until when it matters."""

    def __init__(self, act: Callable[[], object], due_at_s: float, until_s: float) -> None:
        self.act = act
        self.due_at_s = due_at_s
        self.until_s = until_s
        self.pause_s = RETRY_S[0]

    def pay(self) -> bool:
        """True if the debt is paid, or matters no more."""
        try:
            self.act()
        except (EngineUnavailable, EngineConfiguration):  # a right may be granted again
            self.pause_s = min(self.pause_s * 2, RETRY_S[1])
            self.due_at_s = time.monotonic() + self.pause_s
            return self.due_at_s > self.until_s
        return True


class Renewer:
    """See the head of this module."""

    def __init__(self) -> None:
        self._kept: dict[weakref.ref[Any], Callable[[], object] | None] = {}
        self.heir: Renewer | None = None  # the renewer that took over what this one had
        self._process = generation()
        self._debts: list[_Debt] = []
        self._serving = Sole(self._serve, "nearcache-leases")
        self._bell = threading.Lock()
        self._bell.acquire()
        self._wakes_at_s = math.inf
        self._was_used = False
        self._told = False

    def add(self, kept: Kept, undo: Callable[[], object] | None = None) -> None:
        """Renews it from now on. ``undo`` is owed if it is collected before it was dropped."""
        self._kept[weakref.ref(kept, self._lost)] = undo
        if kept.renew_at_s < math.inf:
            self._see_to(kept.renew_at_s)

    def drop(self, kept: Kept) -> None:
        """Renews it no more."""
        self._kept.pop(weakref.ref(kept), None)

    def later(self, act: Callable[[], object], for_s: float, after_s: float = 0.0) -> None:
        """Calls ``act`` in the renewer's thread, and again while the store is away or refuses.

        The first time is ``after_s`` seconds from now, the last at most ``for_s`` seconds later.
        """
        due_at_s = time.monotonic() + after_s
        self._debts.append(_Debt(act, due_at_s, due_at_s + for_s))
        self._see_to(due_at_s)

    def take_over(self, other: Renewer) -> None:
        """Does from now on what ``other`` did. The thread of ``other`` finds nothing more to do."""
        self._kept.update(other._kept)
        self._debts += other._debts
        other._kept.clear()
        other._debts.clear()
        other.heir = self
        if self._kept or self._debts:
            self._see_to(-math.inf)

    def see_to(self, kept: Kept) -> None:
        """Notes that something which was added is due at another time."""
        if kept.renew_at_s < math.inf:
            self._see_to(kept.renew_at_s)

    def _lost(self, reference: weakref.ref[Any]) -> None:
        # Taken off last: the thread finds a dead reference that an interrupt leaves here.
        undo = self._kept.get(reference)
        if undo is not None and self._process == generation():
            self.later(undo, UNDO_S)
        self._kept.pop(reference, None)

    # -- the thread --------------------------------------------------------------------------

    def _see_to(self, at_s: float) -> None:
        self._was_used = True
        if not self._serving.who:  # K1
            self._start()
        elif at_s < self._wakes_at_s:
            with contextlib.suppress(RuntimeError):  # rung already
                self._bell.release()

    def _start(self) -> None:
        try:
            self._serving.begin()
        except RuntimeError as error:
            if not self._told:
                self._told = True
                logger.warning("no thread to renew locks, so each ends with its time: %s", error)
        else:
            self._told = False

    def _serve(self, me: object) -> None:
        while self._serving.is_done_by(me) and self._wait(me):
            self._act()

    def _act(self) -> None:
        # Not in _serve, whose names would keep the last lease alive while it waits.
        for act in self._due():
            try:
                act()
            except Exception:
                # A bug in one lock must not keep the other locks from being renewed.
                logger.exception("a lock could not be renewed")

    def _wait(self, me: object) -> bool:
        """Waits until something is due; False if there is nothing to wait for."""
        while True:
            self._wakes_at_s = math.inf  # K2
            next_at_s = self._next_at_s()
            if next_at_s == math.inf and not self._was_used:
                self._serving.leave()
                if self._next_at_s() == math.inf or not self._serving.is_done_by(me):  # K1
                    return False
                continue
            if next_at_s == math.inf:
                self._was_used = False
                next_at_s = time.monotonic() + LINGER_S
            self._wakes_at_s = next_at_s
            left_s = next_at_s - time.monotonic()
            if left_s <= 0:
                return True
            self._bell.acquire(timeout=min(left_s, LOOK_S))

    def _next_at_s(self) -> float:
        # A name that outlives this call would keep a lease alive that nobody holds.
        dues = [each.renew_at_s for each in self._living()]
        return min(dues + [each.due_at_s for each in list(self._debts)], default=math.inf)

    def _living(self) -> list[Kept]:
        living = []
        for reference in list(self._kept):
            kept = reference()
            if kept is None:
                self._lost(reference)
            else:
                living.append(kept)
        return living

    def _due(self) -> list[Callable[[], None]]:
        now_s = time.monotonic()
        kept = [each.keep for each in self._living() if each.renew_at_s <= now_s]
        debts = [each for each in list(self._debts) if each.due_at_s <= now_s]
        return [*kept, *(lambda debt=debt: self._pay(debt) for debt in debts)]

    def _pay(self, debt: _Debt) -> None:
        done = True  # also if `pay` raises: a debt must not be tried for ever
        try:
            done = debt.pay()
        finally:
            if done:
                with contextlib.suppress(ValueError):
                    self._debts.remove(debt)


_renewers: OfProcess[dict[tuple[object, Hashable], Renewer]] = OfProcess(dict)
"""Renewers by the kind of ``threading.Lock`` that they were made with, and by server. Those of an
earlier kind have retired. None of them is the parent's, whose threads are not here."""


def renewer_of(engine: Any, name: bytes) -> Renewer:
    """The renewer of what the engine holds under that name, made for ``threading`` as it is now."""
    server_of = getattr(engine, "lock_server", None)
    server = (id(engine), server_of(name) if server_of else None)
    return _renewers.here().get((threading.Lock, server)) or _made_for(server)


def _made_for(server: Hashable) -> Renewer:
    kind, renewers = threading.Lock, _renewers.here()
    made = renewers.setdefault((kind, server), Renewer())
    for (other_kind, other_server), other in list(renewers.items()):
        if other_kind is not kind:
            renewers.setdefault((kind, other_server), Renewer()).take_over(other)
    return made
