"""The common tables of a report, as :class:`~nearcache.lab.views.Table`.

Terminal, Markdown and HTML draw these; the CSV file has the same numbers unrounded. What is
void or not firm is :class:`Grey`, whoever is best of a column :class:`Strong`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from nearcache.lab.base.model import NO_PAYLOAD
from nearcache.lab.checks.evidence import EVIDENCE
from nearcache.lab.checks.findings import Check
from nearcache.lab.checks.rules import badge
from nearcache.lab.judging.analysis import Analysis, Row
from nearcache.lab.judging.claims import ClaimResult
from nearcache.lab.judging.explain import explain_one
from nearcache.lab.judging.words import TIMES, noise, span
from nearcache.lab.reports.parts import charted
from nearcache.lab.results.sample import Cell, Entry
from nearcache.report.model import Grey, Strong, Table
from nearcache.report.plots import swing_of, swings
from nearcache.report.units import NOTHING, Scale, quantity, scale_for, short, times
from nearcache.report.words import plural

NONE = Grey(NOTHING)
OVERHEAD = "the lab itself costs little"  # the rule whose evidence is in every report
NOT_APPLICABLE = "not applicable"
COUNTS = ("samples", "hits", "misses", "errors", "refused")
RUN_WIDTH, LEAST_COURSE = 10, 3
LONGEST_IN_HEAD = 18  # of a candidate's name


@dataclass(frozen=True)
class Sheet:
    """One operation on one payload, and how its numbers are written."""

    analysis: Analysis
    operation: str
    payload: str

    @cached_property
    def rows(self) -> list[Row]:
        return self.analysis.rows(self.operation, self.payload)

    @property
    def about(self) -> dict[str, object]:
        found: dict[str, object] = self.analysis.sample.about["operations"][self.operation]
        return found

    @property
    def unit(self) -> str:
        return str(self.about["unit"])

    @property
    def as_rate(self) -> bool:
        return bool(self.about["as_rate"])

    @cached_property
    def scale(self) -> Scale:
        return scale_for(self.unit, [row.cost for row in self.rows])

    @property
    def ranked(self) -> bool:
        return bool(self.about.get("ranked", True))

    @property
    def anchor(self) -> str:
        return f"{self.operation}, {self.payload}" if self.payload != NO_PAYLOAD else self.operation

    @property
    def title(self) -> str:
        """What is timed, in full."""
        title = str(self.about["title"] or self.operation)
        if self.payload != NO_PAYLOAD:
            known = self.analysis.sample.about["payloads"].get(self.payload, self.payload)
            title += f": {known}" + (f" ({self.payload})" if known != self.payload else "")
        return title

    @property
    def has_spread(self) -> bool:
        """Are there several samples in a round, or only what the rounds count as?"""
        return any(row.cell.count > sum(map(len, row.cell.points.values())) for row in self.rows)

    @property
    def counts_otherwise(self) -> bool:
        """Does a round count as something else than the median of its samples?"""
        every_call = self.has_spread and all(row.cell.count for row in self.rows)
        return self.as_rate or not every_call


def sheets(analysis: Analysis) -> list[Sheet]:
    """All operations and payloads with something to rank, in the order of the experiment."""
    found = [Sheet(analysis, *name) for name in analysis.cell_names]
    return [sheet for sheet in found if sheet.rows]


def in_order(analysis: Analysis) -> list[Entry]:
    """The contenders, best first: by the mix, else by the first operation that has them."""
    names = [rank.entry.name for rank in analysis.ranking]
    for sheet in sheets(analysis):
        names += [row.entry.name for row in sheet.rows if row.entry.name not in names]
    known = {name: place for place, name in enumerate(names)}
    return sorted(analysis.contenders, key=lambda entry: known.get(entry.name, len(known)))


def overview(analysis: Analysis, wanted: Sequence[Sheet]) -> Table:
    """Everybody in every column; rates where an operation is read as one."""
    columns = [_overview_column(sheet) for sheet in wanted]
    head = ["", *(f"{_brief(sheet)}\n{sheet_unit(sheet)}".rstrip() for sheet in wanted)]
    rows = [
        [entry.name, *(column.get(entry.name, NONE) for column in columns)]
        for entry in in_order(analysis)
    ]
    letters = dict.fromkeys(sheet.payload for sheet in wanted if sheet.payload != NO_PAYLOAD)
    titles = analysis.sample.about["payloads"]
    # Titles have commas of their own.
    legend = "; ".join(f"{name} {titles[name]}" for name in letters if titles.get(name) != name)
    title = "Median of the rounds"
    if any(sheet.ranked for sheet in wanted):
        title += "; less is better" + ", except of /s" * any(sheet.as_rate for sheet in wanted)
    return Table(title=title, head=head, rows=rows, note=legend)


def _overview_column(sheet: Sheet) -> dict[str, str]:
    ranked = [row.cost for row in sheet.rows if sheet.ranked and not row.void]
    best = min(ranked, default=0)
    column = {}
    for row in sheet.rows:
        text = cost_text(sheet, row)
        text = Grey(text) if row.void else Strong(text) if row.cost == best else text
        column[row.entry.name] = text
    return column


def _brief(sheet: Sheet) -> str:
    name = sheet.operation.removeprefix("get_")
    return name if sheet.payload == NO_PAYLOAD else f"{name}\n{sheet.payload}"


def sheet_unit(sheet: Sheet) -> str:
    return _rate_scale(sheet).suffix if sheet.as_rate else sheet.scale.suffix


def _rate_scale(sheet: Sheet) -> Scale:
    return scale_for("1/s", [1e9 / row.cost for row in sheet.rows])


def cost_text(sheet: Sheet, row: Row) -> str:
    """What the row is ordered by, or its rate where one would rather read that."""
    if sheet.as_rate:
        return _rate_scale(sheet).text(1e9 / row.cost)
    return sheet.scale.text(row.cost)


def cell_table(sheet: Sheet, columns: Sequence[str] | None = None) -> Table:
    """One operation on one payload in full. ``columns`` by their heads; all if not given."""
    known = columns_of(sheet)
    chosen = {head: known[head] for head in (columns or known) if head in known}
    rows = [
        [row.entry.name, *(_void(row, text(row)) for text in chosen.values())] for row in sheet.rows
    ]
    unit = sheet.scale.suffix
    title = sheet.title + (f", {unit}" if unit else "")
    return Table(title=title, head=["", *chosen], rows=rows, note=_cell_note(sheet))


Column = Callable[[Row], str]


def columns_of(sheet: Sheet) -> dict[str, Column]:
    scale, rows = sheet.scale, sheet.rows
    columns: dict[str, Column] = {}
    if sheet.as_rate:
        per_second = _rate_scale(sheet)
        columns[f"rate, {per_second.suffix}"] = lambda row: per_second.text(1e9 / row.cost)
    if sheet.counts_otherwise:
        columns["each"] = lambda row: scale.text(row.cost)
    if sheet.has_spread:
        columns |= {
            **_middle(sheet),
            "mean": lambda row: _spread(row, scale, "mean"),
            "P90": lambda row: _firm(_spread(row, scale, "p90"), row.p90_is_firm),
            "P99": lambda row: _firm(_spread(row, scale, "p99"), row.p99_is_firm),
            "max": lambda row: _spread(row, scale, "max"),
            "s.d.": lambda row: _spread(row, scale, "stdev"),
        }
    baseline = sheet.analysis.baseline
    if sheet.ranked:
        columns[against(sheet.analysis)] = lambda row: ratio_text(row, baseline)
    if any(row.entry.stored.get(sheet.payload) for row in rows):
        columns["bytes"] = lambda row: stored_text(row.entry, sheet.payload)
    swing = swing_of([course(row.cell) for row in rows])
    if max(len(course(row.cell)) for row in rows) >= LEAST_COURSE:
        columns["run"] = lambda row: swings(course(row.cell), RUN_WIDTH, swing)
    columns["samples"] = lambda row: f"{row.cell.count:,}"
    for name in COUNTS[1:]:
        if any(getattr(row.cell, name) for row in rows):
            columns[name] = lambda row, name=name: f"{getattr(row.cell, name):,}"  # type: ignore[misc]
    return columns


def _middle(sheet: Sheet) -> dict[str, Column]:
    """The median of the rounds, as everywhere; where a round counts otherwise, P50 of all calls."""
    if sheet.counts_otherwise:
        return {"P50": lambda row: _spread(row, sheet.scale, "median") + _batched(row)}
    return {"median": lambda row: sheet.scale.text(row.cost) + _batched(row)}


def _batched(row: Row) -> str:
    return "*" * (row.cell.batch > 1)


def _void(row: Row, text: str) -> str:
    return Grey(text) if row.void else text


def course(cell: Cell) -> list[float]:
    """The rounds in the order in which they were measured."""
    return [
        rounds[number] for _, rounds in sorted(cell.points.items()) for number in sorted(rounds)
    ]


def against(analysis: Analysis) -> str:
    """The head of the column of ratios."""
    return f"{TIMES} {analysis.baseline} (95 %)" if _is_short(analysis) else "ratio (95 %)"


def _is_short(analysis: Analysis) -> bool:
    return len(analysis.baseline) <= LONGEST_IN_HEAD


def _spread(row: Row, scale: Scale, name: str) -> str:
    return scale.text(getattr(row.summary, name)) if row.cell.count else NONE


def _firm(text: str, is_firm: bool) -> str:
    return text if is_firm else Grey(text)


def ratio_text(row: Row, baseline: str) -> str:
    if row.void:
        return Grey("void")
    if row.effect is None:
        return "1" if row.entry.name == baseline else NONE
    if row.verdict == "same":
        return Grey("same")
    effect = row.effect
    text = f"{times(effect.ratio)} {span(effect, times)}"
    return Grey(text + "?") if row.verdict == "unclear" else text


def stored_text(entry: Entry, payload: str) -> str:
    stored = entry.stored.get(payload)
    return f"{stored[0]:,.0f}" if stored else NONE


def _cell_note(sheet: Sheet) -> str:
    batch = max(row.cell.batch for row in sheet.rows)
    reasons = dict.fromkeys(row.void for row in sheet.rows if row.void)
    notes = [f"void: {reason}" for reason in reasons]
    notes += [f"* timed in batches of {batch}: the spread is that of batch means"] * (batch > 1)
    if sheet.ranked and not _is_short(sheet.analysis):
        notes.append(f"ratio: to {sheet.analysis.baseline}")
    if sheet.counts_otherwise and sheet.has_spread:
        notes.append("each: what a round counts as, not the median of its samples")
    return "; ".join(notes)


def outcomes(analysis: Analysis) -> Table | None:
    """How calls ended that had no answer, those alike put together."""
    rows = []
    for operation, payload in analysis.cell_names:
        groups: dict[str, list[str]] = {}
        for entry, cell in analysis.outcomes(operation, payload):
            if not entry.twin_of:
                groups.setdefault(_endings(cell), []).append(entry.name)
        where = operation if payload == NO_PAYLOAD else f"{operation} {payload}"
        rows += [[where, ending, ", ".join(names)] for ending, names in groups.items()]
    if not rows:
        return None
    head = ["operation", "ended so, of all calls", "candidates"]
    return Table(
        title="Ended otherwise than by a plain answer", head=head, rows=rows, text_columns=(0, 1, 2)
    )


def _endings(cell: Cell) -> str:
    """The ways of one cell, most frequent first."""
    ways = sorted(cell.outcomes.items(), key=lambda way: -way[1])
    return ", ".join(f"{name} {_share(times, cell.calls)}" for name, times in ways if times)


def _share(times: int, calls: int) -> str:
    return quantity(times / calls, "share") if calls else f"{times:,} times"


def measures(sheet: Sheet) -> Table | None:
    """The secondary numbers of one cell; never ranked."""
    cells = {row.entry.name: row.cell for row in sheet.rows}
    seen = dict.fromkeys(name for cell in cells.values() for name in cell.measures)
    drawn = charted(sheet.analysis.sample.about["experiment"])
    # The badge has the first, charts of the experiment the second.
    names = [name for name in seen if not (name in EVIDENCE or (drawn and drawn.fullmatch(name)))]
    if not names:
        return None
    scales = {name: _measure_scale(name, list(cells.values())) for name in names}
    head = ["", *(f"{name}, {scales[name].suffix}".rstrip(", ") for name in names)]
    rows = [
        [
            candidate,
            *(
                scales[name].text(cell.measures[name].median) if name in cell.measures else NONE
                for name in names
            ),
        ]
        for candidate, cell in cells.items()
    ]
    return Table(title=f"Seen beside: {sheet.title}", head=head, rows=rows, note="never ranked")


def _measure_scale(name: str, cells: Sequence[Cell]) -> Scale:
    series = [cell.measures[name] for cell in cells if name in cell.measures]
    return scale_for(series[0].unit, [one.median for one in series])


def part_names(sheet: Sheet) -> list[str]:
    return list(dict.fromkeys(name for row in sheet.rows for name in row.cell.parts))


def parts(sheet: Sheet) -> Table | None:
    """Where the time of one operation goes."""
    names = part_names(sheet)
    if not names:
        return None
    rows = []
    for row in sheet.rows:
        found = {name: series.median for name, series in row.cell.parts.items()}
        texts = [sheet.scale.text(found[name]) if name in found else NONE for name in names]
        rows.append([row.entry.name, *texts])
    title = f"Where the time goes: {sheet.title}, {sheet.scale.suffix}"
    return Table(title=title, head=["", *names], rows=rows, note=explained(sheet))


def explained(sheet: Sheet) -> str:
    """In a sentence, where the time of the best goes."""
    best = next((row.entry.name for row in sheet.rows if not row.entry.twin_of), "")
    return explain_one(sheet.analysis, best, sheet.operation, sheet.payload)


def checks(analysis: Analysis) -> Table:
    """The honesty badge, line by line."""
    greyed = {NOT_APPLICABLE: Grey(NOT_APPLICABLE)}
    rows = [[c.name, greyed.get(c.status, c.status), c.text] for c in badge_of(analysis)]
    head = ["rule", "", "evidence"]
    return Table(title="Rules", head=head, rows=rows, text_columns=(0, 1, 2))


@lru_cache(maxsize=1)
def badge_of(analysis: Analysis) -> list[Check]:
    """Asked for by every part of a report, and a second's work for a large sample."""
    return badge(analysis)


