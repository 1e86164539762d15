"""What only the codecs show: bytes, fates of types, the growing list, the break-even map."""

from __future__ import annotations

from collections.abc import Sequence

from nearcache.lab.base.model import NO_PAYLOAD
from nearcache.lab.experiments.codecs.break_even import (
    grids,
    model_sentences,
    threshold_sentences,
    thresholds,
)
from nearcache.lab.judging.analysis import Analysis, Row
from nearcache.lab.judging.reading import cell_of, compared, compared_all, measure_of, point_of
from nearcache.lab.judging.words import beside
from nearcache.lab.results.sample import Entry, Series
from nearcache.lab.statistics.stats import Effect, Verdict
from nearcache.lab.views import Views
from nearcache.lab.workloads.fidelity import EXACT, fates_in
from nearcache.report.model import Chart, Grid, Line, Table
from nearcache.report.units import NOTHING, quantity, short

LIBRARIES = ("django-redis-", "nearcache-")
SHOWN_FATE = 22  # characters of a cell of the table of types


def views(analysis: Analysis) -> Views:
    parts: list[Table | Chart | Grid | None] = [
        _sizes(analysis),
        _size_against_time(analysis),
        _pairs(analysis),
        _types(analysis),
        _readers(analysis),
        thresholds(analysis),
        *grids(analysis),
        _growing(analysis),
    ]
    sentences = [
        *_fastest(analysis),
        *_smallest(analysis),
        *_unfit(analysis),
        *_where_time_goes(analysis),
        *threshold_sentences(analysis),
        *model_sentences(analysis),
        *_growing_sentence(analysis),
    ]
    return Views(sentences=sentences, parts=[part for part in parts if part is not None])


# -- bytes --------------------------------------------------------------------------------------


def _sizes(analysis: Analysis) -> Table | None:
    payloads = list(analysis.sample.about["payloads"])
    rows = []
    for entry in analysis.contenders:
        shares = [_share_of_pickle(analysis, entry.name, payload) for payload in payloads]
        if any(share is not None for share in shares):
            cells = [NOTHING if share is None else f"{share:.0%}" for share in shares]
            rows.append(
                (sum(s or 0 for s in shares), [entry.name, *cells, *_costs(analysis, entry)])
            )
    if not rows:
        return None
    largest = _largest(analysis)
    rows.sort(key=lambda row: row[0])
    return Table(
        title="Bytes of the stored value, as a share of its pickle (shorter better)",
        head=["", *payloads, f"{largest} in memory", f"{largest} on the wire"],
        rows=[row for _, row in rows],
        note=f"In memory: MEMORY USAGE of key and value. On the wire: request and reply of a get, "
        f"counted by the server. {NOTHING}: changed or refused.",
    )


def _share_of_pickle(analysis: Analysis, name: str, payload: str) -> float | None:
    stored = point_of(analysis, name, "size", payload)
    pickled = measure_of(cell_of(analysis, name, "size", payload), "pickled")
    return stored / pickled if stored is not None and pickled else None


def _costs(analysis: Analysis, entry: Entry) -> list[str]:
    payload = _largest(analysis)
    kept = entry.stored.get(payload)
    wire = measure_of(cell_of(analysis, entry.name, "get", payload), "wire")
    return [
        quantity(kept[0], "bytes") if kept else NOTHING,
        quantity(wire, "bytes") if wire else NOTHING,
    ]


def _largest(analysis: Analysis) -> str:
    """The payload with most bytes, as the baseline stores it."""
    payloads: list[str] = list(analysis.sample.about["payloads"])
    return max(payloads, key=lambda p: point_of(analysis, analysis.baseline, "size", p) or 0)


def _size_against_time(analysis: Analysis) -> Chart | None:
    payload = _fullest(analysis)
    lines: list[Line] = []
    for entry in analysis.contenders:
        size = point_of(analysis, entry.name, "size", payload)
        get = point_of(analysis, entry.name, "get", payload)
        if size and get:
            dot = [(size, get / 1000)]
            lines.append(Line(name=entry.name, points=dot, family=entry.family, dots=True))
    if len(lines) < 2:
        return None
    title = analysis.sample.about["payloads"][payload]
    return Chart(
        title=f"Size against time: {title} ({payload}); best is bottom left",
        x_title="bytes of the stored value",
        y_title="µs of a get",
        lines=lines,
        x_log=True,
        y_log=True,
    )


