"""Proof that a candidate stores where its settings say, and not in somebody else's place.

Two of the old experiments measured one alias twice, because a route or an option did not
lead where its name said. So a value is stored through the alias and looked for on a bare
socket, at the address and in the database that the settings name.
"""

from __future__ import annotations

from typing import Any

from nearcache.lab.base.model import Candidate
from nearcache.lab.proofs.proof import TreatmentNotApplied
from nearcache.lab.servers.wire import wire_of

TIMEOUT_S = 600


def prove_place(candidate: Candidate, cache: Any, key: str) -> None:
    """For private servers that speak Redis or Memcached; of others nothing is claimed.

    Raises:
        TreatmentNotApplied: the value is somewhere else.
    """
    wire = wire_of(candidate)
    if wire is None:
        return
    cache.set(key, "here", TIMEOUT_S)
    raw_key = cache.make_key(key)
    with wire:
        found = wire.get(raw_key if isinstance(raw_key, bytes) else str(raw_key).encode())
    cache.delete(key)
    if found is None:
        place = candidate.settings["LOCATION"]
        raise TreatmentNotApplied(f"what it stores is not at {place}, where its settings point")
