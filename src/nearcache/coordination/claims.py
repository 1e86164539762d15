"""A claim: "I compute this", said to all processes that share a store.

A claim lives for a few seconds, and a renewer (:mod:`.lock_renewal`) renews it while its
computation runs. So what a process that died had claimed is free soon. The owner of a claim is a
number that is made before the store is asked: whatever comes back, and wherever an interrupt hits,
the claim can be given up. The renewer knows of the claim before the store does. It gives up the
claim of an interrupted computation, to which nobody refers any more.

Source of the word and the rules: ``claim`` in :mod:`nearcache.engines.contract`.
"""

from __future__ import annotations

import functools
import logging
import math
import time
from typing import Any

from nearcache.base.clock import Clock
from nearcache.base.keys import decode_key
from nearcache.base.per_process import generation, unique_number
from nearcache.base.sans_io import Flow, ask
from nearcache.coordination.lock_renewal import RENEWALS_PER_TTL, RETRY_S, Renewer, renewer_of
from nearcache.errors import EngineError, EngineUnavailable

logger = logging.getLogger("nearcache.stampede")


class Claim:
    """One computation's claim of a key: for ``lease_s`` from each renewal, ``hold_s`` in all."""

    def __init__(
        self, engine: Any, key: bytes, lease_s: float, hold_s: float, clock: Clock
    ) -> None:
        self.renew_at_s = math.inf
        self._engine = engine
        self._key = key
        self._owner = unique_number()
        self._undo = functools.partial(engine.unclaim, key, self._owner)
        self._ttl_ms = max(1, math.ceil(min(lease_s, hold_s) * 1000))
        self._hold_s = hold_s
        self._clock = clock
        self._until_s = -math.inf
        self._may_be_held = False
        self._over = False
        self._process = generation()

    def take(self) -> Flow[bool]:
        """True if no other owner has the claim, and also if the store cannot be asked."""
        asked_at_s = self._clock.monotonic_s()
        renewer = self._renewer
        if not self._may_be_held:
            self._may_be_held = True
            renewer.add(self, self._undo)
        try:
            held: bool = yield ask("claim", self._key, self._owner, self._ttl_ms)
        except EngineUnavailable:
            return True
        if held:
            self._until_s = asked_at_s + self._hold_s
            self._renew_in(self._ttl_ms / 1000 / RENEWALS_PER_TTL)
            renewer.see_to(self)
        else:
            renewer.drop(self)
            self._may_be_held = False
        return held

    def give_up(self) -> Flow[None]:
        """Frees the claim. A store that does not answer is told again until the claim has ended."""
        if not self._is_ours:
            return
        if self._until_s == -math.inf:  # the store could not be asked, so it is not asked now
            self.abandon()
            return
        self._over, self.renew_at_s = True, math.inf
        try:
            yield ask("unclaim", self._key, self._owner)
        except EngineError:
            self._owe()
        self._ended()

    def abandon(self) -> None:
        """:meth:`give_up` after an interrupt: without a step that could take time."""
        if not self._is_ours:
            return
        self._over, self.renew_at_s = True, math.inf
        if getattr(self._engine, "native_async", False):
            self._owe()
        else:
            try:
                self._undo()
            except EngineError:
                self._owe()
        self._ended()

    def keep(self) -> None:
        """Renews the claim: the renewer calls it when the claim is due. Raises nothing."""
        self.renew_at_s = math.inf
        if self._over or self._clock.monotonic_s() >= self._until_s:
            return
        try:
            held = self._engine.claim(self._key, self._owner, self._ttl_ms)
        except EngineError as error:
            logger.debug("the claim of %r was not renewed: %s", decode_key(self._key), error)
            self._renew_in(RETRY_S[1])
            return
        if self._over:  # it was given up meanwhile, and this call may have claimed it anew
            self._owe()
        elif held:
            self._renew_in(self._ttl_ms / 1000 / RENEWALS_PER_TTL)

    @property
    def _is_ours(self) -> bool:
        """True if there may be a claim to give up, and this is not a forked child of its owner."""
        return self._may_be_held and self._process == generation()

    def _ended(self) -> None:
        self._renewer.drop(self)
        self._may_be_held = False

    def _owe(self) -> None:
        self._renewer.later(self._undo, self._ttl_ms / 1000)

    def _renew_in(self, seconds: float) -> None:
        # Not by the clock of the cache, which tests move: the renewer waits in real time.
        self.renew_at_s = time.monotonic() + seconds

    @property
    def _renewer(self) -> Renewer:
        return renewer_of(self._engine, self._key)
