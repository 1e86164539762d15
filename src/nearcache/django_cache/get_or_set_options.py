"""Options of stampede protection, for every backend and for each call of ``get_or_set``."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nearcache.base.options import Options, option, seconds, share


def beta(value: Any) -> float:
    """A parser of XFetch's factor: True is 1, False is 0 (off)."""
    if not isinstance(value, bool | int | float) or not 0 <= value < float("inf"):
        raise ValueError(f"is {value!r}; write True, False, or a factor of 0 or more")
    return float(value)


def fraction(value: Any) -> float:
    """A parser of parts of one: 0 or more, and below 1."""
    if value == 1:
        raise ValueError(f"is {value!r}; write a number from 0 to below 1, like 0.1")
    return share(value)


@dataclass(frozen=True, kw_only=True)
class StampedeOptions(Options):
    """What ``get_or_set`` and ``@memoize`` do where the call does not say it."""

    early: float = option(
        "early",
        "For `get_or_set` and `@memoize`: whether a value may be computed anew before its timeout"
        " (XFetch). The longer it took to compute and the nearer its end, the likelier; one caller"
        " does it, the others go on with the value. `True`, or a factor: above 1 is earlier.",
        beta,
        default=0.0,
        shown_default="`False`; `@memoize`: `True`",
    )
    stale_s: float = option(
        "stale",
        "For `get_or_set` and `@memoize`: seconds after its timeout in which a value is still"
        " served at once, while one caller's thread or task computes it anew behind the request.",
        seconds,
        default=0.0,
        shown_default="`0`",
    )
    stale_on_error_s: float = option(
        "stale_on_error",
        "For `get_or_set` and `@memoize`: seconds after its timeout in which the old value is"
        " served if computing a new one raises.",
        seconds,
        default=0.0,
        shown_default="`0`",
    )
    error_pause_s: float = option(
        "error_pause",
        "Seconds in which nobody computes a value anew after that failed and an old one was"
        " served.",
        seconds,
        default=5.0,
    )
    jitter: float = option(
        "jitter",
        "For `get_or_set` and `@memoize`: by which part of it a timeout is made longer or shorter"
        " at random, so that what was stored together does not end together. 0.1 makes 100"
        " seconds 90 to 110.",
        fraction,
        default=0.0,
        shown_default="`0`",
    )


@dataclass(frozen=True, slots=True)
class Terms:
    """How one call of ``get_or_set`` wants to be protected."""

    early: float
    stale_ms: int
    on_error_ms: int
    jitter: float
    wait_s: float

    enveloped: bool
    """Whether a value stored on these terms is in an envelope."""

    @property
    def grace_ms(self) -> int:
        return max(self.stale_ms, self.on_error_ms)


_known: dict[Any, tuple[Any, Terms]] = {}
_KNOWN_MAX = 1024


def terms_of(options: Any, single_flight_s: float, *given: Any) -> Terms:
    """What was given (early, stale, stale_on_error, jitter, wait), else what the options say.

    ValueError for what makes no sense. Looked up by the options' identity: to hash as many
    fields would take longer than a hit.
    """
    key = (id(options), single_flight_s, given)
    known = _known.get(key)
    if known is not None and known[0] is options:
        return known[1]
    terms = _terms(options, single_flight_s, *given)
    if len(_known) >= _KNOWN_MAX:
        _known.clear()
    _known[key] = (options, terms)
    return terms


def _terms(
    options: Any,
    single_flight_s: float,
    early: Any,
    stale: Any,
    stale_on_error: Any,
    jitter: Any,
    wait: Any,
) -> Terms:
    said = options if isinstance(options, StampedeOptions) else StampedeOptions()
    beta_ = _given("early", early, beta, said.early)
    stale_ms = _ms(_given("stale", stale, seconds, said.stale_s))
    on_error_ms = _ms(_given("stale_on_error", stale_on_error, seconds, said.stale_on_error_s))
    return Terms(
        early=beta_,
        stale_ms=stale_ms,
        on_error_ms=on_error_ms,
        jitter=_given("jitter", jitter, fraction, said.jitter),
        wait_s=_given("wait", wait, seconds, single_flight_s),
        enveloped=bool(beta_ or stale_ms or on_error_ms),
    )


def _given(name: str, value: Any, parse: Callable[[Any], float], otherwise: float) -> float:
    if value is None:
        return otherwise
    try:
        return parse(value)
    except ValueError as error:
        raise ValueError(f"{name} {error}") from None


def _ms(seconds_: float) -> int:
    return math.ceil(seconds_ * 1000)
