"""Which ``log_format`` a log was written with, and what that format cannot tell.

It is given, found by its name in the configuration, or found by trying: every known format
is tried on the first lines by the same native reader that will read all of them. The one
that most lines fit is taken, of equals the one that says most. Which it was is always said.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from nearcache._core import NginxLog
from nearcache.errors import NginxError
from nearcache.nginx.text import printable

if TYPE_CHECKING:
    from nearcache._core import NginxResult

TRIED_BYTES = 256 * 1024
TRIED_LINES = 500
ENOUGH = 0.5  # of these lines must fit
MOST_SHOWN = 160

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

JSON_KEYS = ("cl_key", "cache_key")  # crates/nearcache-nginx/src/record.rs

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
    known = [*configured, *WELL_KNOWN]
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
    tried: list[tuple[float, int, LogFormat]] = []
    for formats, where in ((configured, " (of the configuration)"), (WELL_KNOWN, "")):
        for name, text in formats.items():
            fits, says = _tried(text, lines)
            chosen = f"by its first lines{where}"
            tried.append((fits, says, LogFormat(name, text, chosen, says)))
    fits, says, best = max(tried, key=lambda each: each[:2])
    if fits < ENOUGH or not says:
        raise NginxError(_nothing_fits(lines[0], configured))
    return best


def _first_lines(beginning: bytes) -> list[bytes]:
    whole, newline, rest = beginning[:TRIED_BYTES].rpartition(b"\n")
    lines = (whole if newline else rest).split(b"\n")
    return [line for line in lines if line.strip()][:TRIED_LINES]


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
    known = ", ".join([*configured, *WELL_KNOWN])
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


def missing(result: NginxResult) -> list[Missing]:
    """What this log cannot tell, the weightiest first."""
    says = result["says"]
    return [each for field, each in TELLS.items() if not says.get(field)]


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
