"""Disks side by side, operation by operation; what one sequential number would have hidden."""

from __future__ import annotations

from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.judging.reading import cell_of, compared, measure_of
from nearcache.lab.judging.words import span
from nearcache.lab.results.sample import Entry, distribution_of
from nearcache.lab.statistics.stats import Effect, Verdict
from nearcache.lab.views import Views
from nearcache.report.model import Chart, Line, Table
from nearcache.report.units import NOTHING, quantity, short
from nearcache.report.words import listed

PERCENTILES = (10.0, 25.0, 50.0, 75.0, 90.0, 99.0, 99.9)
SEQUENTIAL = ("sequential_cached", "sequential_uncached")
TAIL_NEEDS = 1000
Compared = dict[str, tuple[Effect, Verdict]]  # operation -> one disk against the baseline


def views(analysis: Analysis) -> Views:
    payload = next(iter(analysis.sample.about["payloads"]))
    parts: list[Table | Chart] = [_provenance(analysis)]
    sentences = list(_same_device(analysis))
    for entry in _others(analysis):
        found = _compared(analysis, entry, payload)
        if found:
            parts.append(_ratios(analysis, entry, found))
            sentences += _spread(analysis, entry, found)
            sentences += _page_cache(analysis, entry, found)
    sentences += _sequential(analysis, payload)
    parts += [_distribution(analysis, name, payload) for name in _shown(analysis)]
    return Views(sentences=sentences, parts=parts)


def _provenance(analysis: Analysis) -> Table:
    names = ("file system", "mounted", "device", "uncached reads")
    rows = [
        [entry.name, *(entry.facts.get(name, NOTHING) for name in names)]
        for entry in analysis.contenders
    ]
    return Table(
        title="What these paths lie on",
        head=["", *names],
        rows=rows,
        text_columns=tuple(range(len(names) + 1)),
    )


def _ratios(analysis: Analysis, entry: Entry, found: Compared) -> Table:
    rows = [
        [name, _ratio(*pair), pair[1]]
        for name, pair in sorted(found.items(), key=lambda item: -item[1][0].ratio)
    ]
    return Table(
        title=f"How many times the time of {analysis.baseline} {entry.name} takes (95 %)",
        head=["", "times", ""],
        rows=rows,
        text_columns=(0, 2),
        note="Each operation for itself. No row is an average of others: what is the same at one "
        "and slower at another is not the same.",
    )


def _distribution(analysis: Analysis, operation: str, payload: str) -> Chart:
    lines = []
    for entry in analysis.contenders:
        cell = cell_of(analysis, entry.name, operation, payload)
        if cell is not None and cell.count:
            ranks = [rank for rank in PERCENTILES if rank < 99 or cell.count >= TAIL_NEEDS]
            found = distribution_of(cell)
            points = [(rank, found.percentile(rank) / 1000) for rank in ranks]
            lines.append(Line(name=entry.name, points=points, family=entry.family))
    return Chart(
        title=f"Distribution: {analysis.sample.about['operations'][operation]['title']}",
        x_title="percentile",
        y_title="\N{MICRO SIGN}s",
        lines=lines,
        y_log=True,
    )


def _same_device(analysis: Analysis) -> list[str]:
    """Paths on one file system are one disk under two names."""
    by_device: dict[str, list[str]] = {}
    for entry in analysis.contenders:
        if "device" in entry.facts:
            by_device.setdefault(entry.facts["device"], []).append(entry.name)
    return [
        f"{' and '.join(names)} lie on the same file system (device {device.partition(',')[0]}): "
        "whatever they differ by here is noise."
        for device, names in by_device.items()
        if len(names) > 1
    ]


def _spread(analysis: Analysis, entry: Entry, found: Compared) -> list[str]:
    """How differently the operations answer which disk is faster."""
    told = {name: pair[0].ratio for name, pair in found.items() if pair[1] in ("faster", "slower")}
    same = [name for name, pair in found.items() if pair[1] == "same"]
    if not told:
        return [f"This run cannot tell {entry.name} from {analysis.baseline} at anything."]
    least, most = min(told, key=lambda n: told[n]), max(told, key=lambda n: told[n])
    text = f"{entry.name} takes {short(told[most])} times the time of {analysis.baseline} at {most}"
    if least != most:
        text += f" and {short(told[least])} times at {least}"
    if same:
        text += f"; at {listed(same)} they do not differ beyond the noise"
    return [f"{text}."]


def _page_cache(analysis: Analysis, entry: Entry, found: Compared) -> list[str]:
    cached, uncached = found.get("read_cached"), found.get("read_uncached")
    if cached is None or uncached is None:
        return []
    how = entry.facts.get("uncached reads", NOTHING)
    text = f"Small reads of {entry.name} beside {analysis.baseline}: {_times(*cached)} when the "
    text += f"page cache answers and {_times(*uncached)} when it does not ({how})"
    return [f"{text}: a benchmark with small files measures the first, and that is memory."]


def _sequential(analysis: Analysis, payload: str) -> list[str]:
    """Bandwidths, as hdparm -T and -t would give them."""
    sentences = []
    for entry in analysis.contenders:
        cells = [cell_of(analysis, entry.name, operation, payload) for operation in SEQUENTIAL]
        cached, uncached = (measure_of(cell, "bandwidth") for cell in cells)
        if cached is not None and uncached is not None:
            sentences.append(
                f"{entry.name} reads {quantity(cached, 'bytes/s')} from the page cache and "
                f"{quantity(uncached, 'bytes/s')} past it"
            )
    if not sentences:
        return []
    return [f"{'; '.join(sentences)}: these two numbers are all that hdparm -T and -t say."]


def _compared(analysis: Analysis, entry: Entry, payload: str) -> Compared:
    pairs = {
        operation: compared(analysis, entry.name, analysis.baseline, operation, payload)
        for operation in analysis.sample.about["operations"]
    }
    return {operation: pair for operation, pair in pairs.items() if pair is not None}


def _others(analysis: Analysis) -> list[Entry]:
    return [entry for entry in analysis.contenders if entry.name != analysis.baseline]


def _shown(analysis: Analysis) -> list[str]:
    wanted = ("get_file", "put_file", "read_uncached", "fsync")
    return [name for name in wanted if name in analysis.sample.about["operations"]]


def _ratio(effect: Effect, verdict: Verdict) -> str:
    if verdict == "same":
        return "the same"
    mark = "?" if verdict == "unclear" else ""
    return f"{short(effect.ratio)}{mark} {span(effect)}"


def _times(effect: Effect, verdict: Verdict) -> str:
    text = _ratio(effect, verdict)
    return "no different beyond the noise" if verdict == "same" else f"{text} times the time"
