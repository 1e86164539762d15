"""``nearcache nginx config``: a safe cache configuration for a Django application, proven."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nearcache.cli.nginx.common import print_json
from nearcache.errors import NginxError
from nearcache.report.plain import hanging

if TYPE_CHECKING:
    from nearcache.nginx.config.prove.proof import Check
    from nearcache.nginx.config.write.answers import Answers
    from nearcache.nginx.config.write.files import Generated

WIDTH = 80
NJS_MODULE = "ngx_http_js_module.so"
QUESTIONS = (  # option, question, default
    ("server_name", "Names of the site, with spaces between", "_"),
    ("cache_path", "Directory of the cache", "/var/cache/nginx-app"),
    ("max_size", "At most so large", "1g"),
    ("ttl", "How long a page is kept that does not say so itself", "10m"),
    ("session_cookie", "Django's SESSION_COOKIE_NAME", "sessionid"),
    ("normalize", "Rules for arguments, or none", "drop=utm_*|fbclid|gclid"),
)


@click.command()
@click.option("--proxy", metavar="URL", help="The application: http://127.0.0.1:8000.")
@click.option("--uwsgi", metavar="ADDRESS", help="Or with uWSGI: unix:/run/app.sock.")
@click.option("--server-name", metavar="NAMES", help="With spaces between. [_]")
@click.option(
    "--listen", default="80", show_default=True, help="Address or port; add TLS yourself."
)
@click.option("--cache-path", metavar="DIRECTORY", help="[/var/cache/nginx-app]")
@click.option("--max-size", metavar="SIZE", help="Of all entries together. [1g]")
@click.option("--ttl", metavar="TIME", help="Of responses that do not say themselves. [10m]")
@click.option("--session-cookie", metavar="NAME", help="Whoever has it is not cached. [sessionid]")
@click.option(
    "--static-prefix",
    metavar="PREFIX[=DIRECTORY]",
    default="",
    help="Not cached: /static/=/srv/static/.",
)
@click.option(
    "--normalize",
    metavar="RULES",
    help="For arguments, with commas: lower, strip, sort-args, drop=utm_*|fbclid, keep=q|page.",
)
@click.option(
    "--njs/--no-njs", default=None, help="For lower, strip, sort-args. [if nginx has its module]"
)
@click.option("--purge", type=click.Choice(["soft", "none"]), default="soft", show_default=True)
@click.option("--log-path", metavar="FILE", default="/var/log/nginx/cache.log", show_default=True)
@click.option("--nginx-version", metavar="1.30.4", help="That will read it. [that of this host]")
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), metavar="DIRECTORY",
              help="Write the files there instead of printing the configuration.")  # fmt: skip
@click.option("--force", is_flag=True, help="With --output: overwrite.")
@click.option("--log-format", is_flag=True, help="Print only the log format, to add to your own.")
@click.option("--prove", is_flag=True, help="Try it with a private nginx: a table, exit code 1 if"
              " something fails.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")
def config(
    log_format: bool, prove: bool, as_json: bool, output: Path | None, force: bool, **given: Any
) -> None:
    """Print a safe proxy_cache or uwsgi_cache configuration for a Django application.

    On a terminal it asks what is not given. What is in the key is what is forwarded, so that
    nobody can poison it; sessions, Authorization, Set-Cookie and private stay out.
    """
    from nearcache.nginx.config.write.files import generate  # fmt: skip
    from nearcache.nginx.config.write.files import log_format as text_of_log

    _check_orders(log_format, prove, output, force)
    if log_format:
        if as_json:
            print_json({"verb": "config", "schema": 1, "log_format": text_of_log()})
        else:
            click.echo(text_of_log(), nl=False)
        return
    answers = _answers(given)
    made = generate(answers)
    if prove:
        _prove(answers, as_json)
        return
    written = _write(made, output, force) if output else []
    if as_json:
        print_json({"verb": "config", "schema": 1, "configuration": made.text,
                    "files": made.files, "notes": list(made.notes),
                    "written": written})  # fmt: skip
        return
    click.echo("\n".join(written) + "\n" if output else made.text, nl=False)
    for note in made.notes:
        click.echo(_fold(note, "! "), err=True)
    if made.files and not output:
        names = ", ".join(made.files)
        click.echo(_fold(f"--output DIRECTORY writes {names} too", "! "), err=True)


def _check_orders(log_format: bool, prove: bool, output: Path | None, force: bool) -> None:
    orders = {"--log-format": log_format, "--prove": prove, "--output": output is not None}
    given = [name for name, is_given in orders.items() if is_given]
    if len(given) > 1:
        raise NginxError(f"{' and '.join(given)} are two things to do; give one of them")
    if force and not output:
        raise NginxError("--force is for --output: nothing else writes")


def _answers(given: dict[str, Any]) -> Answers:
    from nearcache.nginx.config.read.configuration import installed_version, parse_version
    from nearcache.nginx.config.write.answers import Answers
    from nearcache.nginx.keys.spelling import parse_spelling

    if given["proxy"] is None and given["uwsgi"] is None:
        if not sys.stdin.isatty():
            raise NginxError("give --proxy http://127.0.0.1:8000 or --uwsgi unix:/run/app.sock")
        _ask(given)
    version = given.pop("nginx_version")
    known = parse_version(version) if version else installed_version()
    if version and known is None:
        raise NginxError(f"--nginx-version {version} is no version; write it as 1.30.4")
    rules = given.pop("normalize") or ""
    spelling = parse_spelling("" if rules == "none" else rules)
    prefix, _, root = given.pop("static_prefix").partition("=")
    njs = given.pop("njs")
    return Answers(
        spelling=spelling,
        use_njs=spelling.needs_code and (bool(njs_module()) if njs is None else njs),
        version=known,
        static_prefix=prefix,
        static_root=root,
        server_names=(given.pop("server_name") or "_").split(),
        **{name: value for name, value in given.items() if value is not None},
    )


def _ask(given: dict[str, Any]) -> None:
    """The few answers that make a difference, from a person."""
    address = click.prompt(
        "The application (http://127.0.0.1:8000, or of uWSGI unix:/run/app.sock)", err=True
    )
    given["proxy" if address.startswith("http") else "uwsgi"] = address
    for name, question, default in QUESTIONS:
        if given[name] is None:
            given[name] = click.prompt(question, default=default, err=True)


def njs_module(program: str = "nginx") -> Path | None:
    """The module of njs that this host's nginx can load; None if it has none."""
    import re
    import subprocess

    try:
        done = subprocess.run([program, "-V"], check=False, capture_output=True, text=True)
    except OSError:
        return None
    match = re.search(r"--modules-path=(\S+)", done.stderr)
    path = Path(match[1] if match else "/usr/lib/nginx/modules") / NJS_MODULE
    return path if path.exists() else None


