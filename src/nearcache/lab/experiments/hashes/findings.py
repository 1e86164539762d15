"""Bytes for every id by layout, the knee, growth, memory against CPU, and what was tried."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.judging.reading import cell_of, measure_of, point_of
from nearcache.lab.results.sample import Entry
from nearcache.lab.views import Views
from nearcache.report.model import Chart, Line, Mark, Table
from nearcache.report.units import NOTHING, quantity, short

CHARTED = re.compile(r"at ([\d,]+) ids")  # a measure of the memory cell: what was used then
GROWING = ("plain", "bucket-1000", "bucket-500", "bucket-1000-of-1024")
RULE = "rule: "
KNEEDLE = (
    "knee by Kneedle (Satopää, Albrecht, Irwin, Raghavan 2011): the point farthest below the "
    "straight line between the ends, both axes scaled to 1, fields in logarithms"
)
SAME_SHARE = 0.02  # less is no difference in memory
Finding = Callable[["Shown"], list[str]]


@dataclass(frozen=True)
class Layout:
    """One layout as it was measured on the main data."""

    entry: Entry
    payload: str
    bucket: int
    bytes_per_id: float
    read_ns: float | None  # the server's own time
    write_ns: float | None

    @property
    def is_compact(self) -> bool:
        return "hashtable" not in self.encoding and self.bucket > 0

    @property
    def encoding(self) -> str:
        return self.entry.facts.get(f"encoding, {self.payload}", "")

    @property
    def is_raised(self) -> bool:
        return bool(self.entry.options.get("entries_limit"))


@dataclass(frozen=True)
class Shown:
    analysis: Analysis
    payload: str
    layouts: list[Layout]

    def named(self, name: str) -> Layout | None:
        return next((each for each in self.layouts if each.entry.name == name), None)

    @property
    def plain(self) -> Layout | None:
        return self.named("plain")

    @property
    def limits(self) -> str:
        plain = self.plain
        return plain.entry.proof.get("limits", "") if plain else ""

    @property
    def swept(self) -> list[Layout]:
        """Hashes under the limit that the server came with, by size."""
        found = [each for each in self.layouts if each.bucket and not each.is_raised]
        return sorted(found, key=lambda each: each.bucket)


def views(analysis: Analysis) -> Views:
    payload = _main_payload(analysis)
    if payload is None:
        return Views()
    shown = Shown(analysis, payload, _layouts(analysis, payload))
    findings: tuple[Finding, ...] = (
        _saving, _threshold, _not_plain, _allocation, _raised, _processor, _turning, _fields,
        _values, _sticky,
    )  # fmt: skip
    sentences = [sentence for finding in findings for sentence in finding(shown)]
    parts: list[Table | Chart] = [_table(shown)]
    if len(shown.swept) > 2:
        parts += [_by_size(shown), _pareto(shown)]
    growth = _growth(shown)
    parts += [growth] if growth.lines else []
    parts += [table for table in (_other_data(shown), _rules(shown)) if table.rows]
    return Views(sentences=sentences, parts=parts)


def _main_payload(analysis: Analysis) -> str | None:
    with_memory = {
        cell.payload
        for cell in analysis.sample.cells.values()
        if cell.points and not analysis.void(cell.candidate, cell.operation, cell.payload)
    }
    return next((name for name in analysis.sample.about["payloads"] if name in with_memory), None)


def _layouts(analysis: Analysis, payload: str) -> list[Layout]:
    found = []
    for entry in analysis.contenders:
        weight = point_of(analysis, entry.name, "memory", payload)
        if weight is not None and "bucket" in entry.facts:
            own = [
                point_of(analysis, entry.name, name, payload)
                for name in ("server_read", "server_write")
            ]
            found.append(Layout(entry, payload, int(entry.facts["bucket"]), weight, *own))
    return sorted(found, key=lambda each: (each.bucket, each.is_raised))


# -- sentences -------------------------------------------------------------------------------------


def _saving(shown: Shown) -> list[str]:
    plain, compact = shown.plain, [each for each in shown.layouts if each.is_compact]
    if plain is None or not compact:
        return []
    best = min(compact, key=lambda each: each.bytes_per_id)
    count = _ids(shown)
    sentence = (
        f"{count:,.0f} ids take {quantity(plain.bytes_per_id * count, 'bytes')} as keys of their "
        f"own and {quantity(best.bytes_per_id * count, 'bytes')} in hashes of {best.bucket} "
        f"fields: {short(plain.bytes_per_id / best.bytes_per_id)} times less."
    )
    return [sentence]


def _threshold(shown: Shown) -> list[str]:
    """502 or 512?"""
    pairs = zip(shown.swept, shown.swept[1:], strict=False)
    jump = next(((a, b) for a, b in pairs if a.is_compact and not b.is_compact), None)
    if jump is None:
        return []
    last, first = jump
    sentence = (
        f"The jump is between {last.bucket} fields ({short(last.bytes_per_id)} bytes an id, "
        f"{last.encoding}) and {first.bucket} ({short(first.bytes_per_id)}, {first.encoding}); "
        f"the server says {shown.limits}."
    )
    if first.bucket == last.bucket + 1:
        sentence += f" So {last.bucket} still fit"
        sentence += ", and the 502 of the article was no threshold." if last.bucket > 502 else "."
    return [sentence]


def _not_plain(shown: Shown) -> list[str]:
    """The article says that what is too large is stored "as plain key values"."""
    plain = shown.plain
    large = next((each for each in shown.swept if not each.is_compact), None)
    if plain is None or large is None:
        return []
    saved = _saved(large.bytes_per_id, plain.bytes_per_id)
    return [f"A hash above the limit is a hash table and not plain keys, and saves {saved}."]


def _allocation(shown: Shown) -> list[str]:
    """Does a large limit allocate in advance?"""
    small, large = shown.named("bucket-100"), shown.named("bucket-100-of-10000")
    if small is None or large is None:
        return []
    difference = large.bytes_per_id / small.bytes_per_id - 1
    text = f"Hashes of 100 fields take {short(small.bytes_per_id)} bytes an id, and "
    text += f"{short(large.bytes_per_id)} with a limit of 10,000: a large limit "
    verb = "allocates nothing in advance" if abs(difference) < SAME_SHARE else "changes memory"
    return [f"{text}{verb}."]


def _raised(shown: Shown) -> list[str]:
    before, after = shown.named("bucket-1000"), shown.named("bucket-1000-of-1024")
    if before is None or after is None or before.is_compact:
        return []
    weights = [quantity(each.bytes_per_id * _ids(shown), "bytes") for each in (before, after)]
    million = quantity(1e6 * after.bytes_per_id, "bytes")
    text = f"With a limit of 1,024, hashes of 1,000 fields take {weights[1]} instead of"
    return [f"{text} {weights[0]}; that is {million} for a million, and the article saw 12 MB."]


def _processor(shown: Shown) -> list[str]:
    """What does it cost in CPU?"""
    plain = shown.plain
    compact = [each for each in shown.swept if each.is_compact]
    if plain is None or len(compact) < 2:
        return []
    first, last = compact[0], compact[-1]
    reads = [each.read_ns for each in (plain, first, last)]
    writes = [each.write_ns for each in (plain, last)]
    if None in reads or None in writes:
        return []
    read_texts = [quantity(ns, "ns") for ns in reads if ns is not None]
    write_texts = [quantity(ns, "ns") for ns in writes if ns is not None]
    text = (
        "It costs CPU, because a compact hash is searched from its start: the server's own time "
        f"for a read is {read_texts[0]} for a plain key, {read_texts[1]} in hashes of "
        f"{first.bucket} and {read_texts[2]} in hashes of {last.bucket}; a write takes "
        f"{write_texts[0]} plain and {write_texts[1]} there."
    )
    return [text, *_by_position(shown, last)]


def _by_position(shown: Shown, layout: Layout) -> list[str]:
    cell = cell_of(shown.analysis, layout.entry.name, "server_read", shown.payload)
    first, last = (measure_of(cell, name) for name in ("first field", "last field"))
    if first is None or last is None:
        return []
    text = f"In those of {layout.bucket} the first field takes {quantity(first, 'ns')}"
    return [f"{text} and the last {quantity(last, 'ns')}."]


def _turning(shown: Shown) -> list[str]:
    """Where larger hashes stop being worth their CPU."""
    compact = [each for each in shown.swept if each.is_compact]
    at = knee([(float(each.bucket), each.bytes_per_id) for each in compact])
    if at is None:
        return []
    turn, last = next(each for each in compact if each.bucket == at), compact[-1]
    more = turn.bytes_per_id - last.bytes_per_id
    text = f"The knee is at {turn.bucket} fields: {last.bucket} save {short(more)} bytes an id more"
    if turn.read_ns and last.read_ns:
        text += f", and a read takes {short(last.read_ns / turn.read_ns)} times the server's time"
    return [f"{text}."]


def _fields(shown: Shown) -> list[str]:
    """The whole id as field, or what remains of it."""
    pairs = [
        (each, rest)
        for each in shown.swept
        if each.is_compact
        and (rest := point_of(shown.analysis, each.entry.name, "memory", "rest")) is not None
    ]
    if not pairs or shown.payload == "rest":
        return []
    layout, rest = pairs[-1]
    text = f"With the remainder as field instead of the whole id, hashes of {layout.bucket} take"
    return [f"{text} {short(rest)} bytes an id instead of {short(layout.bytes_per_id)}."]


def _values(shown: Shown) -> list[str]:
    below, above = (
        point_of(shown.analysis, "bucket-100", "memory", payload) for payload in ("v", "v+1")
    )
    if below is None or above is None:
        return []
    text = "Values one byte longer than the limit make hash tables: hashes of 100 fields then take"
    return [f"{text} {short(above)} bytes an id instead of {short(below)}."]


def _sticky(shown: Shown) -> list[str]:
    rules = _tried(shown)
    back = next((text for name, text in rules.items() if name.startswith("back to")), "")
    raised = rules.get("the limit is raised by CONFIG SET", "")
    restored = rules.get("DUMP and RESTORE after that", "")
    sentences = []
    if back.startswith("hashtable"):
        sentences.append(
            "Conversion is one-way: deleting fields does not make a hash compact again."
        )
    if raised.startswith("hashtable"):
        text = "CONFIG SET converts nothing that is stored"
        text += "" if restored.startswith("hashtable") else "; DUMP and RESTORE REPLACE do"
        sentences.append(f"{text}.")
    expiry = rules.get("expiry of single fields (HEXPIRE)", "")
    if expiry.endswith("hashtable"):
        sentences.append("A field that expires by itself (HEXPIRE) makes its hash a hash table.")
    return sentences


# -- tables and charts -----------------------------------------------------------------------------


def _table(shown: Shown) -> Table:
    plain = shown.plain
    rows = [
        [
            each.entry.name,
            f"{each.bucket or 1}",
            short(each.bytes_per_id),
            quantity(each.bytes_per_id * _ids(shown), "bytes"),
            f"{each.bytes_per_id / plain.bytes_per_id:.0%}" if plain else NOTHING,
            *_memory_measures(shown, each),
            *(_ns(shown, each, name) for name in ("read", "write", "server_read", "server_write")),
            each.encoding,
        ]
        for each in shown.layouts
    ]
    return Table(
        title=f"{_ids(shown):,.0f} ids, {shown.analysis.sample.about['payloads'][shown.payload]}",
        head=[
            "", "fields", "B an id", "in all", "of plain", "dataset", "resident",
            "read, ns", "write", "server read", "server write", "encoding",
        ],
        rows=rows,
        text_columns=(0, 11),
        note=f"{shown.limits}. read, write: per command in pipelines of 100, client included; "
        "server: its own time (commandstats).",
    )  # fmt: skip


def _memory_measures(shown: Shown, layout: Layout) -> list[str]:
    cell = cell_of(shown.analysis, layout.entry.name, "memory", shown.payload)
    found = [measure_of(cell, name) for name in ("dataset", "resident")]
    return [NOTHING if value is None else short(value) for value in found]


def _ns(shown: Shown, layout: Layout, operation: str) -> str:
    value = point_of(shown.analysis, layout.entry.name, operation, shown.payload)
    return NOTHING if value is None else f"{value:.0f}"


def _by_size(shown: Shown) -> Chart:
    swept = shown.swept
    points = [(float(each.bucket), each.bytes_per_id) for each in swept]
    compact = [(float(each.bucket), each.bytes_per_id) for each in swept if each.is_compact]
    marks = [Mark(x=compact[-1][0], text="limit")] if compact else []
    found = knee(compact)
    marks += [Mark(x=found, text="knee")] if found is not None else []
    lines = [Line(name="hashes", points=points, family="hashes")]
    if shown.plain:
        flat = [(x, shown.plain.bytes_per_id) for x, _ in (points[0], points[-1])]
        lines.append(Line(name="plain", points=flat, family="plain", dashed=True))
    raised = [(float(e.bucket), e.bytes_per_id) for e in shown.layouts if e.is_raised]
    if raised:
        lines.append(Line(name="limit raised", points=raised, family="raised limit", dots=True))
    return Chart(
        title="Used memory by the size of a hash",
        x_title="fields of a hash",
        y_title="bytes an id",
        lines=lines,
        x_log=True,
        marks=marks,
        note=f"{KNEEDLE}; it is sought among compact hashes only." if found else "",
    )


def _pareto(shown: Shown) -> Chart:
    """Memory against the server's time; the front is what nothing else beats in both."""
    points = [
        (each.read_ns, each.bytes_per_id, each)
        for each in shown.layouts
        if each.read_ns is not None
    ]
    ends = front([(ns, weight) for ns, weight, _ in points])
    lines = [Line(name="worth choosing from", points=ends, family="hashes", dashed=True)]
    for ns, weight, each in points:
        line = Line(
            name=each.entry.name, points=[(ns, weight)], family=each.entry.family, dots=True
        )
        lines.append(line)
    return Chart(
        title="Memory against CPU",
        x_title="the server's own time for a read, ns",
        y_title="bytes an id",
        lines=lines,
        note="Whatever lies above and to the right of the dashed line is beaten in both.",
    )


