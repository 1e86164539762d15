"""Progress bars on a terminal; elsewhere nothing is drawn. rich is imported only to draw."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

    from nearcache.nginx.logs.files import Logs


def with_progress(logs: Logs) -> Iterator[bytes]:
    """The chunks; with a bar, by bytes as they lie on the disk."""
    if not sys.stderr.isatty():
        yield from logs.chunks()
        return
    from rich import progress as rich

    columns = (
        rich.TextColumn("reading"),
        rich.BarColumn(None),
        rich.DownloadColumn(),
        rich.TransferSpeedColumn(),
        rich.TimeRemainingColumn(),
    )
    with _drawn(*columns) as bar:
        task = bar.add_task("", total=logs.total_bytes)
        for chunk in logs.chunks():
            yield chunk
            bar.update(task, completed=logs.read_bytes)


@contextmanager
def replaying() -> Iterator[Callable[[int, int], None] | None]:
    """Says how far the replays are; each is a pass over the whole log."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich import progress as rich

    columns = (
        rich.TextColumn("replaying"),
        rich.BarColumn(None),
        rich.MofNCompleteColumn(),
        rich.TimeRemainingColumn(),
    )
    with _drawn(*columns) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


@contextmanager
def _drawn(*columns: ProgressColumn) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import Progress

    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield bar
