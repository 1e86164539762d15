"""The verbs of a noun: one file each, imported when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

from nearcache.errors import NearcacheError


class Verbs(click.Group):
    """Finds a verb when it is needed, and says what is wrong with a command in one line.

    ``verbs`` maps each name to its help; verb ``purge`` of package ``p`` is the command
    ``purge`` of the module ``p.purge``, and ``list`` is ``list_`` of ``p.list_``.
    """

    def __init__(
        self,
        *arguments: Any,
        package: str,
        verbs: Mapping[str, str],
        error: type[NearcacheError],
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self.package = package
        self.verbs = verbs
        self.error = error

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.verbs:
            return None
        name = "list_" if cmd_name == "list" else cmd_name  # a word of Python's own
        command = getattr(import_module(f"{self.package}.{name}"), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # Not click's own: it would import every verb.
        with formatter.section("Commands"):
            formatter.write_dl(list(self.verbs.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = get_close_matches(args[0], self.verbs, n=1)
            if not near:
                raise
            text = f"{error.message.rstrip('.')} (did you mean {near[0]!r}?)"
            raise click.UsageError(text, ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            if type(error).__name__ == "NoArgsIsHelpError":  # since click 8.2
                raise
            where = error.ctx.command_path if error.ctx else ctx.command_path
            text = error.format_message().rstrip(".")
            raise self.error(f"{text}; see `{where} --help`") from error
