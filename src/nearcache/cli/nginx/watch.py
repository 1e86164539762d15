"""``nearcache nginx watch``: hits, misses and seconds saved, live.

    Tail (a thread) ──bytes──> NginxLog ──take_recent()──> Session, every interval: Watch
    (tail.py)                  the log pass                ──> a view (watch_views.py)

Not here: what is made of the figures (``nearcache.nginx.watch.watch``) and what is drawn of them
(``nearcache.nginx.watch.screen``).
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from nearcache.cli.keyboard import Keyboard, keyboard
from nearcache.cli.nginx.common import (
    INCOMPLETE,
    Reading,
    Request,
    beginning_of,
    logs_for,
    reading_of,
    site_for,
    which_logs,
)
from nearcache.cli.nginx.watch_views import Lines, Objects, Screen, View
from nearcache.cli.suspension import Suspension
from nearcache.errors import NginxError
from nearcache.nginx.watch.screen import summary
from nearcache.nginx.watch.tail import Tail
from nearcache.nginx.watch.watch import BY, Interval, Watch
from nearcache.report.model import Page
from nearcache.report.plain import lines_of
from nearcache.report.words import plural

if TYPE_CHECKING:
    from nearcache.nginx.logs.files import Logs

PAST_BYTES = 16_000_000  # of each log, read first for prices and for what was asked before
FORMAT_BYTES = 65536
LOOKS_S = 0.1
QUIT = ("q", "Q")
MOST_WIDTH = 80


@click.command()
@which_logs
@click.option("--from-start", is_flag=True,
              help="Also count what is there already. [from the end]")  # fmt: skip
@click.option("--window", "window_s", type=click.FloatRange(1, 3600), default=10.0,
              show_default=True,
              help="How many seconds are \"now\"; lists forget as slowly.")  # fmt: skip
@click.option("--every", "every_s", type=click.FloatRange(0.1, 3600), default=1.0,
              show_default=True, help="Show anew after so many seconds.")  # fmt: skip
@click.option("--by", type=click.Choice(BY), default="url", show_default=True,
              help="What to list: missed URLs, URL groups, cache statuses, reasons.")  # fmt: skip
@click.option("--top", type=click.IntRange(0), default=10, show_default=True,
              help="With --json: list so many.")  # fmt: skip
@click.option("--once", is_flag=True, help="Print one line, for one interval, and end.")
@click.option("--lines", type=click.IntRange(1), metavar="N",
              help="Print so many lines, one an interval, and end.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(0, min_open=True), metavar="N",
              help="Print lines for so many seconds, and end.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True,
              help="Print one JSON object an interval, for machines.")  # fmt: skip
def watch(
    from_start: bool,
    window_s: float,
    every_s: float,
    by: str,
    top: int,
    once: bool,
    lines: int | None,
    seconds: float | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Show hits, misses and seconds saved while nginx writes its log.

    FILE: access logs, directories of them, or - for standard input. Without any: those of
    --config, or of /var/log/nginx.

    On a terminal a screen: rates, hit ratio, response times (| from the cache, # not), and what
    is missed most; q or Ctrl-C ends it with a summary. Otherwise, and with --once, --lines,
    --seconds or --json, a line an interval; the summary goes to standard error.

    Exits 0, 1 if a file could not be read to its end, 2 if nothing can be watched.
    """
    request = Request(**given, follow=True, more={"watched": True})
    if once and (lines or seconds):
        raise click.UsageError("--once is --lines 1: give one of --once, --lines and --seconds")
    ends = Ends(1 if once else lines, seconds)
    stopped = threading.Event()
    seen = Watch(window_s)
    reading, began = _start(request, from_start, seen, stopped, ends, every_s)
    tail = Tail(reading.logs, reading.log, stopped)
    session = Session(reading, seen, tail, every_s, by, top, began)
    view = _view(session, as_json, ends)
    with _ended_politely(tail):
        if from_start and not session.is_piped:
            session.catch_up()
        keys = keyboard() if view.live else Keyboard(None)
        terminal = (keys, view) if view.live else ()
        # First: whoever presses Ctrl-Z while the screen is taken is heard when it is.
        with Suspension(*terminal) as suspension, keys, view:
            session.run(view, keys, suspension, ends)
    session.close(view)


