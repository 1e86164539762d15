"""What a recording cache is told in ``CACHES``, and the entry that wraps another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from nearcache.base.options import (
    GIB,
    MIB,
    Options,
    Secret,
    option,
    secrets,
    share,
    sized,
    yes_or_no,
)

BACKEND = "nearcache.backends.RecordingCache"


def _entry(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not isinstance(value.get("BACKEND"), str):
        raise ValueError("must be an entry of CACHES: a dict with BACKEND in it")
    if value["BACKEND"] == BACKEND:
        raise ValueError("is a recording cache itself")
    return value


@dataclass(frozen=True, kw_only=True)
class RecordingOptions(Options):
    """``LOCATION`` and ``OPTIONS`` of :class:`RecordingCache`."""

    backend: ClassVar[str] = "RecordingCache"

    location: str = option(
        "LOCATION",
        "The file to append to, on a local disk; readable by this user only. All processes of"
        " a host share it. Written beside `OPTIONS`, as Django has it.",
        str,
        default="",
    )
    of: Mapping[str, Any] = option(
        "of",
        "The cache to record: its whole entry of `CACHES`, as it was.",
        _entry,
        default=None,
    )
    share: float = option(
        "share",
        "Which share of the keys is recorded. A key is recorded always or never.",
        share,
        default=0.01,
    )
    size_bytes: int = option(
        "size",
        "The recording ends when its file would be larger than this.",
        sized(MIB // 16, 64 * GIB),
        default=64 * MIB,
        shown_default='`"64MB"`',
    )
    salt: tuple[Secret, ...] = option(
        "salt",
        "Keys are hashed with this secret. Hosts whose recordings are to be put together need"
        " the same.",
        secrets,
        default=(),
        shown_default="made from `SECRET_KEY`",
    )
    prefixes: bool = option(
        "prefixes",
        "Whether the first word of a key, `user` of `user:7:name`, is written as it is. It is"
        " the only part of a key that is; a recording without it cannot tell kinds of keys"
        " apart.",
        yes_or_no,
        default=True,
    )


def recorded(entry: Mapping[str, Any], file: str, **options: Any) -> dict[str, Any]:
    """The entry of ``CACHES`` that records ``entry`` into ``file``.

    ``CACHES["default"] = recorded(CACHES["default"], "/var/tmp/mysite.trace", share=0.05)``
    """
    return {"BACKEND": BACKEND, "LOCATION": file, "OPTIONS": {"of": dict(entry), **options}}


def unrecorded(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry as it was before :func:`recorded`; a copy of one that is not recorded."""
    of = (entry.get("OPTIONS") or {}).get("of") if entry["BACKEND"] == BACKEND else None
    return dict(of or entry)
