"""What the Python side forgives, counted. Engines count their own events, refusals included.

    undecodable       a stored value could not be turned back into an object: served as a miss
    refused           a value was too large, or its shard stayed locked: not stored
    flight_leads      get_or_set computed a value as the only one on this host
    flight_follows    get_or_set waited for somebody else's computation and took its value
    flight_timeouts   get_or_set waited as long as it may, then computed as well
    locks_lost        a named lock ran out or was taken over before its release

Counts are per process, and approximate when threads race: an increment is not a lock's worth.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass
class Counters:
    """The counters named above, all starting at zero."""

    undecodable: int = 0
    refused: int = 0
    flight_leads: int = 0
    flight_follows: int = 0
    flight_timeouts: int = 0
    locks_lost: int = 0

    def as_dict(self) -> dict[str, int]:
        return asdict(self)