def _view(session: Session, as_json: bool, ends: Ends) -> View:
    if as_json:
        return Objects(session)
    if sys.stdout.isatty() and not ends.given and not Console().is_dumb_terminal:
        return Screen(session)
    return Lines(session)


@dataclass(frozen=True)
class Ends:
    """When to end of itself."""

    lines: int | None
    seconds: float | None

    @property
    def given(self) -> bool:
        return self.lines is not None or self.seconds is not None

    def after_s(self, every_s: float) -> float | None:
        """How long a watch can last at most."""
        lasts = [] if self.seconds is None else [self.seconds]
        lasts += [] if self.lines is None else [self.lines * every_s]
        return min(lasts, default=None)

    def reached(self, lines: int, seconds: float) -> bool:
        return (self.lines is not None and lines >= self.lines) or (
            self.seconds is not None and seconds >= self.seconds
        )


def _start(
    request: Request,
    from_start: bool,
    seen: Watch,
    stopped: threading.Event,
    ends: Ends,
    every_s: float,
) -> tuple[Reading, float]:
    """Opens the logs; unless all of them counts, lets the pass learn from their last lines.

    Also says from when on (``time.monotonic()``) lines count.
    """
    from nearcache.nginx.logs.files import STDIN

    site = site_for(request)
    logs = logs_for(request, site)
    logs.pause = pause = Pause(stopped, ends.after_s(every_s))
    if STDIN in logs.names and len(logs.names) > 1:
        raise NginxError("standard input can be watched alone only, without files")
    if STDIN in logs.names or from_start:
        beginning = _first_lines(logs)
        pause.lines_came()
        return reading_of(request, site, logs, beginning), time.monotonic()
    began = time.monotonic()
    past = logs.skip_to_end(PAST_BYTES)
    beginning = b"".join(lines_at_the_end(each) for each in past)
    if not beginning and request.log_format is None:
        click.echo(f"nearcache: {', '.join(logs.names)}: no lines yet; waiting", err=True)
        beginning = _first_lines(logs)
    pause.lines_came()
    reading = reading_of(request, site, logs, beginning)
    for lines in past:
        reading.log.feed(lines)
    seen.learn(reading.log.take_recent())
    return reading, began


class Pause:
    """Waits for more of a log; for the first lines of all not longer than a user waits."""

    def __init__(self, stopped: threading.Event, seconds: float | None) -> None:
        self._stopped = stopped
        self._until = None if seconds is None else time.monotonic() + seconds

    def __call__(self, seconds: float) -> None:
        if self._until is not None and time.monotonic() > self._until:
            raise NginxError(
                "no lines came in this time, and none were there: the format of the log is not "
                "known yet; give --format, or wait for longer"
            )
        self._stopped.wait(min(seconds, LOOKS_S))

    def lines_came(self) -> None:
        self._until = None


def lines_at_the_end(lines: bytes) -> bytes:
    """Enough to know the format by: that of today, should it have changed."""
    first = lines.find(b"\n", max(0, len(lines) - FORMAT_BYTES)) + 1
    return lines[first:] or lines


def _first_lines(logs: Logs) -> bytes:
    with _status("waiting for lines"):
        return beginning_of(logs)


