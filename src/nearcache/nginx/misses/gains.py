"""What changes would save, by replaying the log under each: alone, and after those before it.

A fetch that one change saves another may save, too. So changes are taken greedily: the one that
saves most, then the one that saves most of what is left, and so on. What they save one after the
other adds up to what all of them save together, which is a replay of its own.

Not here: which changes are worth a replay, and words (``misses.py``); the model itself
(:mod:`nearcache.nginx.whatif.forecast`), which is believed only if it gives what nginx logged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from nearcache.nginx.whatif.forecast import (
    FEW_REQUESTS,
    MOST_ERROR,
    Backtest,
    Forecast,
    Question,
    Replays,
)
from nearcache.nginx.whatif.rules import Change, Subject, Today

if TYPE_CHECKING:
    from nearcache._core import NginxTrace


@dataclass(frozen=True)
class Gain:
    """Fetches that would not have been, and the upstream's time of them; None: no times."""

    requests: int
    seconds: float | None

    @property
    def weight(self) -> float:
        return self.requests if self.seconds is None else self.seconds


@dataclass(frozen=True)
class Gained:
    """One change: what it saves alone, and after the changes before it."""

    name: str
    alone: Gain
    more: Gain


def gains(trace: NginxTrace, today: Today, changes: Mapping[str, Change]) -> list[Gained] | None:
    """In the order in which they are best taken; what then saves nothing is left out.

    Args:
        trace: a log that was read to its end.
        changes: by a name of the caller's.

    None if the model does not give what nginx logged: then nobody knows what they save.
    """
    replays = Replays(trace, Question(today=today, changes=(), subject=Subject(), anyway=True))
    if not _is_like_the_log(replays.backtest):
        return None
    now = replays.today
    alone = {name: _between(now, replays.point(each)) for name, each in changes.items()}
    found: list[Gained] = []
    taken, before, left = Change(), now, dict(changes)
    more = dict(alone)
    while left:
        name = max(left, key=lambda each: more[each].weight)
        if more[name].weight <= 0:
            break
        found.append(Gained(name, alone[name], more[name]))
        taken = both(taken, left.pop(name))
        before = replays.point(taken) if left else before
        more = {each: _between(before, replays.point(both(taken, left[each]))) for each in left}
    return found


def _is_like_the_log(test: Backtest | None) -> bool:
    """Does the model give what nginx logged, of however few requests?"""
    if test is None:
        return False
    if test.requests < FEW_REQUESTS:
        return abs(test.modelled_all - test.logged_all) <= MOST_ERROR
    return test.is_good


def both(one: Change, other: Change) -> Change:
    """Rules for keys one after the other; of all else what one of them changes."""
    changed: dict[str, Any] = {
        each.name: getattr(other, each.name)
        for each in fields(Change)
        if getattr(other, each.name) not in (None, False)
    }
    if one.key and other.key:
        changed["key"] = f"{one.key},{other.key}"
    return replace(one, **changed)


def _between(now: Forecast, then: Forecast) -> Gain:
    seconds = None
    if now.upstream_s is not None and then.upstream_s is not None:
        seconds = now.upstream_s - then.upstream_s
    return Gain(round(now.fetches - then.fetches), seconds)
