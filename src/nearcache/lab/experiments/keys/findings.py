"""What hashing a key costs: the loop in sight, a sweep of lengths, the share of a get."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nearcache.lab.base.model import NO_PAYLOAD
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.judging.reading import (
    cell_of,
    compared,
    compared_all,
    measure_of,
    point_of,
    verdict_of,
)
from nearcache.lab.judging.words import beside
from nearcache.lab.results.sample import Entry
from nearcache.lab.views import Views
from nearcache.lab.views.waits import number
from nearcache.report.model import Chart, Line, Mark, Table
from nearcache.report.units import NOTHING, quantity

NET = "without the loop"
LOOP = "empty loop"
STEPS = ((55, 56), (64, 65), (111, 112), (128, 129))
KEY_COUNTS = (10**6, 10**9, 10**12)
MEMCACHED_LIMIT = 250
SWEPT = ("md5", "sha1", "sha256", "sha512", "blake2b", "blake2s", "blake3", "xxh3-64")


def views(analysis: Analysis) -> Views:
    first = next(iter(analysis.sample.about["payloads"]))
    functions = [entry for entry in analysis.contenders if "bits" in entry.options]
    if not functions:
        return Views()
    parts: list[Table | Chart] = [_costs(analysis, functions, first)]
    if len(_lengths(analysis)) > 1:
        parts += [_sweep(analysis), _steps(analysis, functions)]
    parts.append(_odds(functions))
    sentences = [
        *_fastest(analysis, functions, first),
        *_share(analysis, first),
        *_two_blakes(analysis),
        *_builtin(analysis, first),
    ]
    return Views(sentences=sentences, parts=parts)


def _costs(analysis: Analysis, functions: Sequence[Entry], payload: str) -> Table:
    gets = _gets(analysis)
    head = ["", "timed, ns", "empty loop", "hex digest", "raw digest", "str to str"]
    head += [f"% of a {name} get" for name in gets]
    rows = [
        [entry.name, *_cost_row(analysis, entry, payload, list(gets.values()))]
        for entry in sorted(functions, key=lambda e: _net(analysis, e.name, payload) or math.inf)
    ]
    title = analysis.sample.about["payloads"][payload]
    return Table(
        title=f"ns per key, {title}",
        head=[*head, "implementation"],
        rows=rows,
        text_columns=(0, len(head)),
        note="hex digest = timed - empty loop; so are the two after it. A get hashes once.",
    )


def _cost_row(analysis: Analysis, entry: Entry, payload: str, gets: Sequence[float]) -> list[str]:
    hexed = cell_of(analysis, entry.name, "hexdigest", payload)
    numbers = [
        point_of(analysis, entry.name, "hexdigest", payload),
        measure_of(hexed, LOOP),
        measure_of(hexed, NET),
        measure_of(cell_of(analysis, entry.name, "digest", payload), NET),
        measure_of(cell_of(analysis, entry.name, "make_key", payload), NET),
    ]
    whole = numbers[-1]
    shares = [number(None if whole is None else 100 * whole / get) for get in gets]
    return [*map(number, numbers), *shares, entry.proof.get("implementation", "")]


def _sweep(analysis: Analysis) -> Chart:
    lines = []
    for name in SWEPT:
        points = [
            (float(length), max(1.0, net))
            for length in _lengths(analysis)
            if (net := _net(analysis, name, str(length))) is not None
        ]
        if points:
            family = analysis.sample.candidates[name].family
            lines.append(Line(name=name, points=points, family=family))
    return Chart(
        title="One key to its hex digest, by length; the empty loop is subtracted",
        x_title="bytes of the key",
        y_title="ns",
        lines=lines,
        x_log=True,
        y_log=True,
        marks=(Mark(x=64, text="64 B block"), Mark(x=128, text="128 B block")),
        note="MD5, SHA-1, SHA-256 and BLAKE2s work in blocks of 64 bytes, SHA-512 and BLAKE2b "
        "in blocks of 128. Below a block the length hardly matters.",
    )


def _steps(analysis: Analysis, functions: Sequence[Entry]) -> Table:
    rows = []
    for entry in functions:
        steps = [_step(analysis, entry.name, *step) for step in STEPS]
        if entry.options["bits"] and any(step is not None for step in steps):
            block = entry.options["block_bytes"]
            rows.append([entry.name, f"{block}", *(_signed(step) for step in steps)])
    return Table(
        title="What one more byte costs at the end of a block, ns",
        head=["", "block, B", *(f"{a} to {b} B" for a, b in STEPS)],
        rows=rows,
        note="MD5, SHA-1 and SHA-256 append 9 bytes to the last block, SHA-512 17: hence 55 and "
        "111. same: this run cannot tell that it costs anything.",
    )


def _odds(functions: Sequence[Entry]) -> Table:
    rows = [
        [
            entry.name,
            str(entry.options["bits"]),
            f"{entry.options['bits'] // 4}",
            *(odds(count, entry.options["bits"]) for count in KEY_COUNTS),
            "no" if entry.family == "xxh" else "broken" if _is_broken(entry.name) else "yes",
        ]
        for entry in functions
        if entry.options["bits"]
    ]
    return Table(
        title="Odds that two keys share a digest, computed",
        head=["", "bits", "hex", *(f"{count:,} keys" for count in KEY_COUNTS), "cryptographic"],
        rows=rows,
        note=f"By chance, n(n-1)/2^(bits+1). memcached takes keys of {MEMCACHED_LIMIT} bytes: any "
        "hex digest here leaves 120 for a prefix.",
    )


def odds(count: int, bits: int) -> str:
    """Chance of at least one collision among ``count`` digests, as a power of ten."""
    exponent = math.log10(count) + math.log10(count - 1) - (bits + 1) * math.log10(2)
    if exponent > -1:
        return f"{-math.expm1(-(10**exponent)):.0%}"
    return f"1e{math.floor(exponent)}"


def _fastest(analysis: Analysis, functions: Sequence[Entry], payload: str) -> list[str]:
    crypto = [
        e.name
        for e in functions
        if e.options["bits"] and e.family != "xxh" and not _is_broken(e.name)
    ]
    costs = {name: net for name in crypto if (net := _net(analysis, name, payload)) is not None}
    if len(costs) < 2:
        return []
    best = min(costs, key=lambda name: costs[name])
    pairs = [(name, best) for name in costs if name != best]
    told = compared_all(analysis, pairs, "hexdigest", [payload])
    tied = [name for name, _ in pairs if told[name, best, payload][1] != "slower"]
    title = analysis.sample.about["payloads"][payload]
    text = f"{title}: of the functions that are not broken {best} takes least, "
    text += f"{costs[best]:.0f} ns a key"
    if tied:
        return [f"{text}; this run cannot tell it from {', '.join(tied)}."]
    second = sorted(costs, key=lambda name: costs[name])[1]
    return [f"{text}; next is {second} with {costs[second]:.0f} ns."]


def _share(analysis: Analysis, payload: str) -> list[str]:
    sentences = []
    base = measure_of(cell_of(analysis, analysis.baseline, "make_key", payload), NET)
    if base is None:
        return []
    for name, get_ns in _gets(analysis).items():
        sentences.append(
            f"A get by {name} takes {quantity(get_ns, 'ns')} here. Hashing its key with "
            f"{analysis.baseline} ({quantity(base, 'ns')}) would be {base / get_ns:.1%} of that."
        )
    return sentences


def _two_blakes(analysis: Analysis) -> list[str]:
    """The article's question: why is BLAKE2s the faster one on a 64-bit machine?"""
    verdicts = {
        length: verdict_of(analysis, "blake2s", "blake2b", "hexdigest", str(length))
        for length in _lengths(analysis)
    }
    faster = [length for length, verdict in verdicts.items() if verdict == "faster"]
    slower = [length for length, verdict in verdicts.items() if verdict == "slower"]
    if not faster and not slower:
        return []
    if not faster:
        text = "This run saw BLAKE2s faster than BLAKE2b at no length"
    else:
        text = f"BLAKE2s is faster than BLAKE2b for keys of {_listed(faster)} bytes: one block of "
        text += "either holds such a key, and that of BLAKE2s is 64 bytes and 10 rounds, that of "
        text += "BLAKE2b 128 bytes and 12"
    if slower:
        text += f"; it is slower for {_listed(slower)} bytes"
    step = _step(analysis, "blake2s", 64, 65)
    if step:
        text += f"; the 65th byte, which begins a second block, costs it {step:.0f} ns"
    return [f"{text}."]


