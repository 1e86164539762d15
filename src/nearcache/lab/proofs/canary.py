"""Before anything is timed: does this cache keep a value, for whom, and does it change?

The worker writes and its companion reads: version one, then version two, then nothing.
"""

from __future__ import annotations

from typing import Any

from nearcache.lab.proofs.companion import TIMEOUT_S, Companion
from nearcache.lab.workloads.payload import Payload


class CanaryDied(Exception):
    """The cache did not pass; the message says at which step and how."""


def prove_work(cache: Any, companion: Companion, payload: Payload, key: str) -> None:
    for version in (1, 2):
        cache.set(key, payload.make(key, version), TIMEOUT_S)
        _expect(payload, companion.get(key), key, version)
    cache.delete(key)
    if companion.get(key) is not None:
        raise CanaryDied("a deleted key still answers a second reader")


def _expect(payload: Payload, value: Any, key: str, version: int) -> None:
    if value is None:
        raise CanaryDied(
            "a value just set is not there for a second reader: nobody listens at this "
            "address, sets are dropped, or the store is not shared"
        )
    problem = payload.check(value, key, version)
    if problem:
        raise CanaryDied(f"a second reader got a wrong answer ({problem})")
