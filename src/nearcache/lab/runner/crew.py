"""The worker processes of one repetition, as seen from the driver."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from nearcache.lab.base.messages import Failed, Setup
from nearcache.lab.servers import child_setup, end_process, last_words

BEGIN_TIMEOUT_S = 60.0
VISIT_TIMEOUT_S = 60.0
LEAVE_TIMEOUT_S = 2.0


class WorkerProcess:
    """One worker process and the pipe to it. It ends when the pipe is closed."""

    def __init__(self, setup: Setup) -> None:
        self.candidate = setup.candidate
        ours, theirs = socket.socketpair()
        # Where it complains if it dies before it can answer.
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed in end()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "nearcache.lab.runner.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._complaints,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,
                preexec_fn=child_setup(None),  # noqa: PLW1509 - the lab has one thread
            )
        self._pipe = Connection(ours.detach())
        self._pipe.send(setup)

    def begun(self) -> Any:
        """Ready, Missing or Failed."""
        return self._receive(BEGIN_TIMEOUT_S)

    def ask(self, message: Any) -> Any:
        """The worker's answer, or Failed if it has none."""
        try:
            self._pipe.send(message)
        except OSError:
            return Failed(f"its process died: {self._last_words()}")
        return self._receive(VISIT_TIMEOUT_S)

    def close(self) -> None:
        """Hang up: the worker leaves by itself."""
        self._pipe.close()

    def end(self) -> None:
        end_all([self])

    def ended(self) -> None:
        """Whatever it still does, it is gone when this returns."""
        end_process(self.process)
        self._complaints.close()

    def _receive(self, timeout_s: float) -> Any:
        try:
            if self._pipe.poll(timeout_s):
                return self._pipe.recv()
        except (EOFError, OSError):
            return Failed(f"its process died: {self._last_words()}")
        return Failed(f"no answer within {timeout_s:.0f} s")

    def _last_words(self) -> str:
        return last_words(self.process, self._complaints)


def end_all(members: Sequence[WorkerProcess]) -> None:
    """Hang up on all, and give them one time together to leave: many may still be loading."""
    for member in members:
        member.close()
    deadline = time.monotonic() + LEAVE_TIMEOUT_S
    for member in members:
        with suppress(subprocess.TimeoutExpired):
            member.process.wait(max(0.0, deadline - time.monotonic()))
    for member in members:
        if member.process.poll() is None:
            member.process.terminate()
    for member in members:
        member.ended()
