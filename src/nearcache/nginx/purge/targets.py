"""From what a user names to the keys to purge: a key as it is, or a URL through its shape.

Where the shape of keys comes from, best first: said by the user, read from the configuration,
learned from the directory.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from nearcache.errors import NginxError
from nearcache.nginx.cachedir.directory import CacheDir, Census
from nearcache.nginx.config.read.key_template import template_of
from nearcache.nginx.keys.templates import check_template, key_bytes, key_for
from nearcache.nginx.purge.learn import ITSELF, Learned, Resolved, learn, resolve
from nearcache.report.words import plural

if TYPE_CHECKING:
    from nearcache.nginx.config.read.configuration import Configuration


class Targets:
    """Finds keys in one directory; remembers what it learned about it."""

    def __init__(
        self,
        directory: CacheDir,
        *,
        levels: tuple[int, ...] | None = None,
        templates: Sequence[str] = (),
        learned: Learned | None = None,
        not_told: Sequence[str] = (),
    ) -> None:
        """
        Args:
            not_told: why the configuration does not say how keys are made, though it was asked.
        """
        self.directory = directory
        self.not_told = not_told
        self.templates = [check_template(template) for template in templates]
        self._levels = levels
        if learned is not None:
            self.learned = learned

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """As given, else those by which entries lie there."""
        if self._levels is not None:
            return self._levels
        found = self.directory.levels()
        if found is None:
            raise NginxError(f"{self.directory.root} has no entries to learn levels from")
        return found

    @cached_property
    def learned(self) -> Learned:
        return learn(self.directory)

    @property
    def notes(self) -> list[str]:
        """What a user must know who named URLs, and gave a configuration."""
        if "learned" not in vars(self):  # nothing had to be
            return []
        return [
            f"{each}: learned from the entries instead. URLs are taken as written: spell them"
            " as keys do (`nearcache nginx inspect --keys`)"
            for each in self.not_told
        ]

    def of_url(self, url: str) -> list[Resolved]:
        """All keys that a URL may have; NginxError if that cannot be said."""
        if not self.templates:
            return self._of_learned(url)
        keys = {key_for(url, template): template for template in self.templates}
        return [Resolved(url, key, template, self._exists(key)) for key, template in keys.items()]

    def _of_learned(self, url: str) -> list[Resolved]:
        try:
            return resolve(url, self.directory, self.levels, self.learned)
        except NginxError as problem:
            if not self.not_told:
                raise
            raise NginxError(f"{'; '.join(self.not_told)}; and {problem}") from problem

    def of_word(self, word: str) -> list[Resolved]:
        """As :meth:`of_url`, but a word that is the key of an entry is that key."""
        key = key_bytes(word)
        if self._exists(key):
            return [Resolved(word, key, ITSELF, exists=True)]
        return self.of_url(word)

    def _exists(self, key: bytes) -> bool:
        return self.directory.has(key, self.levels)


def refuse_what_is_no_cache(directory: CacheDir) -> bool:
    """NginxError for a directory that holds files, and no entry among them.

    Returns False for one that is empty: nothing speaks against it.
    """
    census = Census()
    next(directory.walk(census), None)
    return holds_entries(directory, census)


def holds_entries(directory: CacheDir, census: Census) -> bool:
    """The same of what a walk has met already."""
    if census.entries:
        return True
    others = census.foreign.total()
    if others:
        reason = census.foreign.most_common(1)[0][0]
        raise NginxError(
            f"{directory.root} is no cache of nginx: {plural(others, 'file')}, none is an entry"
            f" ({reason})"
        )
    if census.unreadable:
        raise NginxError(
            f"{directory.root} may not be read below by this user; run this as that of nginx's"
            " workers, or as root"
        )
    return False


@dataclass(frozen=True)
class Configured:
    """What a configuration says about the keys of one cache."""

    levels: tuple[int, ...]
    templates: tuple[str, ...]
    """Of all its locations; empty if one of them keys by what a URL does not tell."""
    not_told: tuple[str, ...]
    """Of these locations: place and variable. Shapes of keys are then learned instead."""


def configured(configuration: Configuration, root: Path) -> Configured:
    """Levels and templates of keys of the cache in a directory, from the configuration."""
    wanted = os.path.realpath(root)
    cache = next((c for c in configuration.caches if os.path.realpath(c.path) == wanted), None)
    if cache is None:
        known = ", ".join(each.path for each in configuration.caches) or "no cache at all"
        raise NginxError(f"the configuration has no cache in {root}, only {known}")
    users = [each for each in configuration.cached if configuration.cache_of(each) == cache]
    if not users:
        raise NginxError(f"{cache.place}: no location uses the zone {cache.zone}")
    templates, not_told = dict[str, None](), []
    for location in users:
        try:
            templates[template_of(location)] = None
        except NginxError as problem:
            not_told.append(str(problem))
    # Some of them would leave an entry of another location where it is.
    return Configured(cache.levels, () if not_told else tuple(templates), tuple(not_told))
