"""``nearcache lab compare``."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console

from nearcache.cli.lab.common import require_lab_extra
from nearcache.errors import LabError

RUN = click.Path(path_type=Path)
FILE = click.Path(dir_okay=False, allow_dash=True, path_type=Path)


@click.command()
@click.argument("before", type=RUN)
@click.argument("after", type=RUN)
@click.option("--unlike-machines", is_flag=True, help="Compare runs of unlike hardware too.")
@click.option("--all", "everything", is_flag=True, help="Show what did not change as well.")
@click.option("--html", type=FILE, help="Write a page here; - is stdout.")
@click.option("--markdown", type=FILE, help="Write Markdown here; - is stdout.")
def compare(
    before: Path,
    after: Path,
    unlike_machines: bool,
    everything: bool,
    html: Path | None,
    markdown: Path | None,
) -> None:
    """Compare two runs: what became slower or faster, and what else changed?

    BEFORE and AFTER are files or directories; runs of one experiment in a directory count as
    one, with the differences between runs in its intervals. Of several experiments, those
    that both sides have are compared.

    Exits 0 if nothing became slower, 1 if something did, beyond the noise of both runs, and
    2 if the runs cannot be compared.
    """
    require_lab_extra()
    from nearcache.lab.judging.compare import compare as compare_samples
    from nearcache.lab.results.files import read_runs

    sides = read_runs([before]), read_runs([after])
    common = [name for name in sides[0] if name in sides[1]]
    if not common:
        names = [", ".join(side) for side in sides]
        raise LabError(f"these are different experiments: {names[0]}, {names[1]}")
    outputs = {kind: path for kind, path in (("html", html), ("markdown", markdown)) if path}
    if outputs and len(common) > 1:
        raise LabError(f"both sides have {', '.join(common)}; give the files of one for a page")
    slower = 0
    for name in common:
        found = compare_samples(sides[0][name], sides[1][name], unlike_machines=unlike_machines)
        _show(found, outputs, everything)
        slower += len(found.having("slower"))
    sys.exit(1 if slower else 0)


def _show(found: object, outputs: dict[str, Path], everything: bool) -> None:
    from nearcache.cli.lab.report import STDOUT, write_output
    from nearcache.lab.judging.compare import Comparison
    from nearcache.lab.reports import compared

    assert isinstance(found, Comparison)
    if STDOUT not in outputs.values():
        compared.print_comparison(found, Console(highlight=False), everything=everything)
    renderers = {"html": compared.render_html, "markdown": compared.render_markdown}
    for kind, path in outputs.items():
        write_output(renderers[kind](found), path)
