"""``nearcache lab``: measure caches, and read what was measured. One file for each verb."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from nearcache.errors import LabError

VERBS = {
    "list": "Show the experiments and what they compare.",
    "run": "Run experiments, print the report, write one JSON file and one HTML page.",
    "record": "Look at recordings of a site's cache; measure what recording costs.",
    "report": "Show what earlier runs measured; write it as HTML, Markdown, CSV or JSON.",
    "compare": "Compare two runs: what became slower or faster, and what else changed.",
    "recommend": "Say which cache to run, from what was measured, and print its CACHES block.",
    "serve": "Serve pages that time one read of a cache for every hit.",
}


class Verbs(click.Group):
    """Finds a verb when it is needed, and says what is wrong with a command in one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        # list_: the only verb that is a word of Python's own.
        name = "list_" if cmd_name == "list" else cmd_name
        command = getattr(import_module(f"nearcache.cli.lab.{name}"), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            if type(error).__name__ == "NoArgsIsHelpError":  # since click 8.2
                raise
            where = error.ctx.command_path if error.ctx else ctx.command_path
            text = error.format_message().rstrip(".")
            raise LabError(f"{text}; see `{where} --help`") from error


@click.group(cls=Verbs)
def lab() -> None:
    """Find out which cache is fastest: measure, compare, read the report."""