def _listed(lengths: Sequence[int]) -> str:
    return ", ".join(f"{length:,}" for length in lengths)


def _builtin(analysis: Analysis, payload: str) -> list[str]:
    found = compared(analysis, "sha1-builtin", "sha1", "hexdigest", payload)
    entry = analysis.sample.candidates.get("sha1")
    if found is None or entry is None:
        return []
    effect, verdict = found
    by = entry.proof.get("implementation", "?")
    flags = entry.proof.get("SHA instructions", "not shown")
    title = analysis.sample.about["payloads"][payload]
    says = beside(effect, verdict, f"that of {by}")
    return [f"CPython's own SHA-1, {title}: {says}, loop included (SHA instructions: {flags})."]


def _is_broken(name: str) -> bool:
    return name.startswith(("md5", "sha1"))


def _gets(analysis: Analysis) -> dict[str, float]:
    """Name of a cache -> ns of its get of a small object."""
    found = {}
    for entry in analysis.contenders:
        point = point_of(analysis, entry.name, "get", NO_PAYLOAD)
        if point is not None:
            found[entry.name.replace("-hiredis-unix", "")] = point
    return found


def _lengths(analysis: Analysis) -> list[int]:
    return [int(name) for name in analysis.sample.about["payloads"] if name.isdigit()]


def _net(analysis: Analysis, name: str, payload: str) -> float | None:
    return measure_of(cell_of(analysis, name, "hexdigest", payload), NET)


def _step(analysis: Analysis, name: str, before: int, after: int) -> float | None:
    """What the byte between costs; 0 if this run cannot tell that it costs anything."""
    low, high = (_net(analysis, name, str(length)) for length in (before, after))
    if low is None or high is None:
        return None
    verdict = verdict_of(analysis, name, name, "hexdigest", str(after), str(before))
    return high - low if verdict == "slower" and high > low else 0.0


def _signed(value: float | None) -> str:
    if not value:
        return NOTHING if value is None else "same"
    return f"{value:+.0f}"
