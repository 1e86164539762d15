"""Which of several logs are read together: those of one format, the one that says most.

A site logs the same requests as ``combined`` for one program and with cache statuses for
another, and ``/var/log/nginx`` has the logs of many sites. One pass has one format: lines of
another do not fit it, and one that says less would hide what the other knows. So formats are
compared log by log, and what is left out is said.

Not here: which format a log has (``formats.py``), and reading it (``files.py``).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from nearcache.errors import NginxError
from nearcache.nginx.logs.files import STDIN, Logs
from nearcache.nginx.logs.formats import LogFormat, choose, fits
from nearcache.nginx.logs.rotated import rotation


@dataclass(frozen=True)
class _Log:
    """One log with its rotated files, oldest first."""

    name: str
    files: Sequence[str]
    format: LogFormat | None
    """None: it has no lines yet, or cannot be read, which reading it will say."""
    beginning: bytes = b""
    trouble: str = ""
    """Why no format fits."""


def open_logs(
    given: Sequence[str],
    log_format: str | None,
    configured: Mapping[str, str],
    *,
    named: Collection[str] = (),
    following: bool = False,
) -> Logs:
    """The logs to read in one pass.

    Args:
        given: files, directories and ``-``.
        log_format: what the user said; None: found out log by log.
        configured: the formats of the configuration: name -> text.
        named: those of ``given`` that the user named: one that is left out is a trouble, and of a
            directory or a configuration it is a note.

    Raises NginxError if none of several logs has a format that is known.
    """
    whole = Logs(given, following=following)
    bases = list(dict.fromkeys(rotation(name)[0] for name in whole.names))
    if log_format is not None or len(bases) < 2 or any(map(_is_read_once, whole.names)):
        return whole
    seen = [_looked_at(base, whole.names, configured) for base in bases]
    best = max((each.format for each in seen if each.format), key=_says, default=None)
    if best is None:
        troubles = [each.trouble for each in seen if each.trouble]
        if troubles:
            raise NginxError(troubles[0])
        return whole
    left = [each for each in seen if not _fits(each, best)]
    if not left:
        return whole
    kept = Logs([file for each in seen if _fits(each, best) for file in each.files],
                following=following)  # fmt: skip
    kept.notes += whole.notes
    kept.troubles += whole.troubles
    for each in left:
        is_named = not set(each.files).isdisjoint(named)
        (kept.troubles if is_named else kept.notes).append(_why_left_out(each, best))
    return kept


def _is_read_once(name: str) -> bool:
    """Standard input, or a shell's ``<(zcat ...)``: what is looked at there is gone."""
    try:
        return name == STDIN or stat.S_ISFIFO(os.stat(name).st_mode)
    except OSError:
        return False


def _looked_at(base: str, names: Sequence[str], configured: Mapping[str, str]) -> _Log:
    """The newest file with lines tells the format."""
    files = [name for name in names if rotation(name)[0] == base]
    for name in reversed(files):
        beginning = Logs([name]).peek()
        if beginning.strip():
            try:
                return _Log(files[-1], files, choose(None, configured, beginning), beginning)
            except NginxError as problem:
                return _Log(files[-1], files, None, beginning, f"{name}: {problem}")
    return _Log(files[-1], files, None)


def _says(log_format: LogFormat) -> int:
    return log_format.says


def _fits(log: _Log, best: LogFormat) -> bool:
    if log.format is None:
        return not log.trouble  # nothing is there yet
    return log.format.text == best.text or fits(best, log.beginning)


def _why_left_out(log: _Log, best: LogFormat) -> str:
    if log.format is None:
        return f"{log.name} is left out: no known format fits it; read it alone, with --format"
    return (
        f"{log.name} is left out: its format is {log.format.name}, and {best.name} of the others "
        "says more; read it alone"
    )