def _fullest(analysis: Analysis) -> str:
    """The payload that most candidates bring back; of those the largest."""

    def rank(payload: str) -> tuple[int, float]:
        measured = [point_of(analysis, e.name, "get", payload) for e in analysis.contenders]
        size = point_of(analysis, analysis.baseline, "size", payload) or 0
        return sum(point is not None for point in measured), size

    payloads: list[str] = list(analysis.sample.about["payloads"])
    return max(payloads, key=rank)


# -- pairs --------------------------------------------------------------------------------------


def _pairs(analysis: Analysis) -> Table | None:
    """The experiment's own questions, payload by payload: a mean hides what fits what."""
    payloads = list(analysis.sample.about["payloads"])
    pairs = [pair for found in analysis.sample.about["contrasts"].values() for pair in found]
    judged = compared_all(analysis, [(a, b) for a, b in pairs], "get", payloads)
    rows = []
    for a, b in pairs:
        cells = [_compared(judged.get((a, b, payload))) for payload in payloads]
        if any(cell != NOTHING for cell in cells):
            rows.append([_pair(a, b), *cells])
    if not rows:
        return None
    return Table(
        title="Time of a get, one divided by the other",
        head=["", *payloads],
        rows=rows,
        note="Below 1: the first is faster. same: within the noise of this run. ?: larger, but the "
        "interval includes none, or the rounds are too few. All are judged together (Holm).",
    )


def _pair(a: str, b: str) -> str:
    """Both names; the library once if it is the same."""
    both = (name for name in LIBRARIES if a.startswith(name) and b.startswith(name))
    library = next(both, "")
    return f"{a} / {b.removeprefix(library)}"


def _compared(found: tuple[Effect, Verdict] | None) -> str:
    if found is None:
        return NOTHING
    effect, verdict = found
    if verdict == "same":
        return "same"
    return short(effect.ratio) + ("?" if verdict == "unclear" else "")


# -- types --------------------------------------------------------------------------------------


def _plain(analysis: Analysis) -> list[Entry]:
    """One candidate for each serializer of each library: compressors change no type."""
    chosen: dict[tuple[str, str], Entry] = {}
    for entry in analysis.contenders:
        fates = fates_in(entry.facts)
        if fates:
            chosen.setdefault((entry.family, str(fates)), entry)
    return list(chosen.values())


def _types(analysis: Analysis) -> Table | None:
    chosen = _plain(analysis)
    fates = [fates_in(entry.facts) for entry in chosen]
    names = list(dict.fromkeys(name for each in fates for name in each))
    kept = [name for name in names if all(each.get(name) == EXACT for each in fates)]
    rows = [
        [name, *(_fate(each.get(name, "")) for each in fates)] for name in names if name not in kept
    ]
    if not rows:
        return None
    return Table(
        title="What comes back: every type was stored and read again",
        head=["", *(entry.name for entry in chosen)],
        rows=rows,
        text_columns=range(len(chosen) + 1),
        note=f"All of them keep: {', '.join(kept)}. Columns with the same fates are shown once.",
    )


def _fate(fate: str) -> str:
    if fate == EXACT:
        return EXACT
    if fate.startswith("refused"):
        return "refused"
    return fate.removeprefix("becomes ").removeprefix("other keys: ")[:SHOWN_FATE] or NOTHING


def _readers(analysis: Analysis) -> Table | None:
    rows = [
        [entry.name, entry.facts["read by"], entry.facts.get("planted pickle", "not tried")]
        for entry in analysis.contenders
        if "read by" in entry.facts and entry.options.get("compressor", "none") == "none"
    ]
    if not rows:
        return None
    return Table(
        title="Who else can read it, and what a pickle does that somebody else put there",
        head=["", "stored bytes are read by", "a planted pickle"],
        rows=rows,
        text_columns=(0, 1, 2),
        note="Where its code ran, whoever can write to the Redis can run code in your workers.",
    )


# -- the articles' growing list -----------------------------------------------------------------


def _growing(analysis: Analysis) -> Table | None:
    rows = []
    for entry in analysis.measured:
        cell = cell_of(analysis, entry.name, "grow", NO_PAYLOAD)
        if cell and cell.calls:
            lost = cell.outcomes.get("update lost", 0)
            rows.append(
                [
                    entry.name,
                    f"{cell.calls:,}",
                    f"{lost:,}",
                    f"{lost / cell.calls:.0%}",
                    *(_measure(cell.measures.get(name)) for name in ("entries", "size", "read")),
                ]
            )
    if not rows:
        return None
    return Table(
        title="G, the articles' growing list: not a measurement, but what was wrong with one",
        head=["", "updates", "lost", "", "entries at the end", "bytes", "read"],
        rows=rows,
        note="4 threads read a list, append the time that took, and write it back, without a lock. "
        "Each candidate ends with another value, so nothing here is compared or ranked.",
    )


