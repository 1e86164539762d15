"""The process of one candidate: ``python -m nearcache.lab.runner.worker <file descriptor>``.

It becomes the candidate, proves that it is and that it works, and then measures on
request until the pipe closes. One process per candidate and repetition: what is hidden
from one (hiredis) stays hidden, and a lucky or unlucky memory layout is not shared.

The garbage collector stays on, as in a real application, but what was loaded before
the first sample is frozen so that it is not walked again and again.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

from nearcache.lab.base.messages import Failed, Missing, Ready, Setup, Visit
from nearcache.lab.proofs.seal_off import seal_off


def main(descriptor: int) -> None:
    pipe = Connection(descriptor)
    setup: Setup = pipe.recv()
    seal_off(setup.candidate.hides)
    worker = Worker(setup)
    try:
        answer: Any = worker.begin()
        pipe.send(answer)
        while isinstance(answer, Ready):
            pipe.send(worker.visit(pipe.recv()))
    except (EOFError, BrokenPipeError):
        pass  # the driver is done with us, or dead
    worker.end()
    os._exit(0)  # skip libraries' exit handlers: nothing is left to save


class Worker:
    """Turns an arm's exceptions into messages."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.arm: Any = None

    def begin(self) -> Ready | Missing | Failed:
        from nearcache.lab.base.arm import Unavailable

        missing = self._first_missing()
        if missing:
            return missing
        try:
            module, _, name = self.setup.arm.rpartition(".")
            self.arm = getattr(import_module(module), name)(self.setup)
            return Ready(self.arm.begin())
        except Unavailable as unavailable:
            return Missing(str(unavailable), unavailable.install)
        except Exception as error:  # noqa: BLE001 - any error is the candidate's
            return Failed(explain(error))

    def visit(self, visit: Visit) -> Any:
        try:
            return self.arm.visit(visit)
        except Exception as error:  # noqa: BLE001 - any error is the candidate's
            return Failed(explain(error))
        finally:
            gc.collect()
            gc.freeze()

    def end(self) -> None:
        with suppress(Exception):  # nobody is left to be told
            if self.arm is not None:
                self.arm.end()

    def _first_missing(self) -> Missing | None:
        for requirement in self.setup.candidate.needs:
            try:
                import_module(requirement.module)
            except ImportError as error:
                reason = f"{requirement.module} does not import: {error}"
                return Missing(reason, requirement.install)
        return None


def explain(error: BaseException) -> str:
    """One line: what went wrong, in the words of the code that noticed."""
    lines = str(error).strip().splitlines()
    said = lines[0] if lines else ""
    if type(error).__module__.startswith("nearcache.lab"):
        return said
    where = traceback.extract_tb(error.__traceback__)[-1]
    at = "" if said else f" at {where.filename.rpartition('/')[2]}:{where.lineno}"
    return f"{type(error).__name__}: {said}{at}" if said else f"{type(error).__name__}{at}"


if __name__ == "__main__":
    main(int(sys.argv[1]))