def _growth(shown: Shown) -> Chart:
    lines = []
    for name in GROWING:
        cell = cell_of(shown.analysis, name, "memory", shown.payload)
        if cell is None:
            continue
        points = sorted(
            (float(found[1].replace(",", "")), series.median / 1e6)
            for measure, series in cell.measures.items()
            if (found := CHARTED.fullmatch(measure))
        )
        if points:
            family = shown.analysis.sample.candidates[name].family
            lines.append(Line(name=name, points=points, family=family))
    return Chart(
        title="Used memory while it grows", x_title="ids stored", y_title="MB", lines=lines
    )


def _other_data(shown: Shown) -> Table:
    about = shown.analysis.sample.about["payloads"]
    names = [
        name
        for name in about
        if name != shown.payload
        and any(point_of(shown.analysis, e.entry.name, "memory", name) for e in shown.layouts)
    ]
    rows = []
    for each in shown.layouts:
        cells = [point_of(shown.analysis, each.entry.name, "memory", name) for name in names]
        if any(cells):
            rows.append(
                [
                    each.entry.name,
                    *(_bytes_of(each, n, c) for n, c in zip(names, cells, strict=True)),
                ]
            )
    return Table(
        title="Bytes an id, other data",
        head=["", *names],
        rows=rows,
        note="; ".join(f"{name}: {about[name]}" for name in names) + ". * a hash table.",
    )


