"""One colour for each candidate, the same in every chart, on light and on dark ground."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence

from nearcache.lab.sample import Entry

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
# Apart from each other in hue or in lightness, and readable on white and on near-black.
PALETTE = (
    "#3b82f6", "#ef4444", "#10b981", "#f59e0b", "#8b5cf6", "#ec4899",
    "#06b6d4", "#84cc16", "#f97316", "#6366f1", "#a16207", "#64748b",
)  # fmt: skip
LIGHTEST, DARKEST = 0.68, 0.36


def colours_of(entries: Sequence[Entry]) -> dict[str, str]:
    """Name -> colour. Few candidates have one each, many share the hue of their family."""
    originals = [entry for entry in entries if entry.twin_of is None]
    if len(originals) <= len(PALETTE):
        found = {e.name: PALETTE[number] for number, e in enumerate(originals)}
    else:
        found = _by_family(originals)
    return found | {e.name: found.get(e.twin_of or "", PALETTE[-1]) for e in entries if e.twin_of}


def family_colours(entries: Sequence[Entry]) -> dict[str, str]:
    families = dict.fromkeys(entry.family for entry in entries)
    return {
        family: FAMILIES.get(family, PALETTE[number % len(PALETTE)])
        for number, family in enumerate(families)
    }


def _by_family(entries: Sequence[Entry]) -> dict[str, str]:
    found = {}
    for family, base in family_colours(entries).items():
        members = [entry.name for entry in entries if entry.family == family]
        for number, name in enumerate(members):
            found[name] = _shade(base, number, len(members))
    return found


def _shade(base: str, number: int, count: int) -> str:
    """The same hue, from dark to light over the members of a family."""
    if count == 1:
        return base
    red, green, blue = (int(base[i : i + 2], 16) / 255 for i in (1, 3, 5))
    hue, _, saturation = colorsys.rgb_to_hls(red, green, blue)
    lightness = DARKEST + (LIGHTEST - DARKEST) * number / (count - 1)
    parts = colorsys.hls_to_rgb(hue, lightness, saturation)
    return "#" + "".join(f"{round(255 * part):02x}" for part in parts)
