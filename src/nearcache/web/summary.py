"""What the samples say: one line for each alias, with what is too little to say left open.

Times are of reads that were answered and right. The first reads of every worker process
are counted apart (``WARM_UP``); misses, errors and wrong answers have no time at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nearcache.report.units import quantity
from nearcache.web.bench import Bench, series
from nearcache.web.buckets import filled, percentile_ns, stdev_ns
from nearcache.web.finding import LEAST_READS, Timed, rank
from nearcache.web.samples import Series

FORMAT = 1  # of the JSON
# With fewer samples than these a number would be a guess.
P90_NEEDS, P99_NEEDS, STDEV_NEEDS = 10, 100, 2
NOT_YET = "not yet"


@dataclass(frozen=True, kw_only=True)
class Line:
    """One alias. Times in ns; None where there are too few samples."""

    alias: str
    attempted: int  # reads, the first of every worker included
    recorded: int  # of these: settled one way or another
    lost: int  # under way in a worker that was killed
    times: int  # samples behind the numbers below
    average: float | None
    median: float | None
    p90: float | None
    p99: float | None
    max: float | None
    stdev: float | None
    misses: int
    errors: int
    wrong: int
    size_bytes: int | None
    cold_times: int
    cold_median: float | None
    writes: int
    write_median: float | None
    write_errors: int
    counts: Sequence[tuple[float, int]]  # (ns, how often) of the buckets that hold something


Value = Callable[[Line], float | None]
CHARTS: Sequence[tuple[str, str, Value]] = (  # the name on the page, and the articles' name
    ("Average", "Best Averages", lambda line: line.average),
    ("Median", "Best Medians", lambda line: line.median),
    ("P90", "Best P90", lambda line: line.p90),
    ("P99", "Best P99", lambda line: line.p99),
    ("Size of data saved", "Size of Data Saved", lambda line: line.size_bytes),
)


def in_order(lines: Sequence[Line], value: Value) -> tuple[list[tuple[float, str]], list[str]]:
    """Who has this value, the shortest first, each with it; and who has none yet."""
    known = [(found, line.alias) for line in lines if (found := value(line)) is not None]
    return sorted(known), [line.alias for line in lines if value(line) is None]


@dataclass(frozen=True, kw_only=True)
class Summary:
    lines: Sequence[Line]
    payload: str
    write_chance: float
    warm_up: int

    @property
    def attempted(self) -> int:
        return sum(line.attempted for line in self.lines)

    @property
    def recorded(self) -> int:
        return sum(line.recorded for line in self.lines)

    @property
    def lost(self) -> int:
        return sum(line.lost for line in self.lines)

    def sentence(self) -> str:
        """The finding, as far as there is one."""
        if not self.attempted:
            return "No reads yet: every hit of random, or of a cache's own address, makes one."
        bad = [line.alias for line in self.lines if line.wrong or line.errors]
        trouble = (
            f" Not to be trusted: {', '.join(bad)}, with errors; the server's log says which."
            if bad
            else ""
        )
        return self._finding() + trouble

    def _finding(self) -> str:
        timed = [Timed(line.alias, line.counts) for line in self.lines]
        known = [each for each in timed if each.reads >= LEAST_READS]
        few = [each.alias for each in timed if each.reads < LEAST_READS]
        if len(known) < 2:
            return f"Too few reads yet to compare anything: a cache needs {LEAST_READS}."
        found = rank(known)
        left = f" Too few reads yet of {', '.join(few)}." if few else ""
        (best, name), (worst, last) = found.ordered[0], found.ordered[-1]
        names = ", ".join(found.fastest)
        if len(found.fastest) == len(found.ordered):
            return f"No difference between {names} that these reads could show.{left}"
        if len(found.fastest) > 1:
            return (
                f"No difference between the fastest, {names}; the median of {last} is "
                f"{worst / best:.3g} times the shortest.{left}"
            )
        return (
            f"{name} has the shortest median, {duration(best)}; {last} takes "
            f"{worst / best:.3g} times as long.{left}"
        )


def summarize(bench: Bench) -> Summary:
    totals = bench.store.totals()
    return Summary(
        lines=[_line(alias, *(totals[name] for name in series(alias))) for alias in bench.aliases],
        payload=bench.payload.title,
        write_chance=bench.options.write_chance,
        warm_up=bench.options.warm_up,
    )


def _line(alias: str, cold: Series, warm: Series, write: Series) -> Line:
    reads = cold + warm
    counts = warm.counts
    n = sum(counts)
    longest = float(warm.max_ns)

    def percentile(rank: float, needs: int) -> float | None:
        # A bucket's middle may lie beyond the greatest value that is in it.
        return min(percentile_ns(counts, rank), longest) if n >= needs else None

    return Line(
        alias=alias,
        attempted=reads.attempted,
        recorded=reads.attempted - reads.under_way - reads.lost,
        lost=reads.lost,
        times=n,
        average=warm.sum_ns / warm.done if warm.done else None,
        median=percentile(50, 1),
        p90=percentile(90, P90_NEEDS),
        p99=percentile(99, P99_NEEDS),
        max=longest if n else None,
        stdev=stdev_ns(counts) if n >= STDEV_NEEDS else None,
        misses=reads.missed,
        errors=reads.failed,
        wrong=reads.wrong,
        size_bytes=write.stored_bytes or None,
        cold_times=cold.done,
        cold_median=percentile_ns(cold.counts, 50) if sum(cold.counts) else None,
        writes=write.done,
        write_median=percentile_ns(write.counts, 50) if sum(write.counts) else None,
        write_errors=write.failed,
        counts=list(filled(counts)),
    )


def as_json(summary: Summary) -> dict[str, Any]:
    """Times in ns, sizes in bytes; null where there are too few samples."""
    lines = [
        {k: v for k, v in vars(line).items() if k != "counts"}
        | {"histogram": [[ns, count] for ns, count in line.counts]}
        for line in summary.lines
    ]
    about = {k: v for k, v in vars(summary).items() if k != "lines"}
    counted = {name: getattr(summary, name) for name in ("attempted", "recorded", "lost")}
    return {"format": FORMAT, **about, **counted, "aliases": lines}


def duration(ns: float | None) -> str:
    """``1234567`` as ``1.23 ms``."""
    return NOT_YET if ns is None else quantity(ns, "ns")


def size(amount: float | None) -> str:
    """Bytes as the articles printed them: ``60K``."""
    if amount is None:
        return NOT_YET
    for unit in ("", "K", "M"):
        if amount < 1000:
            return f"{amount:.3g}{unit}"
        amount /= 1000
    return f"{amount:.3g}G"
