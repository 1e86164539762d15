"""When a hash changes its encoding: not looked up but tried, on the server that is measured.

What comes out is words, for the report: a name of the trial, and what the server did.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nearcache.lab.experiments.hashes.arm import Limits, Wire

KEY = "rule"
CONVERSIONS = 20  # hashes that are made to cross the limit


def try_rules(wire: Wire, limits: Limits) -> dict[str, str]:
    """Trial -> outcome. Leaves the limits of the server changed; it is not used again."""
    entries, value = limits.entries, limits.value
    found = {
        f"{entries} fields, then one more": _over_entries(wire, entries),
        f"back to {entries} fields by HDEL": _back(wire),
        f"a value of {value} bytes, then of {value + 1}": _over_value(wire, value),
        "the limit is raised by CONFIG SET": _raise(wire, limits),
        "DUMP and RESTORE after that": _restore(wire),
        "the limit is lowered, then one HSET": _lower(wire, limits),
        "expiry of single fields (HEXPIRE)": _field_expiry(wire),
    }
    wire.ask("CONFIG", "SET", limits.entries_name, entries)
    found["the HSET that converts"] = _conversion(wire, entries)
    return {f"rule: {name}": outcome for name, outcome in found.items()}


def _fill(wire: Wire, count: int, key: str = KEY) -> None:
    wire.ask("DEL", key)
    words: list[Any] = [word for number in range(count) for word in (f"field:{number}", "value")]
    wire.ask("HSET", key, *words)


def _encoding(wire: Wire) -> str:
    return str(wire.ask("OBJECT", "ENCODING", KEY).decode())


def _bytes(wire: Wire) -> int:
    return int(wire.ask("MEMORY", "USAGE", KEY, "SAMPLES", 0))


def _over_entries(wire: Wire, entries: int) -> str:
    _fill(wire, entries)
    before, small = _encoding(wire), _bytes(wire)
    wire.ask("HSET", KEY, "one more", "value")
    return f"{before} of {small:,} bytes, then {_encoding(wire)} of {_bytes(wire):,}"


def _back(wire: Wire) -> str:
    wire.ask("HDEL", KEY, "one more")
    return f"{_encoding(wire)} of {_bytes(wire):,} bytes"


def _over_value(wire: Wire, value: int) -> str:
    wire.ask("DEL", KEY)
    wire.ask("HSET", KEY, "field", "x" * value)
    before = _encoding(wire)
    wire.ask("HSET", KEY, "field", "x" * (value + 1))
    return f"{before}, then {_encoding(wire)}"


def _raise(wire: Wire, limits: Limits) -> str:
    _fill(wire, limits.entries + 1)
    wire.ask("CONFIG", "SET", limits.entries_name, 2 * limits.entries)
    before = _encoding(wire)
    wire.ask("HSET", KEY, "field:0", "other")
    return f"{before}, and {_encoding(wire)} after one more HSET"


def _restore(wire: Wire) -> str:
    wire.ask("RESTORE", KEY, 0, wire.ask("DUMP", KEY), "REPLACE")
    return f"{_encoding(wire)} of {_bytes(wire):,} bytes"


def _lower(wire: Wire, limits: Limits) -> str:
    _fill(wire, limits.entries)
    wire.ask("CONFIG", "SET", limits.entries_name, limits.entries // 2)
    before = _encoding(wire)
    wire.ask("HSET", KEY, "one more", "value")
    return f"{before}, then {_encoding(wire)}"


def _field_expiry(wire: Wire) -> str:
    _fill(wire, 2)
    try:
        wire.ask("HEXPIRE", KEY, 1000, "FIELDS", 1, "field:0")
    except Exception as error:  # noqa: BLE001 - whatever it is, the server has told
        return "no such command" if "unknown command" in str(error) else f"no ({error})"
    return f"yes, as {_encoding(wire)}"


def _conversion(wire: Wire, entries: int) -> str:
    """What one HSET takes that does not convert, and one that does; microseconds."""
    times: dict[int, list[int]] = {entries: [], entries + 1: []}
    for _ in range(CONVERSIONS):
        _fill(wire, entries - 1)
        for count, seen in times.items():
            wire.ask("CONFIG", "RESETSTAT")
            wire.ask("HSET", KEY, f"added:{count}", "value")
            text = wire.info("commandstats")["cmdstat_hset"]
            seen.append(int(dict(pair.split("=", 1) for pair in text.split(","))["usec"]))
    before, at = (median(seen) for seen in times.values())
    return f"{at:.0f} microseconds of the server's time, the one before it {before:.0f}"
