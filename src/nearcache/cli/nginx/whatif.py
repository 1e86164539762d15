"""``nearcache nginx whatif``: what other rules would bring, by replaying a log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nearcache.cli.nginx.bars import replaying, with_progress
from nearcache.cli.nginx.common import (
    Request,
    files_of,
    moment,
    print_json,
    print_page,
)
from nearcache.errors import NginxError
from nearcache.report.model import Chart

if TYPE_CHECKING:
    from nearcache._core import NginxTrace, NginxTraceFacts
    from nearcache.nginx.config.read.site import Site
    from nearcache.nginx.logs.files import Logs
    from nearcache.nginx.whatif.forecast import WhatIf
    from nearcache.nginx.whatif.keyshapes import KeyShapes
    from nearcache.nginx.whatif.rules import Axes, Today

COUNTED = ("lines", "bad", "uncached", "unusable", "left_out")
NOT_FORECAST = 1  # the exit code when the model is not to be believed, or less was read


def _each(parse: str) -> Callable[[click.Context, click.Parameter, str], list[Any]]:
    """Values with commas between, by a function of ``whatif/rules.py``."""

    def split(_ctx: click.Context, _param: click.Parameter, value: str) -> list[Any]:
        from nearcache.nginx.whatif import rules

        return [getattr(rules, parse)(part) for part in value.split(",") if part.strip()]

    return split


def _one(parse: str) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    def take(_ctx: click.Context, _param: click.Parameter, value: str | None) -> Any:
        from nearcache.nginx.whatif import rules

        return None if value is None else getattr(rules, parse)(value)

    return take


def _counts(_ctx: click.Context, _param: click.Parameter, value: str) -> list[int]:
    parts = [part.strip() for part in value.split(",") if part.strip()]
    if not all(part.isdecimal() and int(part) < 65536 for part in parts):
        raise click.BadParameter(f"{value!r} are no numbers; write 9 or 7,9,12")
    return [int(part) for part in parts]


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE]...", type=click.Path(readable=False))
@click.option(
    "--format",
    "log_format",
    metavar="FORMAT",
    help="combined, json, a log_format's name or text. [found by trying]",
)
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(allow_dash=True),
    help="nginx.conf, or the output of `nginx -T`: today's rules.",
)
@click.option(
    "--cache",
    "directory",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="The cache directory: what keys are made of, where neither --config nor the log says it.",
)
@click.option("--host", help="Only requests for this host, and the rules of its server.")
@click.option(
    "--since",
    metavar="TIME",
    callback=moment,
    help="Only requests from then on: 2026-11-21, 2026-11-21T08:30, or 6h ago.",
)
@click.option("--until", metavar="TIME", callback=moment, help="Only requests before.")
@click.option(
    "--key-variable", metavar="VARIABLE", help="The variable of the log that holds the cache key."
)
@click.option(
    "--ttl-now",
    metavar="TIME",
    callback=_one("time_of"),
    help="Today's *_cache_valid, where responses do not say.",
)
@click.option("--inactive-now", metavar="TIME", callback=_one("time_of"), help="[10m, as in nginx]")
@click.option("--max-size-now", metavar="SIZE", callback=_one("size_of"), help="[no limit]")
@click.option("--min-uses-now", metavar="N", type=click.IntRange(1))
@click.option("--lock-now", is_flag=True, default=None, help="cache_lock is on today.")
@click.option(
    "--background-now",
    is_flag=True,
    default=None,
    help="use_stale updating and background_update are on today.",
)
@click.option(
    "--ttl",
    metavar="TIME,...",
    default="",
    callback=_each("time_of"),
    help="Every good response that is stored lives so long: 1h,24h.",
)
@click.option("--inactive", metavar="TIME,...", default="", callback=_each("time_of"))
@click.option("--max-size", metavar="SIZE,...", default="", callback=_each("size_of"))
@click.option("--min-uses", metavar="N,...", default="", callback=_counts)
@click.option(
    "--key",
    "keys",
    metavar="RULES",
    multiple=True,
    help="lower, strip, sort-args, lower-path, drop=utm_*|gclid, keep=q|page, alias=HOST:HOST; "
    "with commas between. May be given several times.",
)
@click.option(
    "--max-length",
    metavar="N,...",
    default="",
    callback=_counts,
    help="Only values of --arg of at most so many characters are cached.",
)
@click.option("--arg", "argument", metavar="NAME", help="The argument for --max-length. [q]")
@click.option(
    "--path-part", type=click.IntRange(1), metavar="N", help="Or the Nth part of the path."
)
@click.option(
    "--background-update",
    "background",
    is_flag=True,
    help="With use_stale updating and background_update.",
)
@click.option("--lock", is_flag=True, help="With cache_lock.")
@click.option(
    "--curves",
    is_flag=True,
    help="Also the hit ratio over time to live, size and length, point by point.",
)
@click.option("--anyway", is_flag=True, help="Forecast even if the model was not or badly tested.")
@click.option(
    "--max-requests",
    type=click.IntRange(1000),
    default=8_000_000,
    show_default=True,
    help="Of more, a sample of the URLs is followed; 32 bytes each.",
)
@click.option("--html", metavar="FILE", help="Also write it as one HTML file, with curves.",
              type=click.Path(dir_okay=False, path_type=Path))  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")  # fmt: skip
def whatif(**given: Any) -> None:
    """Say what other rules would bring: hits, time saved, disk, and how old answers get.

    FILE: access logs, as for `report`. Today's rules come from --config, or from what responses
    say and the --...-now options. First today's rules are replayed and compared with what nginx
    logged; where that does not fit, nothing is forecast.

    Exits 0, 1 if nothing is forecast because the model does not fit the log (or a file was not read
    to its end), 2 if nothing can be said.
    """
    from nearcache.nginx.whatif.forecast import Question
    from nearcache.nginx.whatif.forecast import whatif as replay_all
    from nearcache.nginx.whatif.rules import Subject

    if given["argument"] and given["path_part"]:
        raise click.UsageError("give --arg or --path-part, not both")
    today, axes = _today(given), _axes(given)
    trace, logs, name, today = _read(given, today)
    argument = None if given["path_part"] else given["argument"] or "q"
    subject = Subject(argument=argument, path_part=given["path_part"])
    question = Question(
        today=today,
        changes=axes.changes(),
        subject=subject,
        anyway=given["anyway"],
        curves=given["curves"] or given["html"] is not None,
    )
    _check(trace, name)
    with replaying() as progress:
        found = replay_all(trace, question, progress)
    _show(found, trace, logs, name, given)
    for trouble in logs.troubles:
        click.echo(f"nearcache: {trouble}", err=True)
    if found.refusal or logs.troubles:
        raise SystemExit(NOT_FORECAST)


def _axes(given: dict[str, Any]) -> Axes:
    from nearcache.nginx.whatif.rules import Axes

    axes = Axes(
        ttls_s=given["ttl"],
        inactives_s=given["inactive"],
        max_sizes=given["max_size"],
        min_uses=given["min_uses"],
        keys=given["keys"],
        max_lengths=given["max_length"],
        background=given["background"],
        lock=given["lock"],
    )
    if not axes.changes() and not given["curves"] and not given["html"]:
        raise click.UsageError(
            "what if what? Give --ttl, --inactive, --max-size, --key, --max-length, --min-uses, "
            "--background-update, --lock or --curves"
        )
    return axes


def _today(given: dict[str, Any]) -> Today:
    from nearcache.nginx.whatif.rules import Today, today_of, with_options

    today = Today()
    if given["config"]:
        from nearcache.nginx.config.read.configuration import read_configuration

        given["configuration"] = read_configuration(given["config"])
        today = today_of(given["configuration"], given["host"])
    return with_options(
        today,
        ttl_s=given["ttl_now"],
        inactive_s=given["inactive_now"],
        max_size=given["max_size_now"],
        min_uses=given["min_uses_now"],
        lock=given["lock_now"],
        background=given["background_now"],
    )


def _read(given: dict[str, Any], today: Today) -> tuple[NginxTrace, Logs, str, Today]:
    from nearcache.nginx.config.read.site import Site, site_of
    from nearcache.nginx.logs.alike import open_logs
    from nearcache.nginx.logs.formats import check_key, choose
    from nearcache.nginx.whatif.keyshapes import of_log
    from nearcache.nginx.whatif.traces import open_trace

    found = given.get("configuration")
    site = site_of(found, given["host"]) if found else Site()
    files = files_of(Request(files=given["files"]), site)
    logs = open_logs(files, given["log_format"], site.formats, named=given["files"])
    beginning = logs.peek()
    if not beginning:
        raise NginxError("; ".join(logs.troubles) or f"{', '.join(logs.names)}: no lines")
    log_format = choose(given["log_format"], site.formats, beginning)
    variable = given["key_variable"]
    if variable:
        check_key(variable.removeprefix("$"), log_format)

    def fed(logs: Logs, today: Today, site: Site) -> NginxTrace:
        trace = open_trace(
            log_format.text,
            today,
            site,
            key=variable.removeprefix("$") if variable else None,
            sample_by=";".join(given["keys"]),
            max_requests=given["max_requests"],
        )
        trace.only(since_us=given["since"], until_us=given["until"], host=given["host"])
        for chunk in with_progress(logs):
            trace.feed(chunk)
        trace.finish()
        return trace

    shapes = _shapes_in(given["directory"]) if given["directory"] and not found else None
    if shapes:
        today, site = shapes.of(today, site)
    trace = fed(logs, today, site)
    # Once more, now that it is known what its keys are made of; standard input is gone by then.
    if learned := of_log(trace.facts()["hosts"]):
        again = open_logs(files, given["log_format"], site.formats, named=given["files"])
        if again.names == logs.names and again.peek():
            shapes, logs = learned, again
            today, site = shapes.of(today, site)
            trace = fed(logs, today, site)
    if shapes:
        today = replace(today, assumed=(*today.assumed, shapes.said))
    return trace, logs, f"{log_format.name}, {log_format.chosen}", today


def _shapes_in(path: Path) -> KeyShapes | None:
    from nearcache.nginx.cachedir.directory import CacheDir
    from nearcache.nginx.whatif.keyshapes import of_directory

    with CacheDir(path) as directory:
        return of_directory(directory)


def _check(trace: NginxTrace, name: str) -> None:
    facts = trace.facts()
    if facts["lines"] and facts["bad"] == facts["lines"]:
        number, text = facts["bad_examples"][0]
        raise NginxError(f"no line fits the log format {name}; line {number}: {text[:160]!r}")
    if not facts["says"]["time"]:
        raise NginxError("the log has no times, so nothing can be replayed; add $msec to it")
    if facts["left_out"] and facts["left_out"] == facts["lines"] - facts["bad"]:
        raise NginxError("no line is of this time and host (--since, --until, --host)")
    if not facts["requests"]:
        raise NginxError(
            f"none of {facts['lines']:,} requests went through a cache (their cache status is -)"
        )


def _show(found: WhatIf, trace: NginxTrace, logs: Logs, name: str, given: dict[str, Any]) -> None:
    from nearcache.nginx.pages.html import write_page
    from nearcache.nginx.whatif.page import page

    facts = trace.facts()
    shown = page(found)
    shown = replace(shown, notes=[*shown.notes, *_of_log(facts, logs, name)])
    if given["html"]:
        write_page(shown, given["html"])
    if given["as_json"]:
        about = {
            "verb": "whatif",
            "schema": 1,
            "log": {
                "format": name,
                "files": logs.opened,
                "troubles": logs.troubles,
                "notes": logs.notes,
                **{key: value for key, value in facts.items() if key in COUNTED},
            },
        }
        print_json(about | found.as_json())
        return
    if not given["curves"]:  # they were for the HTML
        shown = replace(shown, parts=[each for each in shown.parts if not isinstance(each, Chart)])
    print_page(shown)


def _of_log(facts: NginxTraceFacts, logs: Logs, name: str) -> Iterator[str]:
    yield f"log format: {name}"
    yield from logs.notes
    for many, what in (
        (facts["bad"], "did not fit the format"),
        (facts["uncached"], "went through no cache"),
        (facts["unusable"], "have no time or no URL"),
    ):
        if many:
            yield f"{many:,} of {facts['lines']:,} lines {what}, and are left out"
