"""``nearcache lab``: measure caches, and read what was measured. One file for each verb."""

from __future__ import annotations

import click

from nearcache.cli.verbs import Verbs
from nearcache.errors import LabError

VERBS = {
    "list": "Show the experiments and what they compare.",
    "run": "Run experiments, print the report, write one JSON file and one HTML page.",
    "record": "Look at recordings of a site's cache; measure what recording costs.",
    "report": "Show what earlier runs measured; write it as HTML, Markdown, CSV or JSON.",
    "compare": "Compare two runs: what became slower or faster, and what else changed.",
    "recommend": "Say which cache to run, from what was measured, and print its CACHES block.",
    "serve": "Serve pages that time one read of a cache for every hit.",
}


@click.group(cls=Verbs, package=__name__, verbs=VERBS, error=LabError)
def lab() -> None:
    """Find out which cache is fastest: measure, compare, read the report."""
