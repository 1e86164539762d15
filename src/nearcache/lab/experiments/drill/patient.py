"""The process that is put through a fault: uses the cache, reports what it was told.

One operation at a time, over a pipe. If no answer comes in time the process is killed, and
"blocks" is the answer. What it reports besides the value: how long it took, and whether
somebody who reads logs and warnings would know that something is wrong.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from time import perf_counter_ns as clock
from typing import Any

from nearcache.lab.servers import child_setup

OpenCache = Callable[[], Any]
NAP_S = 0.05


@dataclass(frozen=True)
class Reply:
    """What a caller of the cache got. Neither value nor error if it never came back."""

    value: Any = None
    error: str = ""  # the type of the exception
    said: str = ""  # its text, in one line
    ns: int = 0
    blocks: bool = False
    is_logged: bool = False  # a record of WARNING or above
    is_warned: bool = False  # Python's warnings


BLOCKS = Reply(blocks=True)


class Unpicklable:
    """What no serializer takes: it says so itself."""

    def __reduce__(self) -> Any:
        raise TypeError("this object cannot be pickled")


LOADED = "<what is it>"  # no method: asks for the class of the cache and all modules
UNPICKLABLE = "<unpicklable>"  # stands for one on the pipe, which pickles


class Patience:
    """How many seconds one waits for replies, of one patient or of several in turn.

    They are spent in naps, and a nap that took longer costs no more than it was to take: when
    the host stops this machine for a second, nobody could answer, and nobody "blocks".
    """

    def __init__(self, limit_s: float) -> None:
        self._left_s = limit_s

    def waits_for(self, pipe: Connection) -> bool:
        """Whether something has arrived before all is spent."""
        while self._left_s > 0:
            nap_s = min(NAP_S, self._left_s)
            if pipe.poll(nap_s):
                return True
            self._left_s -= nap_s
        return pipe.poll(0)


class Patient:
    """A forked process with the cache in it. Make it before this process opens the cache."""

    def __init__(self, open_cache: OpenCache) -> None:
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(self._pipe, theirs, open_cache), daemon=True
        )
        self._process.start()
        theirs.close()
        self.is_busy = False

    def call(self, method: str, *arguments: Any, limit_s: float) -> Reply:
        self.begin(method, *arguments)
        return self.answer(Patience(limit_s))

    def begin(self, method: str, *arguments: Any) -> None:
        """Ask, and do not wait: several patients may be asked at once."""
        self.is_busy = True
        with suppress(OSError):  # it died; answer() says so
            self._pipe.send((method, arguments))

    def answer(self, patience: Patience) -> Reply:
        """The reply, or that there is none yet. It may be asked for again."""
        try:
            if not patience.waits_for(self._pipe):
                return BLOCKS
            reply = self._pipe.recv()
        except (EOFError, OSError):
            return Reply(error="death of the process")
        self.is_busy = False
        assert isinstance(reply, Reply)
        return reply

    def end(self) -> None:
        """Whatever it is doing."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


class _Ears(logging.Handler):
    """Counts what an operator would read."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.heard = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.heard += 1


def _serve(parents: Connection, pipe: Connection, open_cache: OpenCache) -> None:
    parents.close()
    child_setup(None)()  # one that hangs must not outlive the worker
    ears = _Ears()
    logging.getLogger().addHandler(ears)
    cache: Any = None
    while True:
        try:
            method, arguments = pipe.recv()
        except (EOFError, OSError):
            os._exit(0)
        cache = cache or open_cache()
        if method == LOADED:
            backend = f"{type(cache).__module__}.{type(cache).__qualname__}"
            pipe.send(Reply(value=(backend, list(sys.modules))))
        else:
            pipe.send(_ask(cache, method, arguments, ears))


def _ask(cache: Any, method: str, arguments: tuple[Any, ...], ears: _Ears) -> Reply:
    arguments = tuple(Unpicklable() if a == UNPICKLABLE else a for a in arguments)
    heard, value, error, said = ears.heard, None, "", ""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        start = clock()
        try:
            value = getattr(cache, method)(*arguments)
        except Exception as raised:  # noqa: BLE001 - which one it is is the question
            error = type(raised).__name__
            said = next(iter(str(raised).splitlines()), "")
        ns = clock() - start
    if method in ("set", "set_many"):
        value = None  # nobody looks at it
    noticed = [
        w for w in warned if not issubclass(w.category, DeprecationWarning | ResourceWarning)
    ]
    return Reply(value, error, said, ns, False, ears.heard > heard, bool(noticed))
