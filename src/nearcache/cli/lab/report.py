"""``nearcache lab report``."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nearcache.cli.lab import links
from nearcache.cli.lab.common import Command, require_lab_extra, show
from nearcache.errors import LabError

if TYPE_CHECKING:
    from nearcache.lab.judging.analysis import Analysis

FILE = click.Path(dir_okay=False, allow_dash=True, path_type=Path)
STDOUT = Path("-")
# An option each: its help, and the module of ``lab.reports`` with ``render(analysis) -> str``.
FORMS = {
    "html": ("Write one page with charts here; - is stdout.", "html"),
    "markdown": ("Write Markdown here; - is stdout.", "markdown"),
    "csv": ("Write all numbers here, unrounded; - is stdout.", "table_csv"),
}


def _form_options(command: Command) -> Command:
    for form, (says, _) in reversed(FORMS.items()):
        command = click.option(f"--{form}", type=FILE, help=says)(command)
    return command


@click.command()
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path)
)
@click.option("--operation", help="Which operation to show in detail.")
@click.option("--payload", help="Which payload to show in detail.")
@_form_options
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
    json: Path | None,
    rtt_ns: float | None,
    bytes_per_s: float | None,
    **forms: Path | None,
) -> None:
    """Show what earlier runs measured: files, or directories of them.

    Runs of one experiment on one machine are put together. With an output to stdout nothing
    else is printed there. Exits 2 if a file is no sample, damaged or of another version.
    """
    require_lab_extra()
    from nearcache.lab.judging.analysis import Analysis
    from nearcache.lab.results.files import read_runs

    runs = read_runs(files)
    wanted = {**forms, "json": json}
    outputs = {form: path for form, path in wanted.items() if path is not None}
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
        for form, path in outputs.items():
            write_output(_rendered(form, path, analysis), path)


def _rendered(form: str, path: Path, analysis: Analysis) -> str | bytes:
    from nearcache.lab.results.files import packed

    if form == "json":
        return packed(analysis.sample) if path.suffix == ".gz" else analysis.sample.to_text()
    module = import_module(f"nearcache.lab.reports.{FORMS[form][1]}")
    text: str = module.render(analysis)
    return text


def write_output(content: str | bytes, path: Path) -> None:
    if path == STDOUT:
        click.echo(content, nl=False)
        return
    raw = content.encode() if isinstance(content, str) else content
    try:
        path.write_bytes(raw)
    except OSError as error:
        raise LabError(f"{path} cannot be written: {error.strerror}") from error
