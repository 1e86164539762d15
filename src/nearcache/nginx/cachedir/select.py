"""Which entries are meant: by a pattern over the whole key, as bytes, as nginx has it."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import translate

from nearcache.errors import NginxError
from nearcache.nginx.cachedir.cachefile import CacheFile

Selects = Callable[[CacheFile], bool]


def everything(_entry: CacheFile) -> bool:
    return True


def selected_by(match: str | None, regex: str | None) -> Selects:
    """By a glob over the whole key (``*`` also over slashes), by a regular expression
    anywhere in it, by both, or all.
    """
    patterns = [
        *([_compiled(translate(match), "--match")] if match is not None else []),
        *([_compiled(regex, "--regex")] if regex is not None else []),
    ]
    if not patterns:
        return everything
    return lambda entry: all(pattern.search(entry.key) for pattern in patterns)


def _compiled(pattern: str, option: str) -> re.Pattern[bytes]:
    try:
        return re.compile(pattern.encode(errors="surrogateescape"))
    except re.error as error:
        raise NginxError(f"{option} is no pattern: {error}") from error
