"""What only one experiment shows: its tables, charts and sentences, made from a sample.

An experiment that needs more than the common report names a module here in its
``views``. The module has one function, ``views(analysis) -> Views``; reports/parts.py
calls it. Terminal, HTML and Markdown all draw the same objects, so they cannot disagree;
and nothing here measures. ``nearcache/report`` has the objects, and writes numbers with
their unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nearcache.report.model import Chart, Grid, Table


@dataclass(frozen=True, kw_only=True)
class Views:
    """Everything one experiment adds to its report, in the order in which it is shown."""

    sentences: Sequence[str] = ()  # generated from the data, one finding each
    parts: Sequence[Table | Chart | Grid] = ()