class Session:
    """One watch, from the first interval to the summary."""

    def __init__(
        self,
        reading: Reading,
        seen: Watch,
        tail: Tail,
        every_s: float,
        by: str,
        top: int,
        began: float,
    ) -> None:
        self.reading = reading
        self.seen = seen
        self.tail = tail
        self.every_s = every_s
        self.by = by
        self.top = top
        self._looked_at = began

    @property
    def is_piped(self) -> bool:
        from nearcache.nginx.logs.files import STDIN

        return STDIN in self.reading.logs.names

    @property
    def title(self) -> str:
        names = ["standard input" if self.is_piped else each for each in self.reading.logs.names]
        return names[0] if len(names) == 1 else f"{names[0]} and {plural(len(names) - 1, 'more')}"

    def catch_up(self) -> None:
        """Reads what is there; only then time counts."""
        try:
            with _status("reading what is there"):
                while not self.tail.caught_up.wait(LOOKS_S):
                    pass
        finally:
            self.seen.take_backlog(self.reading.log.take_recent())
            self._looked_at = time.monotonic()

    def run(self, view: View, keys: Keyboard, suspension: Suspension, ends: Ends) -> None:
        start, shown, over = self._looked_at, 0, False
        while not over:
            due = self._looked_at + self.every_s
            if ends.seconds is not None:
                due = min(due, start + ends.seconds)
            if not self._waited(view, keys, suspension, due):
                break
            over = self.tail.ended.is_set()  # before the look, or its last lines were missed
            bad = self.seen.bad
            view.show(self._look(), self.seen.bad - bad)
            shown += 1
            over = over or ends.reached(shown, self._looked_at - start)

    def notes(self) -> Iterator[str]:
        """What a reader must know, the weightiest first."""
        from nearcache.nginx.logs.files import LOST

        seen, logs = self.seen, self.reading.logs
        if seen.bad:
            yield f"{plural(seen.bad, 'line')} not counted: the format does not fit"
        if logs.rotations:
            yield f"log rotated {plural(logs.rotations, 'time')}"
        if logs.truncations:
            lost = f"; {LOST}" if logs.without_copy else ""
            yield f"log truncated {plural(logs.truncations, 'time')}{lost}"
        yield from logs.troubles
        if not seen.knows.status and seen.lines:
            yield "this log does not tell hits from misses; add $upstream_cache_status"
        elif not seen.knows.upstream_time and seen.lines:
            yield "this log does not tell what fetches take; add $upstream_response_time"
        elif seen.knows.status and not seen.knows.prices:
            yield "nothing was fetched yet, so nobody knows what a hit saves"
        if seen.key_rate < 1:
            yield f"reasons are estimated from {seen.key_rate:.0%} of all URLs"
        yield from self.reading.site.notes
        yield from logs.notes

    def close(self, view: View) -> None:
        """The summary, and what went wrong."""
        if self.tail.error:
            raise self.tail.error
        self._look()  # what came since the last
        if not isinstance(view, Objects):
            notes = [each for each in self.notes() if each not in self.reading.logs.troubles]
            said = Page("watch", [*summary(self.seen, self.title, notes)])
            for line in lines_of(said, MOST_WIDTH):
                click.echo(line, err=not view.live)
        for trouble in self.reading.logs.troubles:
            click.echo(f"nearcache: {trouble}", err=True)
        if self.reading.logs.troubles:
            raise SystemExit(INCOMPLETE)

    def _waited(self, view: View, keys: Keyboard, suspension: Suspension, due: float) -> bool:
        """Waits for the time, or the end of the stream; False if somebody wants to quit."""
        while time.monotonic() < due and not self.tail.ended.is_set():
            suspension.stop_if_asked()
            for key in keys.keys(min(due, time.monotonic() + LOOKS_S)):
                if key in QUIT:
                    return False
                chosen = {name[0]: name for name in BY}.get(key)
                if chosen:
                    self.by = chosen
                    view.show(Interval(), 0)
        return True

    def _look(self) -> Interval:
        before, self._looked_at = self._looked_at, time.monotonic()
        return self.seen.take(self.reading.log.take_recent(), self._looked_at - before)


@contextmanager
def _status(text: str) -> Iterator[None]:
    """Says what is waited for, on a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    # No spinner: it hides the cursor, and Ctrl-Z would leave it hidden.
    console.print(text, end="\r")
    try:
        yield
    finally:
        console.print(" " * len(text), end="\r")


@contextmanager
def _ended_politely(tail: Tail) -> Iterator[None]:
    """Ctrl-C and SIGTERM end what is watched, and not the summary of it."""

    def terminate(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, terminate)
    tail.start()
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        tail.stop()
        signal.signal(signal.SIGTERM, before)
