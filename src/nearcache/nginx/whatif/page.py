"""Forecasts in words, tables and charts. Not here: any figure (``forecast.py``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil

from nearcache.nginx.config.read.units import format_time
from nearcache.nginx.whatif.curves import Curve, Point
from nearcache.nginx.whatif.forecast import Backtest, Forecast, Learned, WhatIf
from nearcache.report.model import Line, Mark, Page, Table, TabledChart
from nearcache.report.words import count, duration, percent, plural, ratio, size


def page(found: WhatIf) -> Page:
    """What a user reads."""
    rows = [found.today, *found.forecasts]
    tables = [_gains(found, rows), _prices(rows)] if found.forecasts else []
    drawn = [draw(found, curve) for curve in found.curves]
    return Page("What if", [*_sentences(found)], [*tables, *drawn], [*_notes(found)])


def _sentences(found: WhatIf) -> Iterator[str]:
    yield (
        f"{plural(found.requests, 'request')} in {duration(found.span_s)}, replayed through a "
        "model of nginx's cache."
    )
    if found.learned:
        yield _of_learned(found.learned)
    if found.backtest:
        yield _of_backtest(found.backtest)
    if found.refusal:
        yield f"No forecasts: {found.refusal}."
    elif found.forecasts:
        yield _of_best(found)


def _of_backtest(test: Backtest) -> str:
    return (
        f"Back-test: nginx answered {percent(test.logged)} from the cache, the model with today's "
        f"rules {percent(test.modelled)} (off by {points(test.error)} points; two "
        f"runs of this load differ by up to {bound(test.noise)}); "
        f"{percent(test.agreement)} of {plural(test.requests, 'request')} have the right status."
    )


def _of_learned(learned: Learned) -> str:
    usual, least = duration(learned.ttl_s), duration(learned.least_s)
    if learned.most_s is None:
        found = f"at least {least}, for nothing was ever too old"
    elif learned.least_s == learned.most_s:
        found = usual
    else:
        found = f"{usual}, and all from {least} to {duration(learned.most_s)} fit as well"
    against = percent(ratio(learned.contradicting, learned.evidence))
    return (
        "Nothing says how long responses live today. Learned from what nginx called fresh or too "
        f"old ({plural(learned.evidence, 'copy', 'copies')} of known age, {against} say "
        f"otherwise): {found}. That adds {points(learned.error)} points to the error; --ttl-now "
        "would say it for certain."
    )


def _of_best(found: WhatIf) -> str:
    best = max(found.forecasts, key=lambda each: each.hit_ratio)
    gain = best.hit_ratio - found.today.hit_ratio
    error = best.error
    if gain <= (error or 0):
        return "None of these would raise the hit ratio by more than the model's error."
    saved = (best.saved_s or 0.0) - (found.today.saved_s or 0.0)
    seconds = f", and save {duration(saved)} more of upstream time" if saved > 0 else ""
    return (
        f"Most: {best.name} would raise the hit ratio from {percent(found.today.hit_ratio)} to "
        f"{percent(best.hit_ratio)}{plus_minus(error)}{seconds}."
    )


RATIOS = (
    "hits: of requests, once the model's cache has warmed up. +-: the model's error today, how far "
    "two runs of this load differ, and the error of sampling."
)
SAVED = (
    "saved: upstream time that answers from the cache would have taken, each at the "
    "price of its URL, as in `report`."
)
NO_TIMES = "saved: nobody knows; the log has no times of fetches."


def _gains(found: WhatIf, rows: list[Forecast]) -> Table:
    today = found.today
    return Table(
        "What it brings",
        ["", "hits", "points", "+-", "of bytes", "saved", "fetches"],
        [
            [
                "today" if each is today else each.name,
                percent(each.hit_ratio),
                "" if each is today else f"{100 * (each.hit_ratio - today.hit_ratio):+.1f}",
                "?" if each.error is None else bound(each.error),
                percent(each.byte_hit_ratio),
                duration(each.saved_s),
                count(round(each.fetches)),
            ]
            for each in rows
        ],
        note=f"{RATIOS} {NO_TIMES if today.saved_s is None else SAVED}",
    )


def _prices(rows: list[Forecast]) -> Table:
    return Table(
        "What it costs",
        ["", "disk", "URLs", "asked once", "oldest", "outdated"],
        [
            [
                "today" if number == 0 else each.name,
                size(each.peak_bytes),
                count(round(each.keys)),
                percent(each.one_hit_keys / each.keys if each.keys else None),
                duration(each.oldest_s),
                percent(each.outdated),
            ]
            for number, each in enumerate(rows)
        ],
        note="disk: the most it held, in blocks of 4 kB. oldest: the oldest answer from the cache. "
        "outdated: answers whose origin had changed, estimated.",
    )


# -- curves


@dataclass(frozen=True)
class Axis:
    """How an axis is called, and its values written."""

    title: str
    x: str
    head: str
    shown: Callable[[float], str]
    is_log: bool = True
    unlimited: str = ""
    """What the last point is, where today has no limit."""


AXES = {
    "ttl_s": Axis(
        "Hit ratio over time to live", "time to live of every good response", "ttl", format_time
    ),
    "max_size_bytes": Axis(
        "Hit ratio over size",
        "max_size of the cache, on the disk",
        "max_size",
        size,
        unlimited="today: no limit",
    ),
    "max_length": Axis(
        "Hit ratio over a rule of length",
        "longest value that is cached, characters",
        "at most",
        "{:.0f}".format,
        is_log=False,
    ),
}


def draw(found: WhatIf, curve: Curve) -> TabledChart:
    """One curve, with its error to either side and what it costs in outdated answers."""
    axis = AXES[curve.axis]
    lines = []
    if all(point.error is not None for point in curve.points):
        lines += [
            _line("+ error", curve, lambda p: min(1.0, p.hit_ratio + (p.error or 0)), dashed=True),
            _line("- error", curve, lambda p: max(0.0, p.hit_ratio - (p.error or 0)), dashed=True),
        ]
    # Above its error, which may be thinner than itself.
    lines.append(_line("hit ratio", curve, lambda point: point.hit_ratio))
    lines.append(_line("outdated, of the hits", curve, lambda point: point.outdated))
    return TabledChart(
        title=axis.title,
        x_title=axis.x,
        y_title="share, %",
        lines=[line for line in lines if any(y is not None for _, y in line.points)],
        ticks=[(point.value, axis.shown(point.value)) for point in curve.points],
        marks=_marks(found, curve, axis),
        x_log=axis.is_log,
        table=_points_table(curve, axis),
        note=_curve_note(found, curve),
    )


def _line(
    name: str, curve: Curve, of: Callable[[Point], float | None], *, dashed: bool = False
) -> Line:
    shares = [(point.value, of(point)) for point in curve.points]
    return Line(name, [(x, None if y is None else 100 * y) for x, y in shares], dashed)


def _marks(found: WhatIf, curve: Curve, axis: Axis) -> list[Mark]:
    if curve.today is not None:
        learned = curve.axis == "ttl_s" and found.learned
        return [Mark(curve.today, "today, as learned" if learned else "today")]
    return [Mark(curve.points[-1].value, axis.unlimited)] if axis.unlimited else []


def _points_table(curve: Curve, axis: Axis) -> Table:
    return Table(
        axis.title,
        [axis.head, "hits", "+-", "of bytes", "saved", "outdated", "oldest"],
        [
            [
                axis.shown(point.value) + (" (today)" if point.value == curve.today else ""),
                percent(point.hit_ratio),
                "?" if point.error is None else bound(point.error),
                percent(point.byte_hit_ratio),
                duration(point.saved_s),
                percent(point.outdated),
                duration(point.oldest_s),
            ]
            for point in curve.points
        ],
    )


def _curve_note(found: WhatIf, curve: Curve) -> str:
    if curve.axis == "ttl_s" and curve.points[-1].value > found.warm_up_s:
        return (
            f"Where the time to live is longer than the warm-up ({duration(found.warm_up_s)}), the "
            "true hit ratio is higher: what was fetched before the log is not known."
        )
    return ""


def _notes(found: WhatIf) -> Iterator[str]:
    if found.forecasts or found.curves:
        today = found.today
        yield (
            "the cache is taken to be empty when the log begins; the first "
            f"{duration(found.warm_up_s)} are left out of the hit ratios. With them "
            f"today's is {percent(today.hit_ratio_all)}"
        )
        yield _of_changes(found)
    if found.backtest and found.backtest.disagreements and not found.backtest.is_good:
        wrong = "; ".join(
            f"{many:,} logged {logged} modelled {modelled}"
            for logged, modelled, many in found.backtest.disagreements[:3]
        )
        yield f"where the model is wrong: {wrong}"
    if found.forecasts and not found.backtest:
        yield "nothing tests these forecasts: the log has no cache status"
    merged = {each.change.key: each for each in found.forecasts if each.change.key}
    for rule, each in merged.items():
        yield (
            f"key {rule}: {plural(round(each.merged_keys), 'key')} become one with others. "
            "Whether their answers are equal the log does not know; `nearcache nginx inspect` "
            "compares bodies"
        )
    if found.rate < 1:
        yield (
            f"{found.rate:.2%} of all URLs were followed (sampled by hash); the error of that is "
            f"{points(max(each.sampling_error for each in [found.today, *found.forecasts]))} points"
        )
    yield from found.notes
    yield from (f"assumed: {each}" for each in found.assumed)


def _of_changes(found: WhatIf) -> str:
    if found.changes_per_hour is None:
        return (
            f"only {plural(found.refetches, 'response')} were fetched again, too few to tell how "
            "often they change: what is outdated is not known"
        )
    return (
        f"of {plural(found.refetches, 'response')} fetched again, {count(found.changed)} had "
        "another size; changes that keep the size are not seen"
    )


def points(share: float) -> str:
    return f"{100 * share:.1f}"


def bound(error: float) -> str:
    """An error in points, rounded up: none is so small that it is nothing."""
    return f"{max(1, ceil(1000 * error - 1e-9)) / 10:.1f}"


def plus_minus(error: float | None) -> str:
    return " (untested)" if error is None else f" +- {bound(error)} points"
