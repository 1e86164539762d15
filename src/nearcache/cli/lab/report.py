"""``nearcache lab report``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nearcache.cli.lab import links
from nearcache.cli.lab.common import require_lab_extra, show
from nearcache.errors import LabError

if TYPE_CHECKING:
    from nearcache.lab.judging.analysis import Analysis

FILE = click.Path(dir_okay=False, allow_dash=True, path_type=Path)
STDOUT = Path("-")


@click.command()
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path)
)
@click.option("--operation", help="Which operation to show in detail.")
@click.option("--payload", help="Which payload to show in detail.")
@click.option("--html", type=FILE, help="Write one page with charts here; - is stdout.")
@click.option("--markdown", type=FILE, help="Write Markdown here; - is stdout.")
@click.option("--csv", type=FILE, help="Write all numbers here, unrounded; - is stdout.")
@click.option(
    "--json", type=FILE, help="Write the runs as one sample here; in the small form if X.json.gz."
)
@click.option(
    "--rtt", "rtt_ns", callback=links.duration_ns, help="Where you are on maps: like 0.5ms."
)
@click.option(
    "--bandwidth", "bytes_per_s", callback=links.bytes_per_s, help="The same, like 1Gbit."
)
def report(
    files: Sequence[Path],
    operation: str | None,
    payload: str | None,
    html: Path | None,
    markdown: Path | None,
    csv: Path | None,
    json: Path | None,
    rtt_ns: float | None,
    bytes_per_s: float | None,
) -> None:
    """Show what earlier runs measured: files, or directories of them.

    Runs of one experiment on one machine are put together. With an output to stdout nothing
    else is printed there. Exits 2 if a file is no sample, damaged or of another version.
    """
    require_lab_extra()
    from nearcache.lab.judging.analysis import Analysis
    from nearcache.lab.results.files import read_runs

    runs = read_runs(files)
    wanted = {"html": html, "markdown": markdown, "csv": csv, "json": json}
    outputs = {kind: path for kind, path in wanted.items() if path is not None}
    if outputs and len(runs) > 1:
        found = ", ".join(runs)
        raise LabError(f"these are several experiments ({found}); give the files of one")
    if [*outputs.values()].count(STDOUT) > 1:
        raise LabError("only one output can go to stdout")
    for sample in runs.values():
        if rtt_ns or bytes_per_s:
            sample.about["link"] = {"rtt_ns": rtt_ns, "bytes_per_s": bytes_per_s}
        if STDOUT not in outputs.values():
            show(sample, None, operation, payload)
        analysis = Analysis(sample)
        for kind, path in outputs.items():
            write_output(_rendered(kind, path, analysis), path)


def _rendered(kind: str, path: Path, analysis: Analysis) -> str | bytes:
    from nearcache.lab.reports import html, markdown, table_csv
    from nearcache.lab.results.files import packed

    if kind == "json":
        return packed(analysis.sample) if path.suffix == ".gz" else analysis.sample.to_text()
    renderers: dict[str, Callable[[Analysis], str]] = {
        "html": html.render,
        "markdown": markdown.render,
        "csv": table_csv.render,
    }
    return renderers[kind](analysis)


def write_output(content: str | bytes, path: Path) -> None:
    if path == STDOUT:
        click.echo(content, nl=False)
        return
    raw = content.encode() if isinstance(content, str) else content
    try:
        path.write_bytes(raw)
    except OSError as error:
        raise LabError(f"{path} cannot be written: {error.strerror}") from error
