"""How ``watch`` shows an interval: a screen for people, columns for scripts, JSON for machines."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, Self

import click
from rich.console import Console
from rich.live import Live

from nearcache.cli.nginx.common import print_json
from nearcache.nginx.watch.screen import HEAD, Around, plain, screen
from nearcache.nginx.watch.watch import Interval

if TYPE_CHECKING:
    from nearcache.cli.nginx.watch import Session


class View(Protocol):
    """One way to show it. Entered before the first interval."""

    live: bool
    """Has it a screen of its own, on which keys are pressed?"""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def show(self, interval: Interval, bad: int) -> None:
        """The session as it is, after an interval with so many bad lines."""


class Screen:
    """The alternate screen of a terminal, which is given back as it was."""

    live = True

    def __init__(self, session: Session) -> None:
        self._session = session
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, screen=True, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.__enter__()
        self.show(Interval(), 0)
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__(None, None, None)

    def show(self, interval: Interval, bad: int) -> None:
        session = self._session
        around = Around(
            title=session.title,
            clock=_clock(),
            by=session.by,
            notes=[*session.notes()],
            keys=sys.stdin is not None and sys.stdin.isatty(),
        )
        width, height = self._console.size
        self._live.update(screen(session.seen, around, width, height), refresh=True)


class Lines:
    live = False

    def __init__(self, session: Session) -> None:
        self._session = session

    def __enter__(self) -> Self:
        click.echo(HEAD)
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to give back."""

    def show(self, interval: Interval, bad: int) -> None:
        click.echo(plain(interval, self._session.seen, _clock(), bad))


class Objects:
    """One JSON object a line."""

    live = False

    def __init__(self, session: Session) -> None:
        self._session = session

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to give back."""

    def show(self, interval: Interval, bad: int) -> None:
        session = self._session
        about = {"verb": "watch", "schema": 1, "time": datetime.now(UTC).isoformat()}
        figures = session.seen.as_json(interval, session.by, session.top)
        print_json(about | figures | {"log": _log(session)}, one_line=True)


def _log(session: Session) -> dict[str, Any]:
    logs = session.reading.logs
    return {
        "files": logs.names,
        "format": session.reading.format.name,
        "lines": session.seen.lines,
        "bad": session.seen.bad,
        "rotations": logs.rotations,
        "truncations": logs.truncations,
        "troubles": logs.troubles,
        "notes": [*session.reading.site.notes, *logs.notes],
        "learned_from_lines": session.seen.learned,
    }


def _clock() -> str:
    """Of this machine."""
    return f"{datetime.now().astimezone():%H:%M:%S}"
