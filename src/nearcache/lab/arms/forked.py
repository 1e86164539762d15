"""A forked child of a worker: it runs one function, talks through a pipe, and may be killed.

For what several processes do to each other. A fork costs milliseconds where a new
interpreter with Django costs half a second; the worker therefore loads everything and
connects to nothing, so that no child inherits a socket.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Self

from nearcache.lab.servers import child_setup

END_TIMEOUT_S = 5.0


class ForkFailed(Exception):
    """A child raised, died or kept silent; the message says which."""


class Silent(ForkFailed):
    """Nothing was heard in time. For some questions that is the answer."""


class Forked:
    """``task(pipe)`` in a child on one CPU. Use as a context manager: leaving it kills it."""

    def __init__(self, task: Callable[[Teller], Any], cpu: int) -> None:
        context = multiprocessing.get_context("fork")
        self._ours, theirs = context.Pipe()
        self.process = context.Process(
            target=_run, args=(task, self._ours, theirs, cpu), daemon=True
        )
        self.process.start()
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        self._ours.close()
        self.process.join(END_TIMEOUT_S)

    def say(self, message: Any) -> None:
        self._ours.send(message)

    def hear(self, timeout_s: float) -> Any:
        """What the child sends next, or returns. Raises ForkFailed; Silent if there is nothing."""
        if not self._ours.poll(timeout_s):
            raise Silent(f"nothing heard within {timeout_s:g} s")
        try:
            message, failure = self._ours.recv()
        except (EOFError, OSError):
            raise ForkFailed("a process died before it could answer") from None
        if failure:
            raise ForkFailed(failure)
        return message

    def kill(self) -> None:
        """SIGKILL: it has no chance to let go of anything."""
        if self.process.is_alive():
            self.process.kill()


class Teller:
    """The child's end: what it says travels with the mark that all is well."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def say(self, message: Any) -> None:
        self._pipe.send((message, None))

    def hear(self) -> Any:
        return self._pipe.recv()


def _run(task: Callable[[Teller], Any], parents: Connection, pipe: Connection, cpu: int) -> None:
    parents.close()  # our copy would keep the pipe open after the parent has left
    child_setup(cpu)()
    try:
        pipe.send((task(Teller(pipe)), None))
    except (EOFError, BrokenPipeError):
        pass  # the parent does not want to know any more
    except BaseException as error:  # noqa: BLE001 - it travels to whoever asked
        said = (str(error).strip().splitlines() or [""])[0]
        pipe.send((None, f"{type(error).__name__}: {said}"))
    os._exit(0)  # no exit handlers: they belong to the parent
