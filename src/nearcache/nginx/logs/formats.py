"""Which ``log_format`` a log was written with, and what that format cannot tell.

It is given, found by its name in the configuration, or found by trying: every known format
is tried on the first lines by the same native reader that will read all of them. The one
that most lines fit is taken, of equals the one that says most. If none fits, and nobody gave a
configuration, the formats of the one that nginx usually has are tried. Which it was is always said.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from nearcache._core import NginxLog
from nearcache.errors import NginxError
from nearcache.report.words import printable

if TYPE_CHECKING:
    from nearcache._core import NginxResult

TRIED_BYTES = 256 * 1024
TRIED_LINES = 500
ENOUGH = 0.5  # of these lines must fit
MOST_SHOWN = 160
LONGEST_TRIED = 64 * 1024  # bytes of a line: no request is so long, what crashed may leave more
USUAL_CONFIGURATIONS = (
    "/etc/nginx/nginx.conf",
    "/usr/local/etc/nginx/nginx.conf",
    "/usr/local/nginx/conf/nginx.conf",
    "/opt/homebrew/etc/nginx/nginx.conf",
)

COMBINED_WITH = (
    '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent '
    '"$http_referer" "$http_user_agent"'
)
WELL_KNOWN = {
    "combined": "combined",
    "json": "json",
    # nginx.conf of the packages of nginx.org
    "main": f'{COMBINED_WITH} "$http_x_forwarded_for"',
    # ingress-nginx, docs/user-guide/nginx-configuration/log-format.md
    "upstreaminfo": (
        f"{COMBINED_WITH} $request_length $request_time [$proxy_upstream_name] "
        "[$proxy_alternative_upstream_name] $upstream_addr $upstream_response_length "
        "$upstream_response_time $upstream_status $req_id"
    ),
}

JSON_KEYS = ("cl_key", "cache_key")  # crates/nearcache-nginx/src/log/record.rs

_DIRECTIVE = re.compile(r"\s*log_format\s+\S+\s+(?:escape=\w+\s+)?(.*?);?\s*", re.DOTALL)
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"|([^\s'\"]+)", re.DOTALL)


@dataclass(frozen=True)
class LogFormat:
    """How to read a log. ``text`` is what the native reader takes."""

    name: str
    text: str
    chosen: str
    """How it was chosen, for people: ``by its first lines``."""
    says: int = 0
    """If it was found by trying: how many fields it has."""


def choose(given: str | None, configured: Mapping[str, str], beginning: bytes) -> LogFormat:
    """The format of a log.

    Args:
        given: what the user gave: ``combined``, ``json``, a name, a text with variables, or a
            whole ``log_format`` directive; None to find it by trying.
        configured: the formats of the configuration: name -> text.
        beginning: of the log.

    Raises NginxError with the first line and what to give, if there is no such format.
    """
    if given is None:
        return _found(configured, beginning)
    if "$" in given:
        return LogFormat("given", text_of(given), "as given")
    for formats, chosen in ((configured, "of the configuration"), (WELL_KNOWN, "by name")):
        if given in formats:
            return LogFormat(given, formats[given], chosen)
    place, usual = _usual(configured)
    if given in usual:
        return LogFormat(given, usual[given], f"of {place}")
    known = [*configured, *WELL_KNOWN, *usual]
    close = get_close_matches(given, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}."
    raise NginxError(
        f"no log_format {given!r}; {hint} Give --config FILE to find others by name, or the text "
        "of the log_format itself"
    )


def check_key(variable: str, log_format: LogFormat) -> None:
    """NginxError if a log has no such variable to take for the cache key."""
    if log_format.text == "json":
        if variable not in JSON_KEYS:
            raise NginxError(
                f"--key {variable}: in JSON lines only {' and '.join(JSON_KEYS)} are known as the "
                "key; give --format with the text of the log_format, or --config"
            )
        return
    text = COMBINED_WITH if log_format.text == "combined" else log_format.text
    names = dict.fromkeys(re.findall(r"\$\{?(\w+)", text))
    if variable not in names:
        raise NginxError(
            f"--key {variable}: the log_format {log_format.name} has no ${variable}; it has "
            + ", ".join(f"${name}" for name in names)
        )


def fits(log_format: LogFormat, beginning: bytes) -> bool:
    """Do most of the first lines of a log fit a format?"""
    return _tried(log_format.text, _first_lines(beginning))[0] >= ENOUGH


def text_of(given: str) -> str:
    """The text of a format, also if the whole directive was pasted."""
    directive = _DIRECTIVE.fullmatch(given)
    if not directive:
        return given
    return "".join(
        re.sub(r"\\(.)", r"\1", single or double) or bare
        for single, double, bare in _QUOTED.findall(directive[1])
    )


def _found(configured: Mapping[str, str], beginning: bytes) -> LogFormat:
    lines = _first_lines(beginning)
    if not lines:
        raise NginxError("the log has no lines yet; give --format, or a log that has some")
    best = _best(lines, {" (of the configuration)": configured, "": WELL_KNOWN})
    if best is None:
        place, usual = _usual(configured)
        best = _best(lines, {f" (of {place})": usual})
    if best is None:
        raise NginxError(_nothing_fits(lines[0], configured))
    return best


def _best(lines: Sequence[bytes], known: Mapping[str, Mapping[str, str]]) -> LogFormat | None:
    """Of formats by where they are from the one that fits; None if too few lines fit any."""
    tried: list[tuple[float, int, LogFormat]] = []
    for where, formats in known.items():
        for name, text in formats.items():
            fits, says = _tried(text, lines)
            chosen = f"by its first lines{where}"
            tried.append((fits, says, LogFormat(name, text, chosen, says)))
    fits, says, best = max(tried, key=lambda each: each[:2], default=(0.0, 0, None))
    return best if fits >= ENOUGH and says else None


def _usual(configured: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
    """The configuration of the nginx of this host, and its formats: if nobody gave one."""
    place = next((each for each in USUAL_CONFIGURATIONS if os.path.exists(each)), "")
    if configured or not place:
        return place, {}
    from nearcache.nginx.config.read.configuration import BUILT_IN_FORMATS, read_configuration

    try:
        formats = read_configuration(place).formats
    except NginxError:  # it may not be read, or crossplane is not installed
        return place, {}
    return place, {name: text for name, text in formats.items() if name not in BUILT_IN_FORMATS}


def _first_lines(beginning: bytes) -> list[bytes]:
    """Those that can be lines of a log: what is endless, or empty, tells no format."""
    whole, newline, rest = beginning.rpartition(b"\n")
    found, size = [], 0
    for line in (whole if newline else rest).split(b"\n"):
        line = line.lstrip(b"\0")  # a crash may leave them  # noqa: PLW2901
        if line.strip() and len(line) <= LONGEST_TRIED:
            found.append(line)
            size += len(line)
        if len(found) == TRIED_LINES or size >= TRIED_BYTES:
            break
    return found


def _tried(text: str, lines: Sequence[bytes]) -> tuple[float, int]:
    """The share of lines that fit, and how many fields they then have."""
    try:
        log = NginxLog(text, max_keys=1)
    except NginxError:
        return 0.0, 0  # a format that nobody can read: $a$b
    log.feed(b"\n".join(lines))
    log.finish()
    result = log.result()
    return 1 - result["bad"] / max(1, result["lines"]), sum(result["says"].values())


def _nothing_fits(line: bytes, configured: Mapping[str, str]) -> str:
    shown = printable(line.decode(errors="replace"))
    shown = shown if len(shown) <= MOST_SHOWN else shown[:MOST_SHOWN] + "..."
    members = _members(line)
    nested = [name for name in members if isinstance(members[name], dict | list)]
    if nested:
        return (
            f"its lines are JSON in which {', '.join(map(printable, nested[:12]))} "
            f"{'is an object' if len(nested) == 1 else 'are objects'}: only flat ones are read by "
            "themselves; give --format with the text of its log_format, or --config FILE"
        )
    if members:
        shown_members = ", ".join(map(printable, [*members][:12]))
        return (
            f"its lines are JSON, but of its members ({shown_members}) none is named "
            "like a variable of nginx, or their time is none; give --config FILE, or --format with "
            "the text of its log_format"
        )
    place, usual = _usual(configured)
    known = ", ".join([*configured, *WELL_KNOWN]) + (f", and those of {place}" if usual else "")
    return (
        f"no known format fits the first lines (tried: {known}). The first is: {shown} -- give "
        "--format with the text of its log_format, or --config FILE to find it there"
    )


def _members(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class Missing:
    """Something that a log cannot tell, and the variable that would."""

    variable: str
    tells: str


def missing(result: NginxResult, known: Collection[str] = ()) -> list[Missing]:
    """What this log cannot tell, the weightiest first; without what is ``known`` otherwise."""
    says = result["says"]
    return [each for field, each in TELLS.items() if not says.get(field) and field not in known]


TELLS = {
    "uri": Missing("$request_uri", "which URL was asked for"),
    "cache_status": Missing("$upstream_cache_status", "hits and misses"),
    "upstream_time": Missing("$upstream_response_time", "what a fetch takes: seconds saved"),
    "request_time": Missing("$request_time", "when requests began: stampedes, waits"),
    "time": Missing("$msec", "when: anything by hour, why it missed"),
    "milliseconds": Missing("$msec", "the order within a second: stampedes"),
    "bytes": Missing("$body_bytes_sent", "bytes"),
    "host": Missing("$host", "whether two hosts share a path"),
    "key": Missing("$cl_key", "the cache key itself (see docs/nginx.md)"),
    "cache_control": Missing("$upstream_http_cache_control", "what the application forbids"),
    "set_cookie": Missing("$cl_set_cookie", "what a cookie keeps from being stored"),
    "vary": Missing("$upstream_http_vary", "variants"),
    "accept_encoding": Missing("$http_accept_encoding", "which variant was asked for"),
}
