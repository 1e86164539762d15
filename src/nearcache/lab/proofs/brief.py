"""Proof that values expire: one is stored for a second when a worker begins, and looked for later.

Nobody waits for it. The first visit that comes late enough looks; a run so short that none
does says nothing about expiry.
"""

from __future__ import annotations

import time
from typing import Any

from nearcache.lab.proofs.canary import CanaryDied
from nearcache.lab.proofs.companion import Companion

TIMEOUT_S = 1
GONE_AFTER_S = 2.5  # Memcached counts whole seconds, and starts them when it likes


class Brief:
    """One value with a short life."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.stored_at: float | None = None

    def store(self, cache: Any) -> None:
        cache.set(self.key, "brief", TIMEOUT_S)
        self.stored_at = time.monotonic()

    def forget(self, cache: Any) -> None:
        """The run ends before it was looked for: it may lie in a cache of the user's own."""
        if self.stored_at is not None:
            self.stored_at = None
            cache.delete(self.key)

    def look(self, companion: Companion, facts: dict[str, str]) -> None:
        """Once, when it must be gone.

        Raises:
            CanaryDied: it still answers.
        """
        if self.stored_at is None:
            return
        age_s = time.monotonic() - self.stored_at
        if age_s < GONE_AFTER_S:
            return
        self.stored_at = None
        if companion.get(self.key) is not None:
            raise CanaryDied(f"a value stored for {TIMEOUT_S} s still answers after {age_s:.1f} s")
        facts["expiry"] = f"a value stored for {TIMEOUT_S} s was gone {GONE_AFTER_S} s later"
