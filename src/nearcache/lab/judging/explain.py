"""Why something was faster, or was not: sentences made from parts and CPU times.

A part that two candidates share cannot tell them apart, and one that is a tenth of the
whole cannot save a half. Saying so answers what three of the articles were left wondering about.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from nearcache.lab.base.model import NO_PAYLOAD
from nearcache.lab.judging.analysis import Analysis, Contrast
from nearcache.lab.results.sample import Series
from nearcache.lab.statistics.stats import Points
from nearcache.report.units import quantity

MOSTLY = 0.5  # of the whole; less, and what was not taken apart is most of it
NAMED = 0.1  # parts below this share of the whole are not worth a word
WORDS = {
    "key": "building the key",
    "encode": "encoding",
    "decode": "decoding",
    "client": "the client's own code",
    "network": "the way to the server and back",
    "server": "the server's command",
    "network and server": "the server and the way to it",
    "rest": "waiting and what is left",
}


@dataclass(frozen=True)
class Split:
    """One operation of one candidate: where its time goes, medians over processes, in ns."""

    candidate: str
    parts: dict[str, float]

    @property
    def whole(self) -> float:
        return sum(self.parts.values())

    def largest(self) -> list[tuple[str, float]]:
        """The parts worth naming, largest first, as shares."""
        shares = ((name, cost / self.whole) for name, cost in self.parts.items())
        return sorted((pair for pair in shares if pair[1] >= NAMED), key=lambda pair: -pair[1])


def split_of(analysis: Analysis, candidate: str, operation: str, payload: str) -> Split | None:
    """None if this cell was not taken apart, or is void."""
    cell = analysis.sample.cells.get((candidate, operation, payload))
    if cell is None or not cell.parts or analysis.void(candidate, operation, payload):
        return None
    split = Split(candidate, {name: _middle(series) for name, series in cell.parts.items()})
    return split if split.whole > 0 else None


def explain_one(analysis: Analysis, candidate: str, operation: str, payload: str) -> str:
    """What one operation spends its time on; empty if it was not taken apart."""
    split = split_of(analysis, candidate, operation, payload)
    if split is None:
        return ""
    parts = ", ".join(f"{share:.0%} {_words(name)}" for name, share in split.largest())
    taken = _taken_apart(analysis, split, operation, payload)
    return f"{candidate}, {_what(analysis, operation, payload)}: {taken}{parts}."


def _taken_apart(analysis: Analysis, split: Split, operation: str, payload: str) -> str:
    """Where parts are far from the whole: shares of them are no shares of it."""
    cost = _median(analysis.sample.cells[split.candidate, operation, payload].points)
    if split.whole >= MOSTLY * cost:
        return ""
    return f"of its {quantity(cost, 'ns')}, {quantity(split.whole, 'ns')} were taken apart: "


def explain_pair(analysis: Analysis, contrast: Contrast, operation: str, payload: str) -> str:
    """Why the first of a pair was faster or slower here than the second, or neither."""
    a, b = contrast.a.name, contrast.b.name
    splits = [split_of(analysis, name, operation, payload) for name in (a, b)]
    first, second = splits
    effect = analysis.compare(a, b, operation, payload)
    if first is None or second is None or effect is None:
        return ""
    floor = analysis.floor_between(contrast.a, contrast.b, operation=operation)
    what = _what(analysis, operation, payload)
    moved = _largest_change(first, second)
    if abs(effect.log_ratio) <= floor or effect.log_low <= 0 <= effect.log_high:
        alike = _words(first.largest()[0][0]) if first.largest() else "no part"
        return (
            f"{a} was not told apart from {b} in {what}: of its {quantity(first.whole, 'ns')}, "
            f"most is {alike} ({_share(first)}), and the part that differs most, "
            f"{_words(moved[0])}, differs by {quantity(abs(moved[1]), 'ns')}."
        )
    word = "slower" if effect.log_ratio > 0 else "faster"
    total = analysis.shift(a, b, operation, payload)
    by = f" by {quantity(abs(total.value), 'ns')}" if total else ""
    over_all = _over_all(contrast)
    if not _parts_agree(first, second, total.value if total else 0.0):
        return (
            f"{a} was {word} than {b} in {what}{by}{over_all}; its parts, measured at another "
            "moment, do not show where."
        )
    return (
        f"{a} was {word} than {b} in {what}{by}{over_all}; most of the difference is "
        f"{_words(moved[0])} ({quantity(abs(moved[1]), 'ns')} of "
        f"{quantity(max(first.whole, second.whole), 'ns')})."
    )


def _over_all(contrast: Contrast) -> str:
    """One operation may differ where the whole does not: then it may be chance."""
    if contrast.verdict in ("same", "unclear"):
        return ", which may be chance: over all operations they were not told apart"
    return ""


def explanations(analysis: Analysis, operation: str = "get") -> list[str]:
    """One sentence for each pair of the experiment's contrasts that was taken apart."""
    payload = next(iter(analysis.sample.about["payloads"]), NO_PAYLOAD)
    pairs = [pair for found in analysis.contrasts.values() for pair in found]
    found = [explain_pair(analysis, pair, operation, payload) for pair in pairs]
    return [sentence for sentence in found if sentence]


def _largest_change(a: Split, b: Split) -> tuple[str, float]:
    names = dict.fromkeys([*a.parts, *b.parts])
    changes = {name: a.parts.get(name, 0.0) - b.parts.get(name, 0.0) for name in names}
    towards = 1 if a.whole >= b.whole else -1
    name = max(changes, key=lambda part: towards * changes[part])
    return name, changes[name]


def _parts_agree(a: Split, b: Split, shift_ns: float) -> bool:
    """Do the parts differ as the samples do: in the same direction, by half to twice as much?"""
    return bool(shift_ns) and 0.5 <= (a.whole - b.whole) / shift_ns <= 2


def _share(split: Split) -> str:
    return f"{split.largest()[0][1]:.0%}" if split.largest() else "none above a tenth"


def _what(analysis: Analysis, operation: str, payload: str) -> str:
    title = analysis.sample.about["payloads"].get(payload)
    return f"{operation} of a {title}" if title else operation


def _words(part: str) -> str:
    return WORDS.get(part, part)


def _middle(series: Series) -> float:
    return _median(series.points)


def _median(points: Points) -> float:
    return median(value for rounds in points.values() for value in rounds.values())
