"""What a Redis server says it did between two moments: bytes in and out, its own time.

The counters are the server's, so that no client library has to be believed. They count
everybody's traffic: only for a server that nobody else uses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Traffic:
    """Of ``calls`` calls of one command, per call."""

    calls: int
    bytes: float  # both directions
    server_ns: float  # what the command itself took, by INFO commandstats


class Counters:
    """Make it before the calls; ``since`` afterwards."""

    def __init__(self, client: Any) -> None:
        self._client = client
        # What asking costs is found by asking twice in a row.
        first, second = self._read(), self._read()
        self._overhead = second["bytes"] - first["bytes"]
        self._before = second

    def since(self, command: str) -> Traffic | None:
        """What was added by calls of ``command``; None if the server saw none."""
        now = self._read()
        calls = now.get(f"{command} calls", 0) - self._before.get(f"{command} calls", 0)
        if calls <= 0:
            return None
        moved = now["bytes"] - self._before["bytes"] - self._overhead
        spent_us = now.get(f"{command} usec", 0) - self._before.get(f"{command} usec", 0)
        return Traffic(calls, moved / calls, spent_us * 1000 / calls)

    def _read(self) -> dict[str, int]:
        # One call, for servers that take one section at a time; "all" has both.
        info = self._client.info("all")
        found = {"bytes": info["total_net_input_bytes"] + info["total_net_output_bytes"]}
        for command in ("get", "set", "setex", "psetex"):
            stats = info.get(f"cmdstat_{command}", {})
            found[f"{command} calls"] = stats.get("calls", 0)
            found[f"{command} usec"] = stats.get("usec", 0)
        return found
