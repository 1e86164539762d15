"""Words for a network: ``0.5ms``, ``1Gbit``, ``20KB``. Options of several verbs."""

from __future__ import annotations

import re

import click

DURATIONS_NS = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
BITS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
BYTES = {"b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9}
NUMBER = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([A-Za-zµ]+?)(?:/s|ps)?\s*")


def _read(value: str, units: dict[str, float], example: str) -> float:
    match = NUMBER.fullmatch(value)
    unit = match[2].lower() if match else ""
    if match is None or unit not in units or not float(match[1]):
        raise click.BadParameter(f"{value!r} has no unit that fits; write it like {example}")
    return float(match[1]) * units[unit]


def duration_ns(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    """``0.5ms`` as nanoseconds."""
    return None if value is None else _read(value, DURATIONS_NS, "0.5ms")


def bytes_per_s(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    """``1Gbit`` or ``125MB`` as bytes a second."""
    units = {**{name: size / 8 for name, size in BITS.items()}, **BYTES}
    return None if value is None else _read(value, units, "1Gbit or 125MB")


def size_bytes(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    """``20KB`` as bytes."""
    return None if value is None else _read(value, BYTES, "20KB")
