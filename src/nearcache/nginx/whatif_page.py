"""Forecasts in words and tables. Not here: any figure (``whatif.py``)."""

from __future__ import annotations

from collections.abc import Iterator

from nearcache.nginx.text import Page, Table, count, duration, percent, plural, size
from nearcache.nginx.whatif import Backtest, Forecast, WhatIf


def page(found: WhatIf) -> Page:
    """What a user reads."""
    rows = [found.today, *found.forecasts]
    parts = [_gains(found, rows), _prices(rows)] if found.forecasts else []
    return Page("What if", [*_sentences(found)], parts, [*_notes(found)])


def _sentences(found: WhatIf) -> Iterator[str]:
    yield (
        f"{plural(found.requests, 'request')} in {duration(found.span_s)}, replayed through a "
        "model of nginx's cache."
    )
    if found.backtest:
        yield _of_backtest(found.backtest)
    if found.refusal:
        yield f"No forecasts: {found.refusal}."
    elif found.forecasts:
        yield _of_best(found)


def _of_backtest(test: Backtest) -> str:
    return (
        f"Back-test: nginx answered {percent(test.logged)} from the cache, the model with today's "
        f"rules {percent(test.modelled)} (off by {points(test.error)} points); "
        f"{percent(test.agreement)} of {plural(test.requests, 'request')} have the right status."
    )


def _of_best(found: WhatIf) -> str:
    best = max(found.forecasts, key=lambda each: each.hit_ratio)
    gain = best.hit_ratio - found.today.hit_ratio
    error = best.error
    if gain <= (error or 0):
        return "None of these would raise the hit ratio by more than the model's error."
    saved = best.saved_s - found.today.saved_s
    seconds = f", and save {duration(saved)} more of upstream time" if saved > 0 else ""
    return (
        f"Most: {best.name} would raise the hit ratio from {percent(found.today.hit_ratio)} to "
        f"{percent(best.hit_ratio)}{plus_minus(error)}{seconds}."
    )


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
                "?" if each.error is None else points(each.error),
                percent(each.byte_hit_ratio),
                duration(each.saved_s),
                count(round(each.fetches)),
            ]
            for each in rows
        ],
        note="hits: of requests, once the model's cache has warmed up. +-: the model's error "
        "today, and that of sampling. saved: upstream time that answers from the cache "
        "would have taken.",
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


def _notes(found: WhatIf) -> Iterator[str]:
    if found.forecasts:
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


def plus_minus(error: float | None) -> str:
    return " (untested)" if error is None else f" +- {points(error)} points"
