"""A process that an arm starts: one line of JSON each way, and never left behind.

Some arms change the whole interpreter (gevent) or have to be killed while they hold
something (locks). They run in a child of the worker: ``python -m MODULE``, which talks
through :mod:`nearcache.lab.arms.child_link`. The kernel ends it with the worker.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import wait
from typing import Any

from nearcache.lab.base.arm import Unavailable
from nearcache.lab.servers import child_setup, end_process, last_words

ANSWER_TIMEOUT_S = 45.0  # below that of the driver, so that the reason is ours


class ChildFailed(Exception):
    """The child could not do what it was asked, or is gone; the message says which."""


class Child:
    """``python -m module`` on one CPU."""

    def __init__(self, module: str, cpu: int) -> None:
        self.module = module
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed in end()
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            preexec_fn=child_setup(cpu),  # noqa: PLW1509 - a worker has one thread
        )

    def ask(self, message: Mapping[str, Any], timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
        """Its answer.

        Raises:
            ChildFailed: it says so, has died, or did not answer in time.
            Unavailable: it says that something is not installed.
        """
        answer = self._exchange(json.dumps(message) + "\n", timeout_s)
        if "missing" in answer:
            raise Unavailable(answer["missing"], answer["install"])
        if "failed" in answer:
            raise ChildFailed(answer["failed"])
        return answer

    def end(self) -> None:
        """It leaves when its input closes; a child that does not is ended."""
        if self.process.stdin:
            with suppress(OSError):  # dead already, and something was left to be said
                self.process.stdin.close()
        end_process(self.process)
        if self.process.stdout:
            self.process.stdout.close()
        self._complaints.close()

    def _exchange(self, line: str, timeout_s: float) -> Any:
        questions, answers = self.process.stdin, self.process.stdout
        assert questions is not None
        assert answers is not None
        try:
            questions.write(line.encode())
            questions.flush()
        except OSError:
            raise ChildFailed(f"{self.module} died: {self._last_words()}") from None
        if not wait([answers.fileno()], timeout_s):
            raise ChildFailed(f"{self.module} gave no answer within {timeout_s:.0f} s")
        answer = answers.readline()
        if not answer:
            raise ChildFailed(f"{self.module} died: {self._last_words()}")
        return json.loads(answer)

    def _last_words(self) -> str:
        return last_words(self.process, self._complaints)
