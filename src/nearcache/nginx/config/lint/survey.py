"""What is beside a configuration on this host: its caches, file systems, built-in paths, Django.

Of each cache the files are counted and the heads of a few are read. What may not be read is left
out, and said.
"""

from __future__ import annotations

import os
import re
import subprocess
from importlib import metadata
from itertools import islice
from pathlib import Path

from nearcache.errors import NginxError
from nearcache.nginx.cachedir.directory import CacheDir
from nearcache.nginx.cachedir.varying import names_in
from nearcache.nginx.config.lint.model import Directory, Examined
from nearcache.nginx.config.read.configuration import Configuration, Version
from nearcache.nginx.config.read.locations import KINDS

MOST_FILES = 2_000_000  # counted: the answer to "too many?" is known long before
MOST_HEADS = 500  # entries whose head is read: what most responses vary by is among them


def survey(configuration: Configuration, program: str = "nginx") -> tuple[Examined, list[str]]:
    """What the rules look at, and what could not be looked at."""
    directories: dict[str, Directory] = {}
    troubles = []
    for cache in configuration.caches:
        try:
            directories[cache.path] = measure(cache.path)
        except FileNotFoundError:
            continue  # the configuration of another host, or nginx has not been started yet
        except OSError as error:
            troubles.append(f"{cache.path} was not looked at: {error.strerror}")
    compiled = built_in_paths(program)
    paths = set(compiled.values())
    for kind in KINDS:
        for place in configuration.cached:
            paths.update(d.args[0] for d in place.all(f"{kind}_temp_path") if d.args)
    devices = {path: device for path in paths if (device := _device(path)) is not None}
    return Examined(configuration, directories, devices, compiled, installed_django()), troubles


def measure(path: str, most: int = MOST_FILES) -> Directory:
    """How many files, and how large together. Raises OSError if the top cannot be read."""
    files = size_bytes = 0
    left = [path]
    os.listdir(path)
    while left and files < most:
        try:
            with os.scandir(left.pop()) as listed:
                for item in listed:
                    if item.is_dir(follow_symlinks=False):
                        left.append(item.path)
                    elif len(item.name) == 32:
                        files += 1
                        size_bytes += item.stat(follow_symlinks=False).st_size
        except OSError:
            continue  # nginx works in it: levels and files come and go
    return Directory(files, size_bytes, not left, os.stat(path).st_dev, _varies_by(path))


def _varies_by(path: str) -> tuple[str, ...]:
    """The request headers that the first entries met vary by."""
    try:
        with CacheDir(Path(path)) as cache:
            return tuple(
                sorted(
                    {
                        name
                        for found in islice(cache.walk(), MOST_HEADS)
                        for name in names_in(found.entry.vary)
                    }
                )
            )
    except NginxError:
        return ()  # it may be listed and not be entered, or has gone


def installed_django() -> Version | None:
    """The version of the Django beside this package; None without one."""
    try:
        found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", metadata.version("django"))
    except metadata.PackageNotFoundError:
        return None
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


def built_in_paths(program: str = "nginx") -> dict[str, str]:
    """The temporary directories that ``nginx -V`` names, by kind."""
    try:
        done = subprocess.run(
            [program, "-V"], check=False, capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return {
        kind: match[1]
        for kind in KINDS
        if (match := re.search(rf"--http-{kind}-temp-path=(/\S+)", done.stderr))
    }


def _device(path: str) -> int | None:
    """The file system of a path, or of the directory that it will be made in."""
    for place in (Path(path), *Path(path).parents):
        try:
            return place.stat().st_dev
        except FileNotFoundError:
            continue
        except OSError:
            return None
    return None
