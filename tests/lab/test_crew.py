"""Workers that do not leave by themselves are ended together, not one after the other."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nearcache.lab.base.messages import Setup
from nearcache.lab.runner import crew
from nearcache.lab.runner.crew import WorkerProcess, end_all

from .made import arm


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[WorkerProcess]]:
    """Three workers that load for ever: they never look at their pipe."""
    loads = [sys.executable, "-c", "import time; time.sleep(60)"]
    popen = subprocess.Popen
    with monkeypatch.context() as patched:
        patched.setattr(crew.subprocess, "Popen", lambda _words, **more: popen(loads, **more))
        members = [WorkerProcess(setup(name, tmp_path)) for name in "abc"]
    yield members
    for member in members:
        member.process.kill()
        member.process.wait()


def setup(name: str, directory: Path) -> Setup:
    return Setup(
        candidate=arm(name), arm="", places={}, directory=str(directory), namespace=name,
        seed=1, server_version="", cpu=0,
    )  # fmt: skip


def test_all_have_one_time_to_leave_together(
    deaf: list[WorkerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    wait = subprocess.Popen.wait
    clock = [0.0]

    def noted(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        if process.poll() is None and timeout is not None:
            waited.append(timeout)
            clock[0] += timeout
            raise subprocess.TimeoutExpired("worker", timeout)
        return wait(process)

    monkeypatch.setattr(crew, "LEAVE_TIMEOUT_S", 0.2)
    monkeypatch.setattr(crew.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(crew, "end_process", lambda process: wait(process))
    monkeypatch.setattr(subprocess.Popen, "wait", noted)
    end_all(deaf)
    assert waited == [0.2, 0.0, 0.0], "one waits, and nobody after it waits again"
    assert [member.process.returncode for member in deaf] == [-signal.SIGTERM] * 3


def test_who_is_asked_to_leave_and_does_not_hear_is_gone(deaf: list[WorkerProcess]) -> None:
    end_all(deaf)
    assert [member.process.returncode for member in deaf] == [-signal.SIGTERM] * 3
