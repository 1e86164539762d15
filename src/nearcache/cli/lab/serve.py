"""``nearcache lab serve``: the web app of the articles, on this host."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import click

from nearcache.cli.lab.common import names_option
from nearcache.errors import LabError


@click.command()
@click.option("--settings", metavar="MODULE", help="Your settings module, to serve your caches.")
@names_option("--aliases", "Which caches: yours, or candidates of `lab list`.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True)
@click.option("--bind", metavar="ADDRESS", default="127.0.0.1", show_default=True)
@click.option("--public", is_flag=True, help="Allow a --bind that other hosts reach.")
@click.option("--workers", type=click.IntRange(1, 64), default=4, show_default=True)
@click.option("--threads", type=click.IntRange(1, 256), default=2, show_default=True)
@click.option(
    "--write-chance",
    type=click.FloatRange(0, 1),
    default=1.0,
    show_default=True,
    help="How likely a read is followed by a write.",
)
@click.option("--payload", metavar="LETTER", default="F", show_default=True)
@click.option("--redis-server", metavar="PATH", help="The redis-server to start.")
@click.option("--memcached", metavar="PATH", help="The memcached to start.")
def serve(
    settings: str | None,
    aliases: list[str],
    port: int,
    bind: str,
    public: bool,
    workers: int,
    threads: int,
    write_chance: float,
    payload: str,
    redis_server: str | None,
    memcached: str | None,
) -> None:
    """Serve pages that time one read of a cache for every hit: /random, /NAME, /summary.

    The caches are those of your settings, or else the lab's own with private servers, which
    end with it. Whoever reaches the address may use it.
    """
    _require_gunicorn()
    from nearcache.lab.servers import free_port
    from nearcache.web.serving import ServeOptions, is_loopback
    from nearcache.web.serving import serve as serve_site

    if not is_loopback(bind) and not public:
        raise LabError(f"other hosts reach {bind}, and nobody is asked who he is; add --public")
    binaries = {"redis": redis_server, "memcached": memcached}
    _check(settings, aliases, payload)
    wanted = ServeOptions(
        bind=bind,
        port=port or free_port(),
        workers=workers,
        threads=threads,
        settings=settings,
        aliases=aliases,
        write_chance=write_chance,
        payload=payload,
        binaries={name: path for name, path in binaries.items() if path},
    )
    stopped = serve_site(wanted, click.echo)
    if stopped:
        sys.exit(stopped.exit_code)


def _check(settings: str | None, aliases: list[str], payload: str) -> None:
    """What would otherwise fail in a worker, far from whoever asked."""
    from nearcache.cli.lab.common import own_aliases
    from nearcache.lab.arms.candidates import unknown_name
    from nearcache.lab.workloads import PAYLOADS

    if payload not in PAYLOADS:
        raise LabError(unknown_name("payload", payload, PAYLOADS))
    if settings:
        own_aliases(settings, aliases)


def _require_gunicorn() -> None:
    if find_spec("gunicorn") is None:
        raise LabError("gunicorn is not installed; pip install 'nearcache[lab]'")
