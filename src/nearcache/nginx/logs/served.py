"""Which requests of a log were served from the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nearcache._core import NginxTally

SERVED = ("HIT", "STALE", "UPDATING")
"""Answers that nobody waited for. REVALIDATED asked upstream, and saved bytes only."""


def served(tally: NginxTally) -> int:
    """Requests answered from the cache without waiting for an upstream."""
    return sum(tally["statuses"][each]["requests"] for each in SERVED if each in tally["statuses"])


def served_bytes(tally: NginxTally) -> int:
    return sum(tally["statuses"][each]["bytes"] for each in SERVED if each in tally["statuses"])