def badge_line(analysis: Analysis) -> str:
    """How many rules hold, of those that this run could keep, and what the lab itself costs."""
    asked = [check for check in badge_of(analysis) if check.status != NOT_APPLICABLE]
    passed = [check for check in asked if check.status == "passed"]
    costs = "".join(f"; {check.text}" for check in passed if check.name == OVERHEAD)
    return f"{len(passed)} of {len(asked)} rules of evidence hold{costs}"


def rounds_line(analysis: Analysis) -> str:
    """How much was measured, and what of it is not counted."""
    rounds, about = analysis.sample.rounds, analysis.sample.about
    sets = plural(len({repetition for repetition, _ in rounds}), "set")
    text = f"{plural(len(rounds), 'round')} in {sets} of fresh processes"
    gone = sum(left_out for _, _, left_out in about.get("steal_visits", {}).values())
    return text + (f" ({plural(gone, 'visit')} left out: time was stolen)" if gone else "")


def data_line(analysis: Analysis) -> str:
    """Whose values or calls were measured with; empty if they were the experiment's own."""
    about = analysis.sample.about
    text = about.get("recording") or about.get("own_data") or ""
    return text if not text or text.endswith(".") else f"{text}."


def place_line(analysis: Analysis) -> str:
    """Where clients and servers ran, as they proved it; else all were put on one CPU."""
    proven = dict.fromkeys(entry.proof.get("cores") for entry in analysis.measured)
    said = "; ".join(cores for cores in proven if cores)
    text = said or f"client and server share CPU {analysis.sample.about['cpu']}"
    return text[0].upper() + text[1:]


