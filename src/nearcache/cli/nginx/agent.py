"""``nearcache nginx agent``: purge the caches of this host for sites on others."""

from __future__ import annotations

import json
import logging
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nearcache.cli.nginx.common import caches_option, levels_option, template_option
from nearcache.errors import NginxError

if TYPE_CHECKING:
    from nearcache.nginx.agent.agent import Agent
    from nearcache.nginx.agent.hosts import LocalCache

DEFAULT = "127.0.0.1:8765"


def _address(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[str, int]:
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise click.BadParameter(f"{value!r} is no address; write {DEFAULT} or [::1]:8765")
    return host.strip("[]"), int(port)


@click.command()
@caches_option
@click.option(
    "--secret-file",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The secret that sites know, too; nobody else may read it.",
)
@click.option(
    "--bind",
    default=DEFAULT,
    show_default=True,
    metavar="HOST:PORT",
    callback=_address,
    help="Where to listen; port 0 takes a free one.",
)
@template_option
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(),
    help="nginx.conf or the output of `nginx -T`: keys and levels are read there.",
)
@levels_option
@click.option(
    "--no-vary",
    is_flag=True,
    help="No response in these caches has a Vary: nothing is looked through at the start.",
)
def agent(
    caches: tuple[Path, ...], secret_file: Path, bind: tuple[str, int], template: str | None,
    config: str | None, levels: str | None, no_vary: bool,
) -> None:  # fmt: skip
    """Serve signed requests to purge the caches of this host, until a signal.

    It purges and does nothing else: it lists no keys and takes no patterns. Each purge is a line
    of JSON on stdout. Requests are signed, not encrypted: listen on loopback or in a private
    network. Run it as the user of nginx's workers.

    At the start it looks through the caches for variants (Vary); until it has, purges of what
    varies or is not stored wait. From then on inotify tells it of new ones.
    """
    from nearcache.nginx.agent.agent import Agent
    from nearcache.nginx.agent.signing import read_secret

    hosts = [_host(path, template, config, levels, not no_vary) for path in caches]
    secret = read_secret(secret_file)
    logging.basicConfig(format="%(message)s")
    logging.getLogger("nearcache.nginx").setLevel(logging.INFO)
    try:
        server = Agent(bind, hosts, secret, _report)
    except OSError as error:
        raise NginxError(f"--bind {bind[0]}:{bind[1]}: {error.strerror or error}") from error
    _announce(server, caches)
    _serve(server)


def _host(
    path: Path, template: str | None, config: str | None, levels: str | None, varies: bool
) -> LocalCache:
    from nearcache.nginx.agent.hosts import LocalCache
    from nearcache.nginx.cachedir.directory import CacheDir
    from nearcache.nginx.keys.paths import parse_levels
    from nearcache.nginx.keys.templates import check_template
    from nearcache.nginx.purge.targets import configured, refuse_what_is_no_cache

    with CacheDir(path, follow=False) as directory:
        refuse_what_is_no_cache(directory)  # now, and not at the first purge
    if config:
        from nearcache.nginx.config.read.configuration import read_configuration

        if template or levels:
            raise NginxError("--config says what --template and --levels say; leave these out")
        said = configured(read_configuration(config), path)
        for each in said.not_told:
            click.echo(f"{each}, so shapes of keys are learned from the entries", err=True)
        return LocalCache(path, said.levels, said.templates, varies)
    return LocalCache(
        path,
        None if levels is None else parse_levels(levels),
        (check_template(template),) if template else (),
        varies,
    )


def _announce(server: Agent, caches: tuple[Path, ...]) -> None:
    host, port = server.address
    where = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    named = ", ".join(map(str, caches))
    click.echo(f"purging {named} for who knows the secret, at {where}", err=True)
    if not host.startswith("127.") and host != "::1":
        click.echo("signed, and not encrypted: keep this in a private network", err=True)


def _serve(server: Agent) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    with server:
        server.serve()


def _report(facts: dict[str, Any]) -> None:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    click.echo(json.dumps({"at": now} | facts))
