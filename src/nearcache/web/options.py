"""The setting ``NEARCACHE_WEB``: a dict, all of whose entries may be left out."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from django.conf import settings
from django.utils.crypto import salted_hmac

from nearcache.base.options import Options, one_of, option, share, some_seconds, whole, yes_or_no
from nearcache.errors import OptionError
from nearcache.lab.workloads import PAYLOADS

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a private directory is made in it


def _aliases(value: Any) -> tuple[str, ...]:
    names = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"is {value!r}; write a list of names of CACHES")
    return names


def _path(value: Any) -> str:
    if not isinstance(value, str | os.PathLike) or not os.path.isabs(value):
        raise ValueError(f"is {value!r}; write an absolute path")
    return os.fspath(value)


@dataclass(frozen=True, kw_only=True)
class WebOptions(Options):
    """``NEARCACHE_WEB``."""

    backend: ClassVar[str] = "NEARCACHE_WEB"

    aliases: tuple[str, ...] = option(
        "ALIASES",
        "Names of `CACHES` that are measured.",
        _aliases,
        default=(),
        shown_default="all",
    )
    access: str = option(
        "ACCESS",
        "Who may come in: `staff` (and everybody while `DEBUG` is on) or `anyone`. Load generators"
        " have no session: let them in on a host that nobody else reaches.",
        one_of("staff", "anyone"),
        default="staff",
    )
    write_chance: float = option(
        "WRITE_CHANCE",
        "How likely a read is followed by a write, 0 to 1. What is missing is always written.",
        share,
        default=1.0,
    )
    payload: str = option(
        "PAYLOAD",
        "The value that is stored: " + ", ".join(f"`{k}` {p.title}" for k, p in PAYLOADS.items()),
        one_of(*PAYLOADS),
        default="F",
    )
    warm_up: int = option(
        "WARM_UP",
        "The first reads of every alias in every worker process, which connect and import, are"
        " counted apart.",
        whole(0),
        default=3,
    )
    timeout_s: float = option(
        "TIMEOUT", "How many seconds the value is kept.", some_seconds, default=600.0
    )
    private: bool = option(
        "PRIVATE",
        "These caches hold nothing but what these pages write: then a GET writes, too, and a full"
        " one is written. As `lab serve` sets it for the lab's own.",
        yes_or_no,
        default=False,
    )
    directory: str | None = option(
        "DIRECTORY",
        "Where samples are kept, of this user alone and the same for all workers.",
        _path,
        default=None,
        shown_default="a private one in `/dev/shm`, or else in `$TMPDIR`",
    )


def web_options() -> WebOptions:
    """What the settings say. Raises OptionError."""
    given = getattr(settings, "NEARCACHE_WEB", {})
    if not isinstance(given, dict):
        raise OptionError("NEARCACHE_WEB", "", f"is a {type(given).__name__}; write a dict")
    options = WebOptions.parse(given)
    for name in options.aliases:
        if name not in settings.CACHES:
            raise OptionError.unknown("NEARCACHE_WEB", name, settings.CACHES)
    return options


def aliases_of(options: WebOptions) -> list[str]:
    """The aliases under test, in the order of the settings."""
    return [name for name in settings.CACHES if name in (options.aliases or settings.CACHES)]


def samples_directory(options: WebOptions, aliases: Sequence[str]) -> tuple[Path, str]:
    """Where the samples of exactly these settings go, and how directories of this site begin.

    Other settings are other measurements, so they get another directory: the samples of one
    configuration never mix with those of the next, and workers of two sites never meet.
    """
    root = Path(options.directory) if options.directory else _own_root()
    module = sys.modules.get(os.environ.get("DJANGO_SETTINGS_MODULE", ""))
    site = _digest(f"{os.environ.get('DJANGO_SETTINGS_MODULE')} {getattr(module, '__file__', '')}")
    caches = {name: settings.CACHES[name] for name in aliases}
    measured = [options.write_chance, options.payload, options.warm_up, options.timeout_s]
    return root / f"{site}-{_digest(json.dumps([caches, measured], default=repr))}", f"{site}-"


def _own_root() -> Path:
    parent = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else tempfile.gettempdir()
    return Path(parent) / f"nearcache-web-{os.getuid()}"


def _digest(text: str) -> str:
    # Keyed: settings of caches may hold passwords, and names of directories are no secret.
    return salted_hmac("nearcache.web", text, algorithm="sha256").hexdigest()[:12]