def floors_line(analysis: Analysis) -> str:
    """How far one configuration under two names was apart; empty if there was no twin."""
    return "; ".join(
        f"{kind_name(kind)} {noise(floor)}{_of_operations(analysis, kind)}"
        for kind, floor in analysis.floors.items()
    )


def _of_operations(analysis: Analysis, kind: str) -> str:
    own = [
        f"{operation} {noise(floor)}"
        for (of_kind, operation), floor in analysis.operation_floors.items()
        if of_kind == kind
    ]
    return f" over all ({', '.join(own)})" if own else ""


def kind_name(kind: str) -> str:
    return "servers" if kind == "server" else "in process"


def failures(analysis: Analysis) -> list[Check]:
    return [check for check in badge_of(analysis) if check.status == "failed"]


def claims(analysis: Analysis) -> Table | None:
    """What the articles published, beside what this run finds."""
    found = analysis.claims()
    if not found:
        return None
    rows = [
        [
            claim.article,
            claim.text,
            f"{short(claim.published)}{TIMES}",
            today(claim),
            word_of(claim),
            claim.why or NONE,
        ]
        for claim in found
    ]
    return Table(
        title="What the articles said",
        head=["article", "headline", "then", "here (95 %)", "so", "known"],
        rows=rows,
        text_columns=(0, 1, 4, 5),
    )


