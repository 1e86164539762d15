"""Which points make the curves of a what-if: hit ratio over time to live, size, and length.

The points of an axis are where people would set it: round times, sizes that halve, small
lengths; today's own value is among them, so that a curve goes through what is.

Not here: replays (``forecast.py``), drawing (``page.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nearcache.nginx.whatif.rules import Change

if TYPE_CHECKING:
    from nearcache.nginx.whatif.forecast import Forecast

MINUTE, HOUR, DAY = 60, 3600, 86400
ROUND_TTLS_S = (
    1, 2, 5, 10, 20, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 20 * MINUTE, 30 * MINUTE,
    HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR, 12 * HOUR, DAY, 2 * DAY, 4 * DAY, 7 * DAY, 14 * DAY,
    30 * DAY,
)  # fmt: skip
WIDE = 256  # times shorter and longer than today
HALVINGS = 9
LEAST_SIZE = 1 << 16
LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 32, 48, 64)
ANY_SIZE, ANY_LENGTH = 1 << 60, 65535
MOST_REPLAYS = len(ROUND_TTLS_S) + 1 + HALVINGS + 2 + len(LENGTHS) + 2


@dataclass(frozen=True)
class Point:
    """What one value gives. Ratios of requests, error of the hit ratio."""

    value: float
    hit_ratio: float
    error: float | None
    byte_hit_ratio: float
    saved_s: float | None
    outdated: float | None
    oldest_s: float
    peak_bytes: float


@dataclass(frozen=True)
class Curve:
    """``axis``: ``ttl_s``, ``max_size_bytes`` or ``max_length``."""

    axis: str
    today: float | None
    """Where today is on it; None: no limit, or not known."""
    points: list[Point]


@dataclass(frozen=True)
class Scope:
    """What is known of today. None: not known, or no limit."""

    ttl_s: float | None
    max_size: int | None
    span_s: float


def curves(forecast: Callable[[Change], Forecast], scope: Scope) -> list[Curve]:
    """Those that have at least two points."""
    found = (_ttls(forecast, scope), _sizes(forecast, scope), _lengths(forecast))
    return [curve for curve in found if len(curve.points) > 1]


def _ttls(forecast: Callable[[Change], Forecast], scope: Scope) -> Curve:
    usual_s = scope.ttl_s or float(HOUR)
    # In a log a life longer than itself is no different from its length.
    low_s, high_s = usual_s / WIDE, min(usual_s * WIDE, max(usual_s, scope.span_s))
    known = {float(each) for each in ROUND_TTLS_S if low_s <= each <= high_s}
    values = sorted(known | ({scope.ttl_s} if scope.ttl_s else set()))
    return Curve("ttl_s", scope.ttl_s, [_point(forecast, Change(ttl_s=each)) for each in values])


def _sizes(forecast: Callable[[Change], Forecast], scope: Scope) -> Curve:
    full = int(forecast(Change(max_size=ANY_SIZE)).peak_bytes)
    known = {scope.max_size, *(full >> power for power in range(HALVINGS))}
    values = sorted(each for each in known if each and each >= LEAST_SIZE)
    points = [_point(forecast, Change(max_size=each)) for each in values]
    return Curve("max_size_bytes", scope.max_size, points)


def _lengths(forecast: Callable[[Change], Forecast]) -> Curve:
    """Empty if no request has what the length would be of."""
    whole, none = (forecast(Change(max_length=most)) for most in (ANY_LENGTH, 0))
    if whole.fetches == none.fetches:
        return Curve("max_length", None, [])
    return Curve("max_length", None, list(_until_all(forecast, whole)))


def _until_all(forecast: Callable[[Change], Forecast], whole: Forecast) -> Iterator[Point]:
    """Up to the length from which on all are short enough."""
    for length in LENGTHS:
        found = forecast(Change(max_length=length))
        yield _of(found, length)
        if found.fetches == whole.fetches and found.hit_ratio == whole.hit_ratio:
            return


def _point(forecast: Callable[[Change], Forecast], change: Change) -> Point:
    value = change.ttl_s if change.ttl_s is not None else change.max_size
    assert value is not None
    return _of(forecast(change), value)


def _of(found: Forecast, value: float) -> Point:
    return Point(
        value=value,
        hit_ratio=found.hit_ratio,
        error=found.error,
        byte_hit_ratio=found.byte_hit_ratio,
        saved_s=found.saved_s,
        outdated=found.outdated,
        oldest_s=found.oldest_s,
        peak_bytes=found.peak_bytes,
    )
