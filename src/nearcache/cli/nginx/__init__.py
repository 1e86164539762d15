"""``nearcache nginx``: what an HTTP cache saves or costs, and purge. One file for each verb."""

from __future__ import annotations

import click

from nearcache.cli.verbs import Verbs
from nearcache.errors import NginxError

VERBS = {
    "report": "Say what the cache saves and what it costs, from access logs.",
    "misses": "Say why requests miss the cache, which, and what would buy most.",
    "queries": "Report how long the values of an argument are: what a rule of length would do.",
    "whatif": "Say what other rules would bring, by replaying logs through a model of nginx.",
    "watch": "Show hits, misses and seconds saved live, while nginx writes its log.",
    "inspect": "Show what a cache directory holds: entries, variants, RAM, duplicate bodies.",
    "purge": "Purge URLs or keys, all variants, without a module; with a receipt.",
    "agent": "Purge the caches of this host for sites on others: signed requests.",
    "lint": "Find what is wrong with how a configuration caches, and what to paste.",
    "config": "Print a safe cache configuration for a Django application, and prove it.",
}


@click.group(cls=Verbs, package=__name__, verbs=VERBS, error=NginxError)
def nginx() -> None:
    """Look at an nginx cache: what it saves, why it misses, what would help."""
