"""What is checked on a sample before anybody compares anything: was it measured honestly?

Each check is a function of the sample alone. It returns what it saw, and where that breaks
the rule; None if this run has nothing for it to look at. rules.py has the table of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean, median

from nearcache.lab.checks.findings import Outcome, Problem
from nearcache.lab.checks.firm import BEYOND, doubt
from nearcache.lab.results.sample import Cell, Sample, Series, kind_of
from nearcache.lab.statistics.steadiness import trend_of
from nearcache.lab.timers.stolen import STEAL_MOST, too_many
from nearcache.report.words import plural

# Of all calls. Fewer do nothing to a median, and make percentiles beyond them grey (firm.py).
LATE_MOST = 0.05
DROPPED_MOST = 0.01  # of all calls
BUSY_MOST = 0.8  # of the generator's time
RUN_STEAL_MOST = 0.01  # where visits were not looked at each for itself
SWAP_MOST_PAGES = 256  # 1 MiB; less is somebody's idle page
LOAD_MOST = 0.7  # of one CPU, before the run
PROCESSES_LEAST = 5
DRIFT_MOST = math.log(1.2)  # rounds are compared in pairs, which cancels a slow drift below this
DRIFT_P = 0.01
OVERHEAD_MOST = 0.02
SHORT_OPERATION_NS = 10_000
ONE_RATE = 1.01  # offered rates may differ by this factor
# A mean place in random order is this far from the middle by chance once in 10,000.
PLACE_SIGMAS = 4.0

# Secondary numbers that are evidence for rules; the common tables need not show them.
EVIDENCE = (
    "keys_sent", "keys_stored", "late_share", "dropped_share", "offered_rate", "generator_cpu",
)  # fmt: skip


def answers(sample: Sample) -> Outcome | None:
    """Nobody who was measured gave a wrong answer."""
    problems = [
        Problem(plural(cell.errors, "wrong answer or error", "wrong answers or errors"), *key)
        for key, cell in sample.cells.items()
        if cell.errors
    ]
    hits = sum(cell.hits for cell in sample.cells.values())
    if not hits and not problems:
        return None
    return Outcome(f"{hits:,} answers verified, none wrong among those measured", problems)


def candidates(sample: Sample) -> Outcome | None:
    """Nobody failed: refused, away, another than ordered, or wrong, which its reason says.

    A wrong password is no wrong answer, so this is a rule of its own.
    """
    tried = [entry for entry in sample.candidates.values() if entry.state in ("measured", "failed")]
    if not tried:
        return None
    problems = [Problem(entry.reason, entry.name) for entry in tried if entry.state == "failed"]
    return Outcome(f"all {plural(len(tried), 'candidate')} did what was asked", problems)


def keys(sample: Sample) -> Outcome | None:
    """What was stored is there: counted by asking for it, not by believing the set."""
    sent = stored = 0.0
    problems = []
    for key, cell in sample.cells.items():
        both = cell.measures.get("keys_sent"), cell.measures.get("keys_stored")
        if both[0] is None or both[1] is None:
            continue
        counts = tuple(sum(_values(series)) for series in both if series)
        sent, stored = sent + counts[0], stored + counts[1]
        if counts[0] != counts[1]:
            text = f"{counts[0]:,.0f} keys sent, {counts[1]:,.0f} stored"
            problems.append(Problem(text, key[0]))
    if not sent:
        return None
    return Outcome(f"{stored:,.0f} keys stored of {sent:,.0f} sent", problems)


def accounts(sample: Sample) -> Outcome | None:
    """As many samples are recorded as calls were attempted; whoever drops some, chooses."""
    problems = []
    attempted = 0
    for key, cell in sample.cells.items():
        if not cell.calls or not cell.recorded:
            continue
        attempted += cell.calls
        text = _unaccounted(cell)
        if text and not _ends_are_counted(cell):
            problems.append(Problem(text, *key))
    if not attempted:
        return None
    return Outcome(f"{attempted:,} calls attempted, all recorded", problems)


def _unaccounted(cell: Cell) -> str:
    answered = cell.calls - sum(cell.outcomes.values())
    if answered <= cell.recorded <= cell.calls:
        return ""
    return f"{cell.calls:,} calls attempted, {cell.recorded:,} recorded"


def _ends_are_counted(cell: Cell) -> bool:
    """A crowd keeps samples of some of its calls, but counts how each of them ended."""
    ends = cell.hits + cell.misses + cell.errors + cell.refused + sum(cell.outcomes.values())
    return ends >= cell.calls


def kinds_of_answers(sample: Sample) -> Outcome | None:
    """A miss is fast: times of hits and of misses never share a distribution."""
    counted = [cell for cell in sample.cells.values() if cell.hits or cell.misses]
    if not counted:
        return None
    problems = [
        Problem(
            f"{cell.misses:,} misses among {cell.hits:,} hits, timed as one",
            cell.candidate, cell.operation, cell.payload,
        )
        for cell in counted
        if cell.hits and cell.misses and cell.count
    ]  # fmt: skip
    hits, misses = (sum(getattr(c, name) for c in counted) for name in ("hits", "misses"))
    return Outcome(f"{hits:,} hits and {misses:,} misses in cells of their own", problems)


def generator(sample: Sample) -> Outcome | None:
    """At a fixed rate, the generator kept up and so did whoever was asked."""
    problems = []
    worst = {"late_share": 0.0, "generator_cpu": 0.0, "dropped_share": 0.0}
    seen = False
    for key, cell in sample.cells.items():
        for name, most, text in (
            ("late_share", LATE_MOST, "of the calls began late though their turn had come"),
            ("generator_cpu", BUSY_MOST, "of its time the generator was busy itself"),
            ("dropped_share", DROPPED_MOST, "of the calls never began: it cannot serve this rate"),
        ):
            if name not in cell.measures:
                continue
            seen = True
            share = fmean(_values(cell.measures[name]))
            worst[name] = max(worst[name], share)
            if share > most:
                problems.append(Problem(f"{share:.1%} {text}", *key))
    if not seen:
        return None
    evidence = (
        f"at most {worst['late_share']:.1%} of calls late, {worst['dropped_share']:.1%} dropped, "
        f"generator at most {worst['generator_cpu']:.0%} busy"
    )
    return Outcome(evidence, problems)


def one_rate(sample: Sample) -> Outcome | None:
    """All candidates got the same load, or the faster is measured under more of it."""
    rates: dict[tuple[str, str], list[float]] = {}
    for cell in sample.cells.values():
        if "offered_rate" in cell.measures:
            found = median(_values(cell.measures["offered_rate"]))
            rates.setdefault((cell.operation, cell.payload), []).append(found)
    if not rates:
        return None
    problems = [
        Problem(f"{operation}: candidates were offered {min(found):,.0f} to {max(found):,.0f} /s")
        for (operation, _), found in rates.items()
        if max(found) > ONE_RATE * min(found)
    ]
    return Outcome("every candidate was offered the same rates", problems)


def order(sample: Sample) -> Outcome | None:
    """Rounds were interleaved, in random order, which can be repeated."""
    recorded = sample.about.get("order") or {}
    if not recorded.get("visits"):
        return None
    problems = []
    for name, (mean_place, visits) in recorded["places"].items():
        chance = PLACE_SIGMAS / math.sqrt(12 * visits)
        if abs(mean_place - 0.5) > max(chance, 0.05):
            text = f"came at {mean_place:.0%} of a round on average, over {visits} visits"
            problems.append(Problem(f"{name} {text}: that is no random order"))
    digests = ", ".join(recorded["digests"])
    seed = sample.about["seed"]
    text = (
        f"{recorded['visits']:,} visits in an order drawn anew each round (seed {seed}, {digests})"
    )
    return Outcome(text, problems)


def twins(sample: Sample) -> Outcome:
    """One configuration under two names says how large a difference luck makes."""
    measured = [entry for entry in sample.candidates.values() if entry.state == "measured"]
    have = {kind_of(entry) for entry in measured if entry.twin_of}
    wanted = {kind_of(entry) for entry in measured}
    names = {"server": "what asks a server", "process": "what runs in the process"}
    problems = [
        Problem(f"no A/A twin of {names[kind]} was measured") for kind in sorted(wanted - have)
    ]
    of = sorted({entry.twin_of for entry in measured if entry.twin_of})
    return Outcome(f"A/A twins of {', '.join(of)}", problems)


def drift(sample: Sample) -> Outcome | None:
    """The machine was the same at the end: those measured twice did not become slower."""
    measured = [e for e in sample.candidates.values() if e.state == "measured"]
    arms = [[e.name, e.twin_of] for e in measured if e.twin_of] or [[sample.about["baseline"]]]
    problems, seen = [], []
    for names in arms:
        found = trend_of(_levels(sample, set(names)))
        if found is None or found.rounds < 6:
            continue
        seen.append(f"{names[-1]} {found.change:+.1%}")
        if found.p < DRIFT_P and abs(found.log_change) > DRIFT_MOST:
            who = names[-1] + (" and its twin" if len(names) > 1 else "")
            text = f"took {found.change:+.0%} at the end of a set of rounds, beside its start"
            problems.append(Problem(f"{who} {text}: the machine drifted"))
    if not seen:
        return None
    return Outcome(f"from the first to the last round: {', '.join(seen)}", problems)


def _levels(sample: Sample, names: set[str]) -> list[list[float]]:
    """How costly each round was beside the usual, as a log ratio: one list per repetition."""
    found: dict[tuple[int, int], list[float]] = {}
    for cell in sample.cells.values():
        if cell.candidate not in names or not cell.points:
            continue
        usual = median(value for rounds in cell.points.values() for value in rounds.values())
        for repetition, rounds in cell.points.items():
            for number, value in rounds.items():
                found.setdefault((repetition, number), []).append(math.log(value / usual))
    by_repetition: dict[int, list[float]] = {}
    for (repetition, _), values in sorted(found.items()):
        by_repetition.setdefault(repetition, []).append(median(values))
    return list(by_repetition.values())


def processes(sample: Sample) -> Outcome | None:
    """A process has a memory layout of its own; one lucky one proves nothing."""
    count = len({repetition for repetition, _ in sample.rounds})
    if not count:
        return None
    text = f"{plural(count, 'set')} of fresh processes"
    planned = sample.about["plan"]["repetitions"]
    too_few = f"{text}, {PROCESSES_LEAST} are wanted"
    if planned < PROCESSES_LEAST:
        too_few += " (its plan has fewer)"
    return Outcome(text, [] if count >= PROCESSES_LEAST else [Problem(too_few)])


def same_treatment(sample: Sample) -> Outcome | None:
    """What a candidate proved to be in one process it was in all of them."""
    if not any(entry.proof for entry in sample.candidates.values()):
        return None
    problems = [
        Problem(text, name)
        for name, text in sample.about.get("changed", {}).items()
        if name in sample.candidates
    ]
    proven = sum(bool(entry.proof) for entry in sample.candidates.values())
    return Outcome(f"{proven} candidates proved what they are, the same in every process", problems)


def same_versions(sample: Sample) -> Outcome | None:
    """Libraries at the end are those of the start, and of every run that was merged."""
    after = sample.about.get("versions_after")
    if not after:
        return None
    before = sample.about["versions"]
    changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    problems = [
        Problem(f"{name} was {before.get(name, 'absent')}, then {after.get(name, 'absent')}")
        for name in changed
    ]
    return Outcome("libraries were the same at the start and at the end", problems)


def steal(sample: Sample) -> Outcome:
    """Visits with much of it were left out. Who lost too many was not measured."""
    visits: dict[str, list[int]] | None = sample.about.get("steal_visits")
    if not visits:
        share = sample.about["steal_share"]
        text = f"the hypervisor gave {share:.1%} of the time to other guests"
        return Outcome(text, [Problem(text)] if share > RUN_STEAL_MOST else [])
    text = f"the hypervisor gave other guests {sample.about['steal_share']:.1%} of a visit"
    problems = [
        Problem(
            f"in {stolen} of {plural(made, 'visit')} it took more than {STEAL_MOST:.0%}, twice",
            name,
            operation,
        )
        for name, (made, _, stolen) in visits.items()
        if too_many(stolen, made)
        for operation in _timed(sample)
    ]
    made, repeated, stolen = (sum(counts) for counts in zip(*visits.values(), strict=True))
    if repeated:
        text += (
            f"; of {made:,} visits, {repeated:,} with more than {STEAL_MOST:.0%} were made again"
            f" and {stolen:,} left out"
        )
    return Outcome(text, problems)


def _timed(sample: Sample) -> list[str]:
    """Bytes are as many, however long it took to count them."""
    operations = sample.about["operations"]
    return [name for name, operation in operations.items() if operation["unit"] == "ns"]


def swap(sample: Sample) -> Outcome | None:
    pages = sample.about.get("swapped_pages")
    if pages is None:
        return None
    text = f"{pages:,} pages were swapped in or out"
    return Outcome(text, [Problem(text)] if pages > SWAP_MOST_PAGES else [])


def load_before(sample: Sample) -> Outcome:
    load = sample.about["load_before"]
    text = f"load {load:.1f} before the run began"
    return Outcome(text, [Problem(f"the machine was busy: {text}")] if load > LOAD_MOST else [])


def governor(sample: Sample) -> Outcome | None:
    name = sample.about["machine"].get("governor", "not shown")
    if name == "not shown":
        return None
    text = f"the CPU frequency governor is {name}"
    wants = "performance would keep the clock still"
    return Outcome(text, [] if name == "performance" else [Problem(f"{text}; {wants}")])


def own_cores(sample: Sample) -> Outcome:
    """As the candidates proved it; else all were put on one CPU where there are few."""
    cores = dict.fromkeys(
        e.proof["cores"] for e in sample.candidates.values() if "cores" in e.proof
    )
    if cores:
        shared = [text for text in cores if text.startswith("shared")]
        return Outcome("; ".join(cores), [Problem(text) for text in shared])
    text = plural(sample.about["machine"]["cpus_usable"], "CPU")
    said = f"{text}: client and server share them, so their CPU times are the firmer numbers"
    return Outcome(text, [Problem(said)] if sample.about["machine"]["cpus_usable"] <= 2 else [])


def overhead(sample: Sample) -> Outcome | None:
    cost = sample.about.get("overhead") or {}
    if "batch_below_ns" not in cost:
        return None
    below_us = cost["batch_below_ns"] / 1000
    in_batch = cost["batch_below_ns"] > SHORT_OPERATION_NS
    share = cost["batched_ns" if in_batch else "call_ns"] / SHORT_OPERATION_NS
    text = (
        f"the lab's own loop costs {share:.1%} of an operation of 10 µs: {cost['call_ns']:.0f} ns "
        f"a call, {cost['batched_ns']:.0f} ns in batches, in which calls below {below_us:.0f} µs go"
    )
    return Outcome(text, [Problem(text)] if share > OVERHEAD_MOST else [])


def percentiles(sample: Sample) -> Outcome | None:
    """A P99 has samples beyond it, and they are of who was asked: see firm.py."""
    doubts = [doubt(cell, 99) for cell in sample.cells.values() if cell.count]
    if not doubts:
        return None
    few, late = doubts.count("few"), doubts.count("late")
    why_few = f"{few} for too few samples" if late else "too few samples beyond them"
    why_late = f"{late} for calls that the generator began late"
    reasons = [why_few] * bool(few) + [why_late] * bool(late)
    text = f"{few + late} of {len(doubts)} P99 are grey: {', '.join(reasons)}"
    return Outcome(f"every P99 has {BEYOND} samples beyond it", [Problem(text)] if reasons else [])


def can_be_repeated(sample: Sample) -> Outcome:
    about = sample.about
    problems = [] if about["cannot_answer"] else [Problem("it is not said what it cannot answer")]
    return Outcome("command, seed, machine and versions are in the file", problems)


def _values(series: Series) -> Iterator[float]:
    return (value for rounds in series.points.values() for value in rounds.values())
