"""``get_or_set``: of all who miss a value together one computes it, and nobody need miss it.

    fresh      before its soft deadline: everybody gets it. Late in its life one caller may
               compute it anew (``early``), while the others go on with it.
    stale      after it, for ``stale`` seconds: who asks for stale values gets it at once, and
               one of them has it computed anew behind his request.
    late       after that, for ``stale_on_error`` seconds: one caller computes it, the others
               wait for him, and all get the old value if he fails.
    missing    one caller computes it, the others wait for him
               (:mod:`nearcache.coordination.single_flight`).

Without these extras everything is as in Django, and values are stored as ``set`` stores them.
With them, a value is stored in an envelope (:mod:`nearcache.codec.envelope`) that holds the
soft deadline and the measured time it took to compute, and the store keeps it through its
grace. A missing value is stored with ``add``. One that is there, stale or not, is replaced
only if it is still the one that was seen before computing: whoever sets or deletes the key
meanwhile knows better.

Early recomputation: A. Vattani, F. Chierichetti, K. Lowenstein, "Optimal Probabilistic Cache
Stampede Prevention", Proceedings of the VLDB Endowment 8(8), 2015 (XFetch).
"""

from __future__ import annotations

import functools
import inspect
import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from django.core.cache.backends.base import DEFAULT_TIMEOUT

from nearcache.base.interrupts import is_interrupt
from nearcache.base.per_process import chance as by_chance
from nearcache.base.per_process import once
from nearcache.base.sans_io import Ask, Flow, Run, arun, ask, run
from nearcache.codec import Undecodable
from nearcache.codec.envelope import Envelope, EnvelopeCodec, opened
from nearcache.coordination.background_refresh import Failing, in_task, in_thread
from nearcache.coordination.single_flight import Flight, Tasks, Threads
from nearcache.django_cache.extra_methods import EXPIRED_MS, ExtraMethods
from nearcache.django_cache.get_or_set_options import StampedeOptions, Terms, terms_of
from nearcache.errors import EngineBusy, EngineUnavailable, OptionError, ServerNotReady

Found = tuple[bytes, int] | None
"""What ``gets`` says: bytes and version."""


@dataclass(slots=True)
class GetOrSet:
    """One call of ``get_or_set``."""

    raw_key: bytes
    default: Any
    lifetime_ms: int | None
    terms: Terms
    ways: type[Threads]
    counts: bool = True
    """Whether an int is a counter, which goes into no envelope."""
    computed: Any = None
    """What ``default`` gave: its caller gets it even if nobody could read it back."""


FRESH, EARLY, STALE, PAUSED, MISSING = range(5)
"""States of a value; PAUSED is stale, and computing it failed a moment ago."""


class Seen(NamedTuple):
    """What was found in the store."""

    state: int
    raw: bytes
    value: Any


MISSED = Seen(MISSING, b"", None)


