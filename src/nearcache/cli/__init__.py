"""The command line: ``nearcache <noun> <verb>``.

Every noun is a module of this package, imported when it is asked for: ``nearcache shm``
needs nothing of what the lab needs. Whatever goes wrong on purpose is one line on stderr
and exit code 2; exit code 1 is an answer ("the check found faults").
"""

from __future__ import annotations

import errno
import signal
from importlib import import_module
from typing import Any

import click
from django.core.exceptions import ImproperlyConfigured

from nearcache import __version__
from nearcache.errors import NearcacheError

NOUNS = {
    "codec": ("nearcache.cli.codec", "codec"),
    "lab": ("nearcache.cli.lab", "lab"),
    "nginx": ("nearcache.cli.nginx", "nginx"),
    "shm": ("nearcache.cli.shm", "shm"),
}


INTERRUPTED = 128 + signal.SIGINT  # what a shell says of who was ended by Ctrl-C


class Fault(click.ClickException):
    """One line on stderr, exit code 2."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        click.echo(f"nearcache: {self.format_message()}", file=file, err=True)


class Nouns(click.Group):
    """Finds a noun's commands when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(NOUNS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in NOUNS:
            return None
        module, attribute = NOUNS[cmd_name]
        try:
            command = getattr(import_module(module), attribute)
        except ModuleNotFoundError as error:
            raise Fault(_what_to_install(cmd_name, error)) from error
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # Not click's own: it would import every noun, and fail where an extra is missing.
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    ("codec", "Choose how values become bytes."),
                    ("lab", "Measure caches."),
                    ("nginx", "Look at an nginx cache."),
                    ("shm", "Look into a shared cache."),
                ]
            )

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (NearcacheError, ImproperlyConfigured) as error:
            raise Fault(str(error)) from error
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise Fault("there is no room to write the rest: the disk is full") from error
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            raise SystemExit(INTERRUPTED) from None


def _what_to_install(noun: str, error: ModuleNotFoundError) -> str:
    if (error.name or "").startswith("nearcache"):
        return f"this build of nearcache has no {noun!r} ({error})"
    return f'`nearcache {noun}` needs more: pip install "nearcache[{noun}]" ({error})'


@click.group(cls=Nouns)
@click.version_option(__version__, prog_name="nearcache")
def main() -> None:
    """Find out which cache is fastest for your Django app, and run it."""