def _measure(series: Series | None) -> str:
    return quantity(series.median, series.unit) if series else NOTHING


def _growing_sentence(analysis: Analysis) -> list[str]:
    cells = [cell_of(analysis, e.name, "grow", NO_PAYLOAD) for e in analysis.measured]
    grown = [cell for cell in cells if cell and cell.calls]
    if not grown:
        return []
    lost = sum(cell.outcomes.get("update lost", 0) for cell in grown)
    calls = sum(cell.calls for cell in grown)
    ends = [cell.measures["entries"].median for cell in grown]
    sentence = (
        f"The articles' growing list (G) lost {lost / calls:.0%} of its updates here, and ended "
        f"with {min(ends):.0f} to {max(ends):.0f} entries: "
        "who is compared on it reads another value."
    )
    return [sentence]


# -- sentences ----------------------------------------------------------------------------------


def _fastest(analysis: Analysis) -> list[str]:
    """Payload by payload: the overall order leaves out who cannot do all of them."""
    sentences = []
    for payload, title in analysis.sample.about["payloads"].items():
        if ("get", payload) not in analysis.cell_names:
            continue
        groups = analysis.tied_rows("get", payload)
        if sum(map(len, groups)) > 1:
            sentences.append(f"get of {title} ({payload}): {_first(analysis, groups[0])}.")
    return sentences


def _first(analysis: Analysis, leaders: Sequence[Row]) -> str:
    best, *others = leaders
    payload = best.cell.payload
    text = f"{best.entry.name} is first with {quantity(best.cost, 'ns')}"
    if found := compared(analysis, best.entry.name, analysis.baseline, "get", payload):
        text += f", {beside(*found, analysis.baseline)}"
    if others:
        names = ", ".join(row.entry.name for row in others[:3])
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        text += f"; this run cannot tell it from {names}{more}"
    return text


def _smallest(analysis: Analysis) -> list[str]:
    found = []
    for payload in analysis.sample.about["payloads"]:
        shares = {
            entry.name: share
            for entry in analysis.contenders
            if (share := _share_of_pickle(analysis, entry.name, payload)) is not None
        }
        if len(shares) > 1:
            best = min(shares, key=lambda name: shares[name])
            found.append(f"{payload} {best} ({shares[best]:.0%})")
    return [f"Fewest bytes, of the pickle: {', '.join(found)}."] if found else []


def _unfit(analysis: Analysis) -> list[str]:
    """Who changed or refused a payload, and is therefore not in the overall order."""
    sentences = []
    for payload, title in analysis.sample.about["payloads"].items():
        by_outcome: dict[str, list[str]] = {}
        for entry in analysis.contenders:
            cell = cell_of(analysis, entry.name, "get", payload)
            for outcome in cell.outcomes if cell and not cell.points else ():
                by_outcome.setdefault(outcome, []).append(entry.name)
        ends = "; ".join(f"{', '.join(who)}: {outcome}" for outcome, who in by_outcome.items())
        if ends:
            sentences.append(
                f"{title} ({payload}) does not come back from all: {ends}. They have no time there "
                "and no place in the overall order."
            )
    return sentences


def _where_time_goes(analysis: Analysis) -> list[str]:
    """Why the parser or the codec makes the difference it makes: the parts of one get."""
    payload = _fullest(analysis)
    cell = cell_of(analysis, analysis.baseline, "get", payload)
    whole = point_of(analysis, analysis.baseline, "get", payload)
    floor = point_of(analysis, analysis.baseline, "ping", NO_PAYLOAD)
    if not cell or not whole or floor is None or not {"decode", "server"} <= cell.parts.keys():
        return []
    decode, server = cell.parts["decode"].median, cell.parts["server"].median
    rest = whole - decode - server - floor
    sentence = (
        f"Where a get of {payload} by {analysis.baseline} goes ({quantity(whole, 'ns')}): "
        f"{quantity(floor, 'ns')} is the bare round trip, {quantity(server, 'ns')} the server's "
        f"command, {quantity(decode, 'ns')} decoding, {quantity(max(0.0, rest), 'ns')} the client "
        "library, its parser and moving the bytes."
    )
    return [sentence]
