"""``nearcache lab report``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from nearcache.cli.lab.common import require_lab_extra, show


@click.command()
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path)
)
@click.option("--operation", help="Which operation to show in detail.")
@click.option("--payload", help="Which payload to show in detail.")
@click.option(
    "--html", type=click.Path(dir_okay=False, path_type=Path), help="Write the page here."
)
def report(
    files: Sequence[Path], operation: str | None, payload: str | None, html: Path | None
) -> None:
    """Show what an earlier run measured. Several runs of one machine are put together."""
    require_lab_extra()
    from nearcache.lab.sample import merge, read_sample

    show(merge([read_sample(path) for path in files]), html, operation, payload)
