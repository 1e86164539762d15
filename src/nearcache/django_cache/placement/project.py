"""Which project this process serves, told by what is the same in all of its processes.

Caches in shared memory that have a name and no path belong to one project, so that two
projects on a host never share one by accident. A project is where its settings are:

    a settings module                 the path of its file, links followed
    settings.configure(module)        the same
    settings.configure(ROOT_URLCONF)  the path of that module's file
    settings.configure(BASE_DIR)      that directory
    none of these                     no project: a path has to be given

So the working directory, the arguments, links and the name by which the module is imported
make no difference, and another settings module is another site. ``releases/20260102`` and
``releases/20260103`` are one project: a deploy finds its cache warm, and leaves no file behind.
So are not two containers that share ``/dev/shm``: their paths are alike and say nothing.

What this does not see: two sites that run from one settings file and differ by environment
variables. They need a ``LOCATION`` of their own; :mod:`nearcache.integrations.system_checks` warns
where they meet.
"""

from __future__ import annotations

import glob
import hashlib
import importlib.util
import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from django.conf import ENVIRONMENT_VARIABLE, UserSettingsHolder, settings

from nearcache.base.per_process import once
from nearcache.errors import RegionError

RELEASES = "releases"
_RELEASE = re.compile(r"v?[0-9][0-9._-]*|[0-9a-f]{7,64}")
_UNPLAIN = re.compile(r"[^A-Za-z0-9_]+")
SLUG_PARTS, SLUG_CHARS = 3, 40


@dataclass(frozen=True)
class Project:
    """Where the settings are, without what differs between releases and spellings."""

    path: str

    @property
    def name(self) -> str:
        """For a file's name: readable, and of this project alone."""
        parts = [each for each in Path(self.path).parts if each not in {"/", RELEASES, "*"}]
        slug = ".".join(_UNPLAIN.sub("-", each) for each in parts[-SLUG_PARTS:])
        told = f"{self.path}\0{_pid_namespace()}".encode(errors="surrogateescape")
        return f"{slug[-SLUG_CHARS:].lstrip('.-')}-{hashlib.sha256(told).hexdigest()[:16]}"


def this_project() -> Project:
    """The project of this process; RegionError if nothing tells it from others."""
    return once("this_project", _told_by_settings)


def this_owner() -> dict[str, str]:
    """What a cache file's note says of this process."""
    try:
        path = this_project().path
    except RegionError:
        path = ""
    return once("this_owner", lambda: {"project": path, "site": site_mark()})


def _told_by_settings() -> Project:
    path = _settings_path()
    if path is None:
        raise RegionError(
            "nothing tells this project from others on this host: its settings have no module,"
            " no ROOT_URLCONF and no BASE_DIR; set LOCATION to an absolute path"
        )
    return Project(_of_all_releases(path))


def is_there(path: str) -> bool:
    """Whether a project's settings are still where they were, in any release."""
    plain = "/".join(each if each == "*" else glob.escape(each) for each in path.split("/"))
    return bool(path) and any(glob.glob(plain + end) for end in ("", ".py", ".pyc", "/__init__.py"))


def site_mark() -> str:
    """Tells sites apart that share a settings file: which databases they use."""
    databases: dict[str, Any] = getattr(settings, "DATABASES", None) or {}
    told = [
        (alias, *(str(entry.get(name) or "") for name in ("ENGINE", "HOST", "PORT", "NAME")))
        for alias, entry in sorted(databases.items())
    ]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def _settings_path() -> str | None:
    if not settings.configured and not os.environ.get(ENVIRONMENT_VARIABLE):
        return None
    settings.is_overridden("CACHES")  # loads them
    holder: Any = settings._wrapped
    while isinstance(holder, UserSettingsHolder):  # override_settings, configure()
        holder = holder.default_settings
    if isinstance(holder, ModuleType) and holder.__name__ != "django.conf.global_settings":
        return _file_of(holder)
    name = getattr(holder, "SETTINGS_MODULE", None)
    return _file_of_name(name) or _path_of_configured()


def _path_of_configured() -> str | None:
    urls = getattr(settings, "ROOT_URLCONF", None)
    found = _file_of(urls) if isinstance(urls, ModuleType) else _file_of_name(urls)
    base = getattr(settings, "BASE_DIR", None)
    return found or (os.path.realpath(base) if base else None)


def _file_of_name(name: Any) -> str | None:
    if not isinstance(name, str) or not name:
        return None
    module = sys.modules.get(name)
    if module is not None:
        return _file_of(module)
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    return _plain_path(spec.origin) if spec else None


def _file_of(module: ModuleType) -> str | None:
    return _plain_path(getattr(module, "__file__", None))


def _plain_path(file: str | None) -> str | None:
    if not file:
        return None
    path = os.path.realpath(file)
    stem, suffix = os.path.splitext(path)
    path = stem if suffix in {".py", ".pyc"} else path
    return path.removesuffix("/__init__")


def _of_all_releases(path: str) -> str:
    parts = path.split("/")
    for at, part in enumerate(parts[:-1]):
        if part == RELEASES and _RELEASE.fullmatch(parts[at + 1]):
            parts[at + 1] = "*"
    return "/".join(parts)


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
