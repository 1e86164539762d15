"""A thread that feeds a log pass with what nginx writes, while others look at the figures.

A thread of its own, because standard input may keep its reader waiting while a screen must
go on. The pass takes care of itself when both ask; the GIL is free while it reads lines.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nearcache._core import NginxLog
    from nearcache.nginx.logs.files import Logs

LAST_WAIT_S = 1.0


class Tail(threading.Thread):
    """Feeds ``log`` with ``logs`` until the stream ends or ``stopped`` is set."""

    def __init__(self, logs: Logs, log: NginxLog, stopped: threading.Event) -> None:
        super().__init__(daemon=True, name="nearcache-tail")
        self._logs = logs
        self._log = log
        self._stopped = stopped
        self.caught_up = threading.Event()
        """All that was there has been read once."""
        self.ended = threading.Event()
        self.error: Exception | None = None
        """What ended it before its time: for the thread that looks."""

    def run(self) -> None:
        try:
            self._feed()
        except Exception as error:  # noqa: BLE001 - raised again by who looks
            self.error = error
        self.caught_up.set()
        self.ended.set()

    def stop(self) -> None:
        self._stopped.set()
        # Not for ever: standard input may never say anything again.
        self.join(LAST_WAIT_S)

    def _feed(self) -> None:
        for chunk in self._logs.chunks():
            if chunk:
                self._log.feed(chunk)
            # Who had read all there was reads on to its end once more: what was written before
            # somebody pressed a key is counted.
            if self._stopped.is_set() and not (chunk and self.caught_up.is_set()):
                return
            if not chunk:
                self.caught_up.set()
