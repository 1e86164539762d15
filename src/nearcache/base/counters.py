"""Counts of what the Python side forgives. Engines count their own events, refusals included.

    undecodable       a stored value could not be turned back into an object: served as a miss
    refused           a value was too large, or its shard stayed locked: not stored
    locks_lost        a named lock ran out or was taken over before its release
    forgiven          a call was not served because the store was away, and nobody was told
    unstored          a computed value was returned although the store was lost meanwhile

Single flight (nearcache.coordination.single_flight), among all who share the store, and within this
process:

    flight_leads      computed a value as the only one of all processes
    flight_follows    waited for another process's computation and took its value
    flight_timeouts   waited for another process as long as it may, then computed as well
    local_leads       went for a value as the first of this process
    local_follows     waited for another caller of this process and took its value
    local_timeouts    waited for another caller of this process in vain, then computed as well

Values with a soft deadline (nearcache.django_cache.get_or_set):

    early_recomputes  a fresh value was computed anew before its soft deadline
    stale_served      a stale value was served, and a computation behind it started or awaited
    stale_on_error    a stale value was served because computing failed
    refresh_errors    computing failed, and there was an older value to serve
    refresh_skipped   a stale value was not computed anew, as too many refreshes ran

Each process has counts of its own. They are approximate when threads race, because a lock would
cost more than a count is worth.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass

logger = logging.getLogger("nearcache")


@dataclass
class Counters:
    """The counters named above, all starting at zero."""

    undecodable: int = 0
    refused: int = 0
    locks_lost: int = 0
    forgiven: int = 0
    unstored: int = 0
    flight_leads: int = 0
    flight_follows: int = 0
    flight_timeouts: int = 0
    local_leads: int = 0
    local_follows: int = 0
    local_timeouts: int = 0
    early_recomputes: int = 0
    stale_served: int = 0
    stale_on_error: int = 0
    refresh_errors: int = 0
    refresh_skipped: int = 0

    def refuse(self, cache: str, count: int = 1) -> None:
        """Counts writes that were refused; the first one of a process is logged."""
        first = not self.refused
        self.refused += count  # before the log: its handler may use the cache, and be refused
        if count and first:
            logger.warning(
                "%s: a value was not stored (larger than max_item, or its shard stayed locked); "
                "more of them are only counted, as refused in stats()",
                cache,
            )

    def lose(self, cache: str, error: Exception) -> None:
        """Counts a computed value that may not be stored; the first one of a process is logged."""
        if not self.unstored:
            logger.warning(
                "%s: a computed value was returned and perhaps not stored (%s);"
                " more of them are only counted, as unstored in stats()",
                cache,
                error,
            )
        self.unstored += 1

    def as_dict(self) -> dict[str, int]:
        return asdict(self)
