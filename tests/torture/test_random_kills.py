"""Half a minute of what ``make torture`` does for hours; see ``rig.py``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = 15


@pytest.mark.parametrize("size_mib", [1, 8])
def test_nobody_notices_that_processes_are_killed_and_stopped(
    size_mib: int, memory_path: Path, tmp_path: Path
) -> None:
    # It must have shown what it is for: on a machine that is busy, in more than one run.
    assert any(killed_inside(size_mib, memory_path, tmp_path) for _ in range(5))


def killed_inside(size_mib: int, memory_path: Path, tmp_path: Path) -> int:
    """How many were killed while they held a lock."""
    rig = [sys.executable, "-m", "tests.torture", f"--seconds={SECONDS}", f"--size={size_mib}"]
    where = [f"--directory={memory_path}", f"--evidence={tmp_path}"]
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    done = subprocess.run(
        [*rig, *where], capture_output=True, text=True, timeout=300, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    found = {name: int(number.replace(",", "")) for name, number in COUNT.findall(done.stdout)}
    # What was counted nowhere is not printed.
    return found.get("owner deaths (crowded)", 0) + found.get("owner deaths (roomy)", 0)


COUNT = re.compile(r"(?<=[ ,])([a-z][a-z ()]*) ([\d,]+)(?=,|$)", re.MULTILINE)
