"""One colour for each candidate, the same in every chart, on light and on dark ground."""

from __future__ import annotations

from collections.abc import Sequence

from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.reports.tables import in_order
from nearcache.lab.results.sample import Entry

FAMILIES = {
    "memory": "#64748b",
    "shared memory": "#8b5cf6",
    "files": "#b45309",
    "memcached": "#0d9488",
    "redis": "#dc2626",
    "django-redis": "#2563eb",
    "nearcache redis": "#d946ef",
    "yours": "#db2777",
}
# Neighbours differ in hue, also for most who see fewer hues. Each has a contrast of at least three
# to one (WCAG 1.4.11) with white and with the near-black of cards.
PALETTE = (
    "#3b82f6", "#ea580c", "#059669", "#ec4899", "#8b5cf6",
    "#b07d05", "#0891b2", "#ef4444", "#65a30d", "#64748b",
)  # fmt: skip
SHADES = (0.0, -0.3, 0.3)  # of one turn through the palette after the other: black, then white


def colours_of(analysis: Analysis) -> dict[str, str]:
    """Name -> colour.

    Few candidates have theirs by the order of the experiment, so that it is the same in every run.
    Of many it is by rank: those that a page shows at first must be told apart.
    """
    originals = [entry for entry in analysis.measured if entry.twin_of is None]
    if len(originals) > len(PALETTE):
        places = {entry.name: place for place, entry in enumerate(in_order(analysis))}
        originals.sort(key=lambda entry: places.get(entry.name, len(places)))
    found = {entry.name: _colour(number) for number, entry in enumerate(originals)}
    twins = {e.name: found.get(e.twin_of, PALETTE[-1]) for e in analysis.measured if e.twin_of}
    return found | twins


def family_colours(entries: Sequence[Entry]) -> dict[str, str]:
    families = dict.fromkeys(entry.family for entry in entries)
    return {
        family: FAMILIES.get(family, PALETTE[number % len(PALETTE)])
        for number, family in enumerate(families)
    }


def _colour(number: int) -> str:
    turn, place = divmod(number, len(PALETTE))
    return _mixed(PALETTE[place], SHADES[turn % len(SHADES)])


def _mixed(colour: str, share: float) -> str:
    """With this share of white, or of black if it is negative."""
    other = 255 if share > 0 else 0
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(p + (other - p) * abs(share)):02x}" for p in parts)