class StampedeProof(ExtraMethods):
    """``get_or_set`` and its twin; see the head of this module."""

    flight_wait_s: float = 30.0
    flight_lease_s: float = 3.0
    """How long a dead process's computation is waited for; and where the store knows of death:"""
    local_lease_s: float = 10.0
    options: Any = None
    chance: ClassVar[Any] = staticmethod(by_chance)  # from 0 to below 1

    def get_or_set(
        self,
        key: Any,
        default: Any,
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
        *,
        early: bool | float | None = None,
        stale: float | None = None,
        stale_on_error: float | None = None,
        jitter: float | None = None,
        wait: float | None = None,
    ) -> Any:
        """The value, or what ``default`` (a value or a function) gives, which is then stored.

        Of all who miss it together, one computes; the others wait up to ``wait`` seconds for
        its value, and then compute as well. ``wait=0``: everybody computes at once.

        ``early``: True or a factor; ``stale``, ``stale_on_error``: seconds after ``timeout``;
        ``jitter``: a part of ``timeout``. What they do is said at the head of this module, and
        what is not given is as in ``OPTIONS``. Raises what ``default`` raises, in the caller
        whose call it was only; OptionError for extras with ``compat``.
        """
        terms = self._terms(early, stale, stale_on_error, jitter, wait)
        return self._served(key, default, timeout, version, terms)

    async def aget_or_set(
        self,
        key: Any,
        default: Any,
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
        *,
        early: bool | float | None = None,
        stale: float | None = None,
        stale_on_error: float | None = None,
        jitter: float | None = None,
        wait: float | None = None,
    ) -> Any:
        """:meth:`get_or_set`; ``default`` may also be an awaitable, or return one."""
        terms = self._terms(early, stale, stale_on_error, jitter, wait)
        if inspect.isawaitable(default):
            default = functools.partial(lambda it: it, default)
        return await self._aserved(key, default, timeout, version, terms)

    # -- a hit: written out, twice; everything else is flows ---------------------------------

    def _served(
        self, key: Any, default: Any, timeout: Any, version: Any, terms: Terms, counts: bool = True
    ) -> Any:
        seen = MISSED
        if not terms.enveloped:
            value = self.get(key, self._missing_key, version)
            if value is not self._missing_key:
                return value
        else:
            try:
                seen = self._seen(self.engine.get(self._raw_key(key, version)), terms)
            except EngineUnavailable as error:
                self._forgive(error)
            if seen.state is FRESH:
                return seen.value
        call = self._call(key, default, timeout, version, terms, Threads, counts)
        return run(self._got_or_set(call, seen), self.engine, self.clock)

    async def _aserved(
        self, key: Any, default: Any, timeout: Any, version: Any, terms: Terms, counts: bool = True
    ) -> Any:
        seen = MISSED
        if not terms.enveloped:
            value = await self.aget(key, self._missing_key, version)
            if value is not self._missing_key:
                return value
        else:
            read = self._asked(ask("get", self._raw_key(key, version)))
            seen = self._seen(await arun(read, self.engine, self.clock), terms)
            if seen.state is FRESH:
                return seen.value
        call = self._call(key, default, timeout, version, terms, Tasks, counts)
        return await arun(self._got_or_set(call, seen), self.engine, self.clock)

    def _seen(self, raw: bytes | None, terms: Terms) -> Seen:
        """What stored bytes are to who comes on these terms."""
        if raw is None:
            return MISSED
        envelope = opened(raw)
        value = self._decoded(envelope.inner if envelope else raw, self._missing_key)
        if value is self._missing_key:
            return MISSED
        if envelope is None:
            return Seen(FRESH, raw, value)
        now_ms = self.clock.now_ms()
        if now_ms < envelope.soft_ms:
            early = terms.early and self._is_early(envelope, terms.early, now_ms)
            return Seen(EARLY if early else FRESH, raw, value)
        stale = now_ms < envelope.soft_ms + terms.stale_ms
        paused = envelope.quiet_ms > now_ms
        return Seen((PAUSED if paused else STALE) if stale else MISSING, raw, value)

    def _is_early(self, envelope: Envelope, beta: float, now_ms: int) -> bool:
        if envelope.quiet_ms > now_ms:
            return False
        # XFetch. 1 - chance() is never 0, which has no logarithm.
        ahead_ms = -envelope.delta_ms * beta * math.log(1 - self.chance())
        return now_ms + ahead_ms >= envelope.soft_ms

    @property
    def keeps_envelopes(self) -> bool:
        """False where values are written as another backend does: no room for soft deadlines."""
        return isinstance(self.codec, EnvelopeCodec)

    # -- what was asked for ------------------------------------------------------------------

    def _terms(
        self,
        early: bool | float | None,
        stale: float | None,
        stale_on_error: float | None,
        jitter: float | None,
        wait: float | None,
    ) -> Terms:
        terms = terms_of(
            self.options, self.flight_wait_s, early, stale, stale_on_error, jitter, wait
        )
        if terms.enveloped and not self.keeps_envelopes:
            raise OptionError(
                type(self).__name__, "compat", "has no room for early, stale or stale_on_error"
            )
        return terms

    def _call(
        self,
        key: Any,
        default: Any,
        timeout: Any,
        version: int | None,
        terms: Terms,
        ways: type[Threads],
        counts: bool,
    ) -> GetOrSet:
        raw_key, lifetime_ms = self._raw_key(key, version), self._lifetime_ms(timeout)
        return GetOrSet(raw_key, default, lifetime_ms, terms, ways, counts)

    # -- fresh, stale, late or missing -------------------------------------------------------

    def _got_or_set(self, call: GetOrSet, seen: Seen) -> Flow[Any]:
        """For everybody who does not just get what is there."""
        if seen.state is EARLY:
            return (yield from self._early(call, seen.raw, seen.value))
        if seen.state is STALE or seen.state is PAUSED:
            self.counters.stale_served += 1
            if seen.state is STALE:
                yield from self._behind(call)
            return seen.value
        return (yield from self._computed(call))

    def _early(self, call: GetOrSet, seen: bytes, value: Any) -> Flow[Any]:
        """Computes a fresh value anew, if nobody else is at it."""
        flight = self._flight(call)
        return (yield from flight.flown(self._early_flight(call, flight, seen, value)))

    def _early_flight(self, call: GetOrSet, flight: Flight, seen: bytes, value: Any) -> Flow[Any]:
        if not (yield from flight.try_join()):
            return value
        found = yield from self._asked(ask("gets", call.raw_key))
        if found is None or found[0] != seen:
            # Refreshed, changed or deleted since: there is nothing to do early.
            flight.raw = found[0] if found and self._suits(call, found[0]) else None
            return value
        self.counters.early_recomputes += 1
        flight.raw = yield from self._recomputed(call, found)
        return self._inside(flight.raw, value)

    def _behind(self, call: GetOrSet) -> Flow[None]:
        """Has a stale value computed anew behind this call, if nobody is at it."""
        flight = self._flight(call)
        try:
            joined = yield from flight.try_join()
            started = joined and self._start(call, flight)
        except BaseException:
            flight.abandon()
            raise
        self.counters.refresh_skipped += joined and not started
        if not started:
            yield from flight.leave()

    def _start(self, call: GetOrSet, flight: Flight) -> bool:
        if call.ways is Tasks:
            return in_task(lambda: arun(self._refreshed(call, flight), self.engine, self.clock))
        return in_thread(lambda: run(self._refreshed(call, flight), self.engine, self.clock))

    def _refreshed(self, call: GetOrSet, flight: Flight) -> Flow[None]:
        try:
            yield from flight.flown(self._refresh_flight(call, flight))
        except Exception as error:  # noqa: BLE001 - there is no caller to tell
            self.counters.refresh_errors += 1
            self._failing.began(call.raw_key, error)

    def _refresh_flight(self, call: GetOrSet, flight: Flight) -> Flow[None]:
        flight.moved_here()
        # Read again, now that nobody else computes: somebody may have just before.
        found = yield from self._asked(ask("gets", call.raw_key))
        if found and self._suits(call, found[0]):
            flight.raw = found[0]
        else:
            flight.raw = yield from self._recomputed(call, found)

    def _computed(self, call: GetOrSet) -> Flow[Any]:
        """What is late or missing: by this caller, or by another one that he waits for."""
        keeps = call.lifetime_ms is None or call.lifetime_ms > 0
        if not (callable(call.default) and call.terms.wait_s and keeps):
            own = yield from self._recomputed(call, (yield from self._replaceable(call)))
            return self._inside(own, call.computed)
        flight = self._flight(call)
        return (yield from flight.flown(self._computing_flight(call, flight)))

    def _computing_flight(self, call: GetOrSet, flight: Flight) -> Flow[Any]:
        raw = yield from flight.join(lambda: self._look(call))
        if raw is None or not self._suits(call, raw):
            raw = yield from self._recomputed(call, (yield from self._replaceable(call)))
        flight.raw = raw
        self.counters.stale_on_error += self._is_stale(raw)
        return self._inside(raw, call.computed)

    def _set_anew(self, call: GetOrSet) -> Flow[Any]:
        """Computes and stores, whatever is there; what this caller computed."""
        value, delta_ms = yield from self._timed(call)
        self._failing.over(call.raw_key)
        raw, expires_at_ms = self._wrapped(call, value, delta_ms)
        yield from self._room_for(call.raw_key)
        asked = self._asked(ask("set", call.raw_key, raw, expires_at_ms), True)
        self.counters.refuse(type(self).__name__, not (yield from self._tried(asked, True)))
        return self._inside(raw, value)

    def _replaceable(self, call: GetOrSet) -> Flow[Found]:
        """The late value that a new one will replace; None if ``add`` will do."""
        if not call.terms.enveloped:
            return None
        found: Found = yield from self._asked(ask("gets", call.raw_key))
        return found

    def _look(self, call: GetOrSet) -> Flow[bytes | None]:
        raw: bytes | None = yield from self._asked(ask("get", call.raw_key))
        return raw if raw is not None and self._suits(call, raw) else None

    # -- computing and storing ---------------------------------------------------------------

    def _recomputed(self, call: GetOrSet, found: Found) -> Flow[bytes]:
        """Bytes of a new value, stored; or of the one that was found, if computing fails."""
        try:
            value, delta_ms = yield from self._timed(call)
        except Exception as error:
            if is_interrupt(error):
                raise
            raw = yield from self._kept(call, found, error)
            if raw is None:
                raise
            return raw
        self._failing.over(call.raw_key)
        raw, expires_at_ms = self._wrapped(call, value, delta_ms)
        return (yield from self._put(call, raw, expires_at_ms, found))

    def _timed(self, call: GetOrSet) -> Flow[tuple[Any, int]]:
        if not callable(call.default):
            call.computed = call.default
            return call.default, 0
        began_s = self.clock.monotonic_s()
        call.computed = value = yield Run(call.default)
        return value, math.ceil((self.clock.monotonic_s() - began_s) * 1000)

    def _kept(self, call: GetOrSet, found: Found, error: Exception) -> Flow[bytes | None]:
        """The value that was found, if it still serves, marked so that nobody tries at once."""
        envelope = opened(found[0]) if found else None
        now_ms = self.clock.now_ms()
        if not found or not envelope or now_ms >= envelope.soft_ms + call.terms.grace_ms:
            return None
        if self._inside(found[0]) is self._missing_key:
            return None
        self.counters.refresh_errors += 1
        self._failing.began(call.raw_key, error)
        pause_s = getattr(self.options, "error_pause_s", StampedeOptions.error_pause_s)
        kept = envelope.quiet_until(now_ms + math.ceil(pause_s * 1000))
        raw = kept.sealed()
        yield from self._swapped(call, raw, kept.expires_at_ms, found[1])
        return raw

    def _wrapped(self, call: GetOrSet, value: Any, delta_ms: int) -> tuple[bytes, int | None]:
        """The bytes to store, and their deadline."""
        raw = self.codec.encode(value)
        if call.lifetime_ms is None:
            return raw, None
        if call.lifetime_ms <= 0:
            return raw, EXPIRED_MS
        spread = 1 + call.terms.jitter * (2 * self.chance() - 1) if call.terms.jitter else 1
        soft_ms = self.clock.now_ms() + max(1, round(call.lifetime_ms * spread))
        if not call.terms.enveloped or (call.counts and raw[0] < 0x80):
            return raw, soft_ms
        envelope = Envelope(soft_ms, call.terms.grace_ms, delta_ms, raw)
        return envelope.sealed(), envelope.expires_at_ms

    def _put(
        self, call: GetOrSet, raw: bytes, expires_at_ms: int | None, found: Found
    ) -> Flow[bytes]:
        """Stores; the bytes that are there then, if somebody else was faster."""
        return bytes((yield from self._tried(self._placed(call, raw, expires_at_ms, found), raw)))

    def _tried(self, storing: Flow[Any], otherwise: Any) -> Flow[Any]:
        """What was computed is worth more than the error of a store that was lost meanwhile."""
        try:
            return (yield from storing)
        except EngineUnavailable as error:
            if isinstance(error, ServerNotReady):
                raise  # it answered: it is full, or a replica
            self.counters.lose(type(self).__name__, error)
            return otherwise

    def _placed(self, call: GetOrSet, raw: bytes, expires_at_ms: Any, found: Found) -> Flow[bytes]:
        yield from self._room_for(call.raw_key)
        if found is not None:
            stored = yield from self._swapped(call, raw, expires_at_ms, found[1])
        else:
            stored = yield from self._asked(ask("add", call.raw_key, raw, expires_at_ms), True)
        if stored:
            return raw
        there: Found = yield from self._asked(ask("gets", call.raw_key))
        if there and self._suits(call, there[0]):
            return there[0]
        if found is None and there:
            # `add` was refused by what nobody can use: stale, or undecodable.
            yield from self._swapped(call, raw, expires_at_ms, there[1])
        elif found and there is None and self._has_ended(found[0]):
            # Not deleted: its time was over before the computation was.
            yield from self._asked(ask("add", call.raw_key, raw, expires_at_ms))
        return raw

    def _has_ended(self, raw: bytes) -> bool:
        envelope = opened(raw)
        ended_ms = envelope.expires_at_ms if envelope else None
        return ended_ms is not None and ended_ms <= self.clock.now_ms()

    def _swapped(
        self, call: GetOrSet, raw: bytes, expires_at_ms: int | None, token: int
    ) -> Flow[bool]:
        try:
            done: bool = yield from self._asked(
                ask("cas", call.raw_key, raw, token, expires_at_ms), True
            )
            return done
        except EngineBusy:
            self.counters.refuse(type(self).__name__)
            return False

    # -- shared by the above -----------------------------------------------------------------

    def _inside(self, raw: bytes, default: Any = ExtraMethods._missing_key) -> Any:
        """The value of bytes, stale or not; ``default`` if they cannot be read."""
        envelope = opened(raw) if self.keeps_envelopes else None
        try:
            return self.codec.decode(envelope.inner if envelope else raw)
        except Undecodable:
            return default

    def _suits(self, call: GetOrSet, raw: bytes) -> bool:
        """Whether the caller may have these bytes: fresh, or old where nobody should try anew."""
        if self._inside(raw) is self._missing_key:
            return False
        envelope, now_ms = opened(raw) if self.keeps_envelopes else None, self.clock.now_ms()
        if envelope is None or now_ms < envelope.soft_ms:
            return True
        return now_ms < min(envelope.quiet_ms, envelope.soft_ms + call.terms.grace_ms)

    def _is_stale(self, raw: bytes) -> bool:
        envelope = opened(raw) if self.keeps_envelopes else None
        return envelope is not None and envelope.soft_ms <= self.clock.now_ms()

    def _flight(self, call: GetOrSet) -> Flight:
        wait_s = call.terms.wait_s
        far = hasattr(self.engine, "lock_ttl_ms")
        times_s = wait_s, self.flight_lease_s if far else self.local_lease_s
        return Flight(self.engine, call.raw_key, *times_s, self.clock, self.counters, call.ways)

    @property
    def _failing(self) -> Failing:
        return once(("failing", id(self.counters)), Failing)

    def _asked(self, step: Ask, otherwise: Any = None) -> Flow[Any]:
        """The engine's answer; ``otherwise`` from backends that make a miss of an outage."""
        return (yield step)

    def _forgive(self, error: EngineUnavailable) -> None:
        """For backends that make a miss of an outage."""
        raise error

    def _room_for(self, raw_key: bytes) -> Flow[None]:
        """For backends with a bound on their number of items."""
        yield from ()
