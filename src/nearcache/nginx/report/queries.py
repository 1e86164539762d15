"""How long the values of an argument are, and what a rule of length would let a cache do.

The report is the one of seed 002, to the letter, so that two of them can be compared with
``diff``. It counts requests, whatever their time: "38.7 % of queries are 9 characters or less".
What it cannot say is whether those repeat. :func:`reach` does: a cache that stores values
of at most n characters and never forgets would answer all but the first request of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from nearcache.report.model import Line, Page, Table, TabledChart
from nearcache.report.words import count, duration, percent, plural, ratio

if TYPE_CHECKING:
    from nearcache._core import NginxLengths

LONG = 40
A_BOUND = (
    "possible hits are a bound: for a cache that never forgets and began empty. "
    "`nearcache nginx whatif --max-length` takes time to live and size into account"
)


@dataclass(frozen=True)
class Point:
    """Requests whose value has at most ``length`` characters, and the rest."""

    length: int
    show: int
    rest: int

    @property
    def text(self) -> str:
        total = self.show + self.rest
        return (
            f"POINT: {self.length}\n"
            f"Sum show {self.show} {self.show / total:.1%}\n"
            f"Sum rest {self.rest} {self.rest / total:.1%}"
        )


@dataclass(frozen=True)
class Reach:
    """What a cache of values of at most ``length`` characters could do."""

    length: int
    requests: int
    distinct: int
    """Values, estimated; each has to be fetched once."""
    repeats: int
    hit_ratio: float | None
    """Of all requests that have the argument: at most so many could be hits."""
    served: int
    """That did come from the cache."""
    upstream_s: float
    """What these requests cost upstream as it was."""


@dataclass(frozen=True)
class Queries:
    what: str
    """``argument q``, or ``part 3 of the path``."""
    requests: int
    absent: int
    distinct: int
    points: list[Point]
    reaches: list[Reach]
    """Of the points that were asked for, and of all."""
    every: list[Reach]
    """Of every length there is."""
    by_length: list[tuple[int, int]]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def queries(lengths: NginxLengths, what: str, points: Sequence[int]) -> Queries:
    """The report of what one pass found about an argument or part of a path."""
    ends = sorted({*points, max((each[0] for each in lengths["by_length"]), default=0)})
    return Queries(
        what=what,
        requests=lengths["requests"],
        absent=lengths["absent"],
        distinct=lengths["distinct"],
        points=[_point(lengths, at) for at in points] if lengths["requests"] else [],
        reaches=[reach(lengths, at) for at in ends] if lengths["requests"] else [],
        every=[reach(lengths, each[0]) for each in lengths["by_length"]],
        by_length=[(each[0], each[1]) for each in lengths["by_length"]],
    )


def reach(lengths: NginxLengths, length: int) -> Reach:
    """What would be possible with values of at most this length. Counts are exact, but values."""
    short = [each for each in lengths["by_length"] if each[0] <= length]
    requests = sum(each[1] for each in short)
    # Estimated by length, so a sum may exceed what there is.
    distinct = min(requests, sum(each[4] for each in short))
    return Reach(
        length=length,
        requests=requests,
        distinct=distinct,
        repeats=requests - distinct,
        hit_ratio=ratio(requests - distinct, lengths["requests"]),
        served=sum(each[2] for each in short),
        upstream_s=sum(each[3] for each in short) / 1e6,
    )


def seed_report(found: Queries) -> str:
    """The blocks of seed 002, a blank line between them."""
    return "\n\n".join(point.text for point in found.points)


def page(found: Queries, *, has_times: bool, has_status: bool) -> Page:
    """What is said below the blocks."""
    had = f"{plural(found.requests, 'request')} had {found.what}, {count(found.absent)} had not"
    return Page(
        title="queries",
        sentences=[f"{had}; about {plural(found.distinct, 'value')}."],
        parts=[_reach_table(found, has_times, has_status), _length_table(found)],
        notes=[A_BOUND],
    )


def _reach_table(found: Queries, has_times: bool, has_status: bool) -> Table:
    head = ["at most", "requests", "values", "repeats", "possible hits"]
    head += ["are hits"] if has_status else []
    head += ["upstream"] if has_times else []
    return Table(
        title="If only values of at most so many characters were cached",
        head=head,
        rows=[list(_reach_row(each, found, has_times, has_status)) for each in found.reaches],
        note="Shares are of all requests that had it. The last line has all of them.",
    )


def _reach_row(each: Reach, found: Queries, has_times: bool, has_status: bool) -> Iterator[str]:
    yield str(each.length)
    yield percent(ratio(each.requests, found.requests))
    yield count(each.distinct)
    yield count(each.repeats)
    yield percent(each.hit_ratio)
    if has_status:
        yield percent(ratio(each.served, found.requests))
    if has_times:
        yield duration(each.upstream_s)


def chart(found: Queries, has_status: bool) -> Iterator[TabledChart]:
    """For HTML: what each length would reach."""
    shown = [each for each in found.every if each.length <= LONG]
    if len(shown) < 2:
        return
    curves: dict[str, Callable[[Reach], float | None]] = {
        "requests": lambda each: ratio(each.requests, found.requests),
        "possible hits": lambda each: each.hit_ratio,
        "are hits": lambda each: ratio(each.served, found.requests),
    }
    yield TabledChart(
        title="What a rule of length would reach",
        x_title="longest value that is cached, characters",
        y_title="share of requests, %",
        lines=[
            Line(name, [(each.length, 100 * (of(each) or 0.0)) for each in shown])
            for name, of in curves.items()
            if has_status or name != "are hits"
        ],
        ticks=[(each.length, str(each.length)) for each in shown],
        table=Table(
            "What a rule of length would reach",
            ["at most", "requests", "values", "possible hits"],
            [
                [
                    str(each.length),
                    percent(ratio(each.requests, found.requests)),
                    count(each.distinct),
                    percent(each.hit_ratio),
                ]
                for each in shown
            ],
        ),
    )


def _length_table(found: Queries) -> Table:
    longest = max((requests for _, requests in found.by_length), default=0)
    return Table(
        title="Lengths",
        head=["characters", "requests"],
        rows=[[str(length), count(requests)] for length, requests in _gathered(found.by_length)],
        text_columns=(),
        bars=[requests / longest for _, requests in _gathered(found.by_length)],
    )


def _gathered(by_length: Sequence[tuple[int, int]]) -> list[tuple[str, int]]:
    """Long values are few and of every length: together."""
    shown = [(str(length), requests) for length, requests in by_length if length <= LONG]
    more = sum(requests for length, requests in by_length if length > LONG)
    return [*shown, (f">{LONG}", more)] if more else shown


def _point(lengths: NginxLengths, at: int) -> Point:
    show = sum(each[1] for each in lengths["by_length"] if each[0] <= at)
    return Point(at, show, lengths["requests"] - show)
