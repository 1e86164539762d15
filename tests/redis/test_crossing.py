"""No reply is ever another's: threads and greenlets, while everything breaks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.redis.servers import Server

ROOT = Path(__file__).parents[2]
SECONDS = 5


def torture(mode: str, server: Server) -> dict[str, Any]:
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning"]
    command += ["-m", "tests.redis.crossing", mode, str(server.port), server.path, str(SECONDS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


@pytest.mark.parametrize("mode", ["threads", "gevent"])
def test_replies_never_cross(mode: str, server: Server) -> None:
    result = torture(mode, server)
    counts, stats = result["counts"], result["stats"]
    assert result["wrong"] == []
    # A lost or doubled INCR would be outside of these.
    acknowledged, uncertain = counts["acknowledged"], counts["uncertain"]
    assert acknowledged <= counts["counter"] <= acknowledged + uncertain
    # And it did break.
    for what in ("kills", "freezes", "children", "interrupted", "ReplyTimeout", "ConnectionFailed"):
        assert counts.get(what, 0) > 0, counts
    assert stats["connects"] > 10, stats
    assert stats["again"] > 0, stats
    assert counts["done"] > 500, counts