def _bytes_of(layout: Layout, payload: str, weight: float | None) -> str:
    if weight is None:
        return NOTHING
    star = "*" if "hashtable" in layout.entry.facts.get(f"encoding, {payload}", "") else ""
    return short(weight) + star


def _rules(shown: Shown) -> Table:
    return Table(
        title="What a hash did when it was tried",
        head=["tried", "outcome"],
        rows=[[name, text] for name, text in _tried(shown).items()],
        text_columns=(0, 1),
    )


def _tried(shown: Shown) -> dict[str, str]:
    facts = shown.plain.entry.facts if shown.plain else {}
    return {name.removeprefix(RULE): t for name, t in facts.items() if name.startswith(RULE)}


def _ids(shown: Shown) -> float:
    for each in shown.layouts:
        cell = cell_of(shown.analysis, each.entry.name, "memory", shown.payload)
        count = measure_of(cell, "ids")
        if count:
            return count
    return 0.0


def _saved(weight: float, plain: float) -> str:
    share = 1 - weight / plain
    if abs(share) < SAME_SHARE:
        return "nothing"
    return f"{share:.0%}" if share > 0 else f"nothing: it takes {-share:.0%} more"


def knee(points: Sequence[tuple[float, float]]) -> float | None:
    """Where a falling curve stops falling much; None if it has fewer than three points.

    Kneedle (Satopää et al. 2011) without smoothing: of the points scaled to the unit
    square, x in logarithms, the one farthest below the line from the first to the last.
    """
    if len(points) < 3:
        return None
    xs, ys = [math.log(x) for x, _ in points], [y for _, y in points]
    width, height = xs[-1] - xs[0], max(ys) - min(ys)
    if not width or not height:
        return None
    below = [
        (ys[0] + (ys[-1] - ys[0]) * (x - xs[0]) / width - y) / height
        for x, y in zip(xs, ys, strict=True)
    ]
    deepest = max(below)
    return points[below.index(deepest)][0] if deepest > 0 else None


def front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points that no other beats in both numbers, from left to right (Pareto)."""
    found: list[tuple[float, float]] = []
    for x, y in sorted(points):
        if not found or y < found[-1][1]:
            found.append((x, y))
    return found