def word_of(claim: ClaimResult) -> str:
    """Beside "the article said", the word "same" would be read as "as the article"."""
    return "no difference" if claim.word == "same" else claim.word


def today(claim: ClaimResult) -> str:
    if claim.effect is None:
        return NONE
    effect = claim.effect
    return f"{times(effect.ratio)}{TIMES} {span(effect, times)}"


def rank_groups(analysis: Analysis) -> list[list[str]]:
    return [[rank.entry.name for rank in group] for group in analysis.tie_groups()]


def row_groups(sheet: Sheet) -> list[list[str]]:
    if not sheet.ranked:
        return []
    groups = sheet.analysis.tied_rows(sheet.operation, sheet.payload)
    return [[row.entry.name for row in group] for group in groups]


def absent(analysis: Analysis) -> Table | None:
    if not analysis.absent:
        return None
    absent_too = {entry.name for entry in analysis.absent}
    out = [entry for entry in analysis.absent if entry.twin_of not in absent_too]
    # "Why" often ends with what to install, which has its own column.
    why = {e.name: e.reason.removesuffix(f"; {e.install}") for e in out}
    rows = [[e.name, e.state, why[e.name], e.install or NONE] for e in out]
    head = ["candidate", "state", "why", "to have it"]
    return Table(title="Not in the tables", head=head, rows=rows, text_columns=(0, 1, 2, 3))


def proofs(analysis: Analysis) -> Table | None:
    """What each candidate really was, as its worker read it from live objects."""
    names = list(dict.fromkeys(name for entry in analysis.measured for name in entry.proof))
    if not names:
        return None
    rows = [[e.name, *(e.proof.get(name, NONE) for name in names)] for e in analysis.measured]
    columns = tuple(range(len(names) + 1))
    return Table(title="Proof", head=["", *names], rows=rows, text_columns=columns)


def facts(analysis: Analysis) -> Table | None:
    rows = [
        [entry.name, name, said]
        for entry in analysis.contenders
        for name, said in entry.facts.items()
    ]
    if not rows:
        return None
    return Table(title="Facts", head=["", "", ""], rows=rows, text_columns=(0, 1, 2))
