"""``nearcache nginx``: what an HTTP cache saves or costs, and purge. One file for each verb."""

from __future__ import annotations

import click

from nearcache.cli.verbs import Verbs
from nearcache.errors import NginxError

VERBS: dict[str, str] = {}


@click.group(cls=Verbs, package=__name__, verbs=VERBS, error=NginxError)
def nginx() -> None:
    """Look at an nginx cache: what it saves, why it misses, what would help."""
