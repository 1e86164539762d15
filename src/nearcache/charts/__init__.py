"""Curves for pages that are one file: uPlot, our drawing with it, and data that is safe beside it.

A page inlines :data:`SCRIPTS` and :data:`STYLES`, and allows the scripts by their hashes. Who
has no scripts reads tables, so every page must hold its numbers as text, too.

Not here: pages. The lab and the doctor each have their own.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import Any

SCRIPTS = ("uplot/uPlot.iife.min.js", "curves.js")
STYLES = ("uplot/uPlot.min.css",)
DIGITS = 4


@cache
def resource(name: str) -> str:
    """The text of one of ours."""
    return resources.files("nearcache.charts").joinpath(name).read_text(encoding="utf-8")


def hash_source(text: str) -> str:
    """As a policy (CSP) names a script or a style sheet that it allows."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def as_script(data: Any) -> str:
    """JSON that cannot end the ``<script>`` it stands in, whatever names are in it."""
    text = json.dumps(_rounded(data), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _rounded(value: Any) -> Any:
    """Four digits are more than any pixel shows, and JSON knows no infinity."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        short = float(f"{value:.{DIGITS}g}")
        return int(short) if short.is_integer() else short
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value
