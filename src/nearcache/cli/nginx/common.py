"""What the verbs that read logs share: their options, one pass over the logs, showing a page."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from nearcache.cli.nginx.bars import with_progress
from nearcache.errors import NginxError
from nearcache.report.model import Page, Table
from nearcache.report.plain import MOST_WIDTH, lines_of
from nearcache.report.words import percent, plural, printable, ratio, size

if TYPE_CHECKING:
    from nearcache._core import NginxLog, NginxResult, NginxTrace
    from nearcache.nginx.config.read.configuration import Configuration
    from nearcache.nginx.config.read.site import Site
    from nearcache.nginx.logs.files import Logs
    from nearcache.nginx.logs.formats import LogFormat
    from nearcache.nginx.whatif.rules import Today

Command = TypeVar("Command", bound=Callable[..., Any])

INCOMPLETE = 1  # the exit code when less was read than given
INTERRUPTED = 130  # as a shell has it for Ctrl-C
MOST_NAMED = 3
BAD_SHOWN = 120  # characters of a line that does not fit
EVERY_S = 5.0
MOST_REPLAYED = 2_000_000  # requests; beyond them keys are sampled
_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_AGO_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def moment(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    """``2026-11-21``, ``2026-11-21T08:30`` (this machine's time), or ``90m``: so long ago.

    Microseconds since 1970.
    """
    if value is None:
        return None
    ago = _AGO.fullmatch(value.strip())
    try:
        if ago:
            then = datetime.now(UTC) - timedelta(seconds=float(ago[1]) * _AGO_S[ago[2]])
        else:
            then = datetime.fromisoformat(value.strip())
        return round(then.timestamp() * 1_000_000)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{value!r} is no time; write 2026-11-21T08:30, or 90m, 6h, 2d for so long ago"
        ) from None


def _group(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> Any:
    pairs = []
    for value in values:
        pattern, equals, name = value.rpartition("=")
        if not (pattern and equals and name):
            raise click.BadParameter(f"{value!r} is not REGEX=NAME, as ^/song/=songs")
        pairs.append((pattern, name))
    return tuple(pairs)


caches_option = click.option(
    "--cache",
    "caches",
    required=True,
    multiple=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="The directory of *_cache_path. May be given several times.",
)
template_option = click.option(
    "--template",
    metavar="KEY",
    help="How keys are made of URLs, as '{scheme}{host}{uri}'. [learned]",
)
levels_option = click.option("--levels", metavar="1:2", help="As in *_cache_path. [learned]")


def log_options(command: Command) -> Command:
    """Which logs, how to read them, and which of their lines."""
    for decorate in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines."),
        click.option("--html", metavar="FILE", help="Also write it as one HTML file.",
                     type=click.Path(dir_okay=False, path_type=Path)),
        click.option("--every", type=click.FloatRange(0.5), metavar="SECONDS",
                     help="With --follow: show anew after so many seconds. [5]"),
        click.option("--follow", is_flag=True,
                     help="Go on with what nginx writes, through rotations; Ctrl-C ends it."),
        click.option("--until", metavar="TIME", callback=moment, help="Only requests before."),
        click.option("--since", metavar="TIME", callback=moment,
                     help="Only requests from then on: 2026-11-21, 2026-11-21T08:30, or 6h ago."),
        which_logs,
    ):  # fmt: skip
        command = decorate(command)
    return command


def which_logs(command: Command) -> Command:
    """Files, how to read them, and which sites of them: what ``watch`` takes, too."""
    for decorate in (
        click.option("--group", "groups", multiple=True, metavar="REGEX=NAME", callback=_group,
                     help="Requests that match are one URL group. May be given several times."),
        click.option("--location", metavar="LOCATION",
                     help="Only this location, written as in nginx: /api/, '= /', '~ \\.png$'."),
        click.option("--host", help="Only requests for this host."),
        click.option("--key", metavar="VARIABLE",
                     help="The variable of the log that holds the cache key."),
        click.option("--config", metavar="FILE", type=click.Path(allow_dash=True),
                     help="nginx.conf, or the output of `nginx -T`: formats, locations, rules."),
        click.option("--format", "log_format", metavar="FORMAT",
                     help="combined, json, a log_format's name or text. [found by trying]"),
        # What cannot be read is told, and the others are read.
        click.argument("files", nargs=-1, metavar="[FILE]...", type=click.Path(readable=False)),
    ):  # fmt: skip
        command = decorate(command)
    return command


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a user asked for: the options of :func:`log_options`."""

    files: tuple[str, ...]
    log_format: str | None = None
    config: str | None = None
    key: str | None = None
    since: int | None = None
    until: int | None = None
    host: str | None = None
    location: str | None = None
    groups: tuple[tuple[str, str], ...] = ()
    follow: bool = False
    every: float | None = None
    as_json: bool = False
    html: Path | None = None
    more: dict[str, Any] = field(default_factory=dict)
    """Of NginxLog, for one verb only: ``argument`` and the like."""
    replayed_keys: str | None = None
    """The log is also to be kept for replays with such rules for keys: ``sample_by``."""

    def __post_init__(self) -> None:
        if self.every is not None and not self.follow:
            raise click.UsageError(
                "--every says how often --follow shows it anew: give --follow, too, or leave it out"
            )

    @cached_property
    def configuration(self) -> Configuration | None:
        """Read once: it may come from standard input."""
        if self.config is None:
            return None
        if self.config == "-" and "-" in self.files:
            raise NginxError("only one of the log and --config can come from standard input")
        from nearcache.nginx.config.read.configuration import read_configuration

        return read_configuration(self.config)


@dataclass
class Reading:
    """One pass over some logs: ask for ``result`` when it is over, or in between."""

    logs: Logs
    format: LogFormat
    site: Site
    log: NginxLog
    trace: NginxTrace | None = None
    """The same lines, to be replayed; None: not wanted, or not possible."""
    today: Today | None = None
    """The rules to replay it with; with a trace."""

    @property
    def result(self) -> NginxResult:
        return self.log.result()

    def feed(self, chunk: bytes) -> None:
        self.log.feed(chunk)
        if self.trace:
            self.trace.feed(chunk)

    def finish(self) -> None:
        self.log.finish()
        if self.trace:
            self.trace.finish()

    def about(self, result: NginxResult) -> dict[str, Any]:
        """What was read, for JSON."""
        from nearcache.nginx.logs.formats import missing

        return {
            "format": self.format.name,
            "format_text": self.format.text,
            "format_chosen": self.format.chosen,
            "files": self.logs.opened,
            "troubles": self.logs.troubles,
            "notes": [*self.logs.notes, *self.site.notes],
            "lines": result["lines"],
            "left_out": result["left_out"],
            "bad": result["bad"],
            "bad_examples": [{"line": n, "text": text} for n, text in result["bad_examples"]],
            "backwards": result["backwards"],
            "rotations": self.logs.rotations,
            "truncations": self.logs.truncations,
            "key": result["keys"]["text"],
            "key_rate": result["keys"]["rate"],
            "cannot_tell": [
                {"variable": each.variable, "tells": each.tells}
                for each in missing(result, self.site.settles)
            ],
        }

    def notes(self, result: NginxResult) -> Iterator[str]:
        """What a reader must know about the reading itself."""
        names = self.logs.opened
        more = len(names) - MOST_NAMED
        named = ", ".join(printable(name) for name in names[:MOST_NAMED])
        yield f"read: {named}" + (f" and {more} more" if more > 0 else "")
        yield f"log format: {self.format.name}, {self.format.chosen}"
        yield from self.site.notes
        hosts = list(dict.fromkeys(each["host"] for each in result["top"] if each["host"]))
        if len(hosts) > 1:
            shown = ", ".join(printable(host) for host in hosts[:MOST_NAMED])
            dots = " ..." if len(hosts) > MOST_NAMED else ""
            yield (
                f"several hosts ({shown}{dots}): URL groups and locations count all of them "
                "together; --host HOST shows one"
            )
        yield from self.logs.notes
        yield from self.logs.changes()
        if result["left_out"]:
            yield f"{plural(result['left_out'], 'request')} left out, as asked"
        if result["bad"]:
            share = percent(ratio(result["bad"], result["lines"]))
            number, text = result["bad_examples"][0]
            yield (
                f"{plural(result['bad'], 'line')} ({share}) not counted: the format does not fit; "
                f"line {number}: {printable(text)[:BAD_SHOWN]}"
            )
        if result["backwards"]:
            yield (
                f"{plural(result['backwards'], 'line')} more than a minute older than one before: "
                "several logs mixed, or in the wrong order? Reasons of misses are rough then"
            )
        if result["gave_up"]:
            yield f"{plural(result['gave_up'], 'search', 'searches')} for a --group given up"
        if result["keys"]["rate"] < 1:
            yield f"why it missed is estimated from {percent(result['keys']['rate'])} of all URLs"

    def cannot_tell(self, result: NginxResult) -> list[Table]:
        """What the log is silent about, as a table; none if nothing."""
        from nearcache.nginx.logs.formats import missing

        found: dict[str, str] = {}
        for each in missing(result, self.site.settles):
            found.setdefault(each.variable, each.tells)
        if not found:
            return []
        rows = [[variable, tells] for variable, tells in found.items()]
        title = "This log cannot tell; add to its log_format"
        return [Table(title, ["variable", "to learn"], rows, text_columns=(0, 1))]

    def finished(self, page: Page, result: NginxResult) -> Page:
        """A page with what belongs below every one."""
        return replace(
            page,
            parts=[*page.parts, *self.cannot_tell(result)],
            notes=[*page.notes, *self.notes(result)],
        )


def read_logs(request: Request, show: Callable[[Reading], None]) -> None:
    """Reads everything and shows it; following, shows it again and again until Ctrl-C.

    Exits with 1 if something that was given could not be read to its end.
    """
    reading = _open(request)
    is_whole = True
    if request.follow:
        _follow(request, reading, show)
    else:
        is_whole = _read(reading)
        _check(reading, request)
        show(reading)
    for trouble in reading.logs.troubles:
        click.echo(f"nearcache: {trouble}", err=True)
    if not is_whole:
        raise SystemExit(INTERRUPTED)
    if reading.logs.troubles:
        raise SystemExit(INCOMPLETE)


def _read(reading: Reading) -> bool:
    """False if Ctrl-C came before the end: what was read by then is not lost."""
    try:
        for chunk in with_progress(reading.logs):
            reading.feed(chunk)
    except KeyboardInterrupt:
        if not reading.result["lines"]:
            raise
        whole = reading.logs.total_bytes
        share = f" of {size(whole)}" if whole else ""
        reading.logs.troubles.append(
            f"interrupted after {size(reading.logs.read_bytes)}{share} of the files: only this "
            "is counted"
        )
    else:
        reading.finish()
        return True
    reading.finish()
    return False


def _open(request: Request) -> Reading:
    site = site_for(request)
    logs = logs_for(request, site)
    return reading_of(request, site, logs, beginning_of(logs))


def logs_for(request: Request, site: Site) -> Logs:
    """What is to be read; of logs in several formats those that say most."""
    from nearcache.nginx.logs.alike import open_logs

    logs = open_logs(
        files_of(request, site), request.log_format, site.formats,
        named=request.files, following=request.follow,
    )  # fmt: skip
    if not request.files and site.logs:
        logs.notes += [
            f"{each} is not read: name the files that it stands for" for each in site.logs_elsewhere
        ]
    return logs


def beginning_of(logs: Logs) -> bytes:
    """The first lines, which are read again; an error if there are none."""
    beginning = logs.peek()
    if not beginning:
        names = ", ".join("standard input" if name == "-" else name for name in logs.names)
        raise NginxError("; ".join(logs.troubles) or f"{names}: no lines")
    return beginning


def reading_of(request: Request, site: Site, logs: Logs, beginning: bytes) -> Reading:
    """A pass over logs that begin so: nothing is fed to it yet."""
    from nearcache._core import NginxLog
    from nearcache.nginx.config.read.site import parse_location
    from nearcache.nginx.logs.formats import check_key, choose

    log_format = choose(request.log_format, site.formats, beginning)
    key = request.key.removeprefix("$") if request.key else None
    if key:
        check_key(key, log_format)
    only = parse_location(request.location) if request.location else None
    locations, parts = list(site.locations), list(site.key_parts)
    if only and only not in locations:
        locations.append(only)
        # It has the key that what matched no location had.
        parts = [*site.key_parts, *site.key_parts[-1:]]
    log = NginxLog(
        log_format.text,
        key=key or site.key_variable,
        locations=locations,
        groups=request.groups,
        valid_s=site.valid_s,
        inactive_s=site.inactive_s,
        min_uses=site.min_uses,
        ignore_headers=site.ignore_headers,
        utc_offset_s=_utc_offset_s(),
        key_parts=parts,
        **request.more,
    )
    log.only(
        since_us=request.since,
        until_us=request.until,
        host=request.host,
        location=locations.index(only) if only else None,
    )
    reading = Reading(logs, log_format, site, log)
    if request.replayed_keys is not None and not request.follow:
        _keep_for_replays(reading, request, key, locations, only)
    return reading


def _keep_for_replays(
    reading: Reading,
    request: Request,
    key: str | None,
    locations: Sequence[tuple[str, str]],
    only: tuple[str, str] | None,
) -> None:
    """Has the lines of a reading kept, too; not if the configuration has no cache."""
    from nearcache.nginx.whatif.rules import Today, today_of
    from nearcache.nginx.whatif.traces import open_trace, with_locations

    configuration = request.configuration
    if configuration and not any(each.zone for each in configuration.locations):
        return
    today = today_of(configuration, request.host) if configuration else Today()
    reading.today = with_locations(today, locations)
    reading.trace = open_trace(
        reading.format.text, reading.today, reading.site,
        key=key, sample_by=request.replayed_keys or "", max_requests=MOST_REPLAYED,
    )  # fmt: skip
    reading.trace.only(
        since_us=request.since,
        until_us=request.until,
        host=request.host,
        location=locations.index(only) if only else None,
    )


def site_for(request: Request) -> Site:
    """What the configuration says; nothing, if none is given."""
    from nearcache.nginx.config.read.site import Site, site_of

    configuration = request.configuration
    return site_of(configuration, request.host) if configuration else Site()


def files_of(request: Request, site: Site) -> list[str]:
    """What was named; else the logs of the configuration; else where nginx logs usually are."""
    from nearcache.nginx.logs.files import USUAL_PLACE

    if request.files:
        return list(request.files)
    if site.logs:
        return list(site.logs)
    if site.logs_elsewhere:
        raise NginxError(
            f"the configuration logs to {', '.join(site.logs_elsewhere)}, and only nginx knows "
            "which files these are; name them"
        )
    if Path(USUAL_PLACE).is_dir():
        return [USUAL_PLACE]
    raise NginxError("which log? Name files or directories, or - for standard input")


def _utc_offset_s() -> int:
    offset = datetime.now().astimezone().utcoffset()
    return int(offset.total_seconds()) if offset else 0


def _follow(request: Request, reading: Reading, show: Callable[[Reading], None]) -> None:
    shown_at, every_s = time.monotonic(), request.every or EVERY_S
    try:
        for chunk in reading.logs.chunks():
            if chunk:
                reading.log.feed(chunk)
            if time.monotonic() - shown_at >= every_s:
                if sys.stdout.isatty() and not request.as_json:
                    click.clear()
                show(reading)
                shown_at = time.monotonic()
    except KeyboardInterrupt:
        click.echo(err=True)
    reading.log.finish()
    show(reading)


def _check(reading: Reading, request: Request) -> None:
    """Refuses to answer where the answer would be an empty one, or another question's."""
    result = reading.result
    says = result["says"]
    for asked, field_, variable in (
        (request.since or request.until, "time", "$msec"),
        (request.host, "host", "$host"),
    ):
        if asked and not says[field_] and result["lines"] > result["bad"]:
            raise NginxError(f"the log has no {field_} to go by; add {variable} to the log_format")
    if result["left_out"] and not result["total"]["requests"]:
        asked_for = {
            "--since": request.since,
            "--until": request.until,
            "--host": request.host,
            "--location": request.location,
        }
        named = " and ".join(option for option, value in asked_for.items() if value is not None)
        raise NginxError(
            f"none of {plural(result['left_out'], 'request')} is left by {named}; without, it is "
            "said which times and URLs there are"
        )
    if result["lines"] and result["bad"] == result["lines"]:
        number, text = result["bad_examples"][0]
        raise NginxError(
            f"no line fits the log format {reading.format.name}; line {number}: "
            f"{printable(text)[:BAD_SHOWN]}"
        )


def print_page(page: Page, html: Path | None = None) -> None:
    """Shows a page in the width of the terminal; of a pipe, in 80 columns."""
    if html:
        from nearcache.nginx.pages.html import write_page

        write_page(page, html)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 80
    for line in lines_of(page, min(width, MOST_WIDTH)):
        click.echo(line)


def show_found(page: Page, facts: dict[str, Any], request: Request) -> None:
    """The facts as JSON, or the page; beside either the HTML file, if one was asked for."""
    if not request.as_json:
        print_page(page, request.html)
        return
    print_json(facts, one_line=request.follow)
    if request.html:
        from nearcache.nginx.pages.html import write_page

        write_page(page, request.html)


def print_json(value: Any, *, one_line: bool = False) -> None:
    click.echo(json.dumps(value, ensure_ascii=True, indent=None if one_line else 2))