def _prove(answers: Answers, as_json: bool) -> None:
    from nearcache.nginx.config.prove.proof import prove

    module = njs_module() if answers.use_njs else None
    if answers.use_njs and module is None:
        raise NginxError(f"--prove: nginx here has no {NJS_MODULE}; install libnginx-mod-http-js")
    table = prove(answers, modules=[str(module)] if module else [])
    if as_json:
        print_json({"verb": "config", "schema": 1, "checks": [row.to_json() for row in table]})
    else:
        _print_table(table)
    if not all(row.passed for row in table):
        raise SystemExit(1)


def _print_table(table: Sequence[Check]) -> None:
    width = max(len(row.name) for row in table)
    for row in table:
        word, colour = ("pass", "green") if row.passed else ("FAIL", "red")
        first, *more = hanging(f"{word}  {row.name:<{width}}  ", row.saw, WIDTH)
        click.echo(click.style(word, fg=colour) + first.removeprefix(word))
        for line in more:
            click.echo(line)
    failed = sum(not row.passed for row in table)
    click.echo(f"\n{len(table) - failed} of {len(table)} pass, with a private nginx and a script.")


def _write(made: Generated, directory: Path, force: bool) -> list[str]:
    """The files that were written."""
    from nearcache.nginx.config.write.files import CONFIGURATION

    files = {CONFIGURATION: made.text, **made.files}
    there = [name for name in files if (directory / name).exists()]
    if there and not force:
        raise NginxError(f"{directory / there[0]} exists; give --force to overwrite it")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (directory / name).write_text(text)
    except OSError as error:
        raise NginxError(f"{directory} cannot be written to: {error.strerror}") from error
    return [str(directory / name) for name in files]


def _fold(text: str, indent: str) -> str:
    return "\n".join(hanging(indent, text, WIDTH))
