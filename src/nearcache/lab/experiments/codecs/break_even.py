"""The break-even map: a grid for each payload, with the reader's own network marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from nearcache.lab.experiments.codecs.link_model import (
    Arm,
    Miss,
    arms,
    break_even_bytes_per_s,
    measured_link,
    misses,
    one_family,
    tied,
)
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.judging.words import LOUD_FLOOR
from nearcache.lab.statistics.stats import LEAST_FLOOR
from nearcache.lab.timers.link import Link
from nearcache.report.model import Grey, Grid, Table
from nearcache.report.units import NOTHING, quantity

RTTS_NS = (50e3, 200e3, 1e6, 5e6, 20e6)
RATES_BYTES_PER_S = tuple(bits * 1e9 / 8 for bits in (0.01, 0.1, 1, 10, 25))
POOR_MODEL = math.log(1.25)


def bits_per_s(bytes_per_s: float) -> str:
    """As networks are sold."""
    bits = bytes_per_s * 8
    for step, suffix in ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        if bits >= step:
            return f"{bits / step:.3g} {suffix}"
    return f"{bits:.3g} bit/s"


def reader_link(analysis: Analysis) -> Link | None:
    """Where the reader is: as told (``about["link"]``), else as measured in the run."""
    measured = measured_link(analysis)
    told = analysis.sample.about.get("link")
    if not told or measured is None:
        return measured
    rtt_ns = told.get("rtt_ns") or measured.rtt_ns
    return Link(rtt_ns, told.get("bytes_per_s") or measured.bytes_per_s, starts_slowly=True)


def grids(analysis: Analysis) -> list[Grid]:
    """One for each payload, the smallest first; none where noise would draw the map."""
    here, reader = measured_link(analysis), reader_link(analysis)
    if here is None or reader is None:
        return []
    fields = [
        one_family(analysis, arms(analysis, payload, here))
        for payload in analysis.sample.about["payloads"]
    ]
    several = [field for field in fields if len(field) > 1 and not _is_noisy(analysis, field)]
    return [_grid(analysis, field, reader) for field in sorted(several, key=_most_bytes)]


def _most_bytes(field: Sequence[Arm]) -> float:
    return max(arm.wire_bytes.get("get", 0.0) for arm in field)


def _floor(analysis: Analysis, field: Sequence[Arm]) -> float:
    return analysis.floor_between(*(arm.entry for arm in field))


def _is_noisy(analysis: Analysis, field: Sequence[Arm]) -> bool:
    return _floor(analysis, field) > LOUD_FLOOR


def _grid(analysis: Analysis, field: Sequence[Arm], reader: Link) -> Grid:
    floor = _floor(analysis, field)

    def word(rtt_ns: float, rate: float) -> str:
        link = Link(rtt_ns, rate, starts_slowly=True)
        found = tied(field, link, analysis.mix_shares, floor)
        return "any" if len(found) == len(field) else short_name(found[0].entry.name)

    payload = field[0].payload
    title = analysis.sample.about["payloads"][payload]
    return Grid(
        title=f"Which codec for {title} ({payload}), of {field[0].entry.family}",
        x_title="bandwidth",
        y_title="round trip",
        columns=[bits_per_s(rate) for rate in RATES_BYTES_PER_S],
        rows=[quantity(rtt, "ns") for rtt in RTTS_NS],
        words=[[word(rtt, rate) for rate in RATES_BYTES_PER_S] for rtt in RTTS_NS],
        here=(_nearest(RTTS_NS, reader.rtt_ns), _nearest(RATES_BYTES_PER_S, reader.bytes_per_s)),
        note=f"Of those within {math.expm1(floor):.0%} of the fastest the one with the fewest "
        f"steps; any: all are. You are at {quantity(reader.rtt_ns, 'ns')} and "
        f"{bits_per_s(reader.bytes_per_s)}: the nearest field is marked.",
    )


def short_name(name: str) -> str:
    """A candidate without the name of its library."""
    return name.removeprefix("nearcache-").removeprefix("django-redis-")


def _nearest(steps: Sequence[float], value: float) -> int:
    return min(range(len(steps)), key=lambda i: abs(math.log(steps[i] / value)))


def thresholds(analysis: Analysis) -> Table | None:
    """Below which bandwidth each compressor pays, beside the same serializer without one.

    None if none pays anywhere, or nothing is known: :func:`threshold_sentences` says which.
    """
    payloads = list(analysis.sample.about["payloads"])
    found = _thresholds(analysis)
    known = [p for p in payloads if any(p in row for row in found.values())]
    rows = [
        [name, *(_bandwidth(row[p]) if p in row else Grey(NOTHING) for p in known)]
        for name, row in found.items()
        if row
    ]
    if not any(rate for row in found.values() for rate in row.values()):
        return None
    return Table(
        title="Compression pays below this bandwidth",
        head=["", *known],
        rows=rows,
        note="Beside the same serializer without compressor, for the mix of gets and sets, by the "
        "model of the map without slow start. never: it does not get smaller.",
    )


def _thresholds(analysis: Analysis) -> dict[str, dict[str, float]]:
    """Compressing candidate -> payload -> bytes per second, where both of a pair are known."""
    here = measured_link(analysis)
    if here is None:
        return {}
    payloads = list(analysis.sample.about["payloads"])
    known = {p: {arm.entry.name: arm for arm in arms(analysis, p, here)} for p in payloads}
    pairs = {entry.name: plain_twin(analysis, entry.name) for entry in analysis.contenders}
    return {
        name: {
            payload: break_even_bytes_per_s(found[name], found[plain], analysis.mix_shares)
            for payload, found in known.items()
            if name in found and plain in found
        }
        for name, plain in pairs.items()
        if plain
    }


def threshold_sentences(analysis: Analysis) -> list[str]:
    """What there is no table for."""
    found = _thresholds(analysis)
    rates = [rate for row in found.values() for rate in row.values()]
    if not found or any(rates):
        return []
    if rates:
        return ["Compression pays at no bandwidth: no compressor makes these values smaller."]
    why = "of no pair, with a compressor and without, do both have their times and bytes"
    return [f"Below which bandwidth compression pays is not known: {why} for one payload."]


def plain_twin(analysis: Analysis, name: str) -> str | None:
    """The name of the candidate that differs only in not compressing."""
    compressor = analysis.sample.candidates[name].options.get("compressor", "none")
    if compressor == "none":
        return None
    plain = name[: name.rindex(f"-{compressor}")] if f"-{compressor}" in name else ""
    measured = {entry.name for entry in analysis.contenders}
    return plain if plain in measured else None


def _bandwidth(bytes_per_s: float) -> str:
    if bytes_per_s == 0:
        return "never"
    return "always" if math.isinf(bytes_per_s) else bits_per_s(bytes_per_s)


def model_sentences(analysis: Analysis) -> list[str]:
    """How far the model is from what was measured; none without a link."""
    here = measured_link(analysis)
    found = misses(analysis, here) if here else []
    if here is None or not found:
        return []
    return [_way_here(here), _how_good(found), *_too_noisy(analysis)]


def _too_noisy(analysis: Analysis) -> list[str]:
    floor = max(analysis.floors.values(), default=0.0)
    if floor <= LOUD_FLOOR:
        return []
    why = f"with a noise of {math.expm1(floor):.0%} it would show the noise"
    return [f"No map is drawn: {why}. Measure again on a quiet machine."]


def _way_here(here: Link) -> str:
    return (
        f"The way to the server of this run: {quantity(here.rtt_ns, 'ns')} for a PING on the bare "
        f"socket, {bits_per_s(here.bytes_per_s)} for large replies."
    )


def _how_good(found: Sequence[Miss]) -> str:
    middle = median(miss.size for miss in found)
    worst = max(found, key=lambda miss: miss.size)
    text = (
        f"The model behind the map, asked for the {len(found)} calls that were measured: half of "
        f"its answers are within {math.expm1(middle):.0%}; the worst is {worst.ratio:.2f} times "
        f"the truth ({worst.operation} of {worst.payload} by {worst.candidate})."
    )
    if middle > max(POOR_MODEL, LEAST_FLOOR):
        text += " That is poor: measure where you will run before you act on the map."
    return text
