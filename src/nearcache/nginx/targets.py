"""From what a user names to the keys to purge: a key as it is, or a URL through its shape.

Where the shape of keys comes from, best first: said by the user, read from the configuration,
learned from the directory.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from nearcache.errors import NginxError
from nearcache.nginx.cachedir import CacheDir, Census
from nearcache.nginx.learn import Learned, Resolved, learn, resolve
from nearcache.nginx.templates import check_template, key_for, template_of
from nearcache.nginx.text import plural

if TYPE_CHECKING:
    from nearcache.nginx.configuration import Configuration


class Targets:
    """Finds keys in one directory; remembers what it learned about it."""

    def __init__(
        self,
        directory: CacheDir,
        *,
        levels: tuple[int, ...] | None = None,
        templates: Sequence[str] = (),
        learned: Learned | None = None,
    ) -> None:
        self.directory = directory
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

    def of_url(self, url: str) -> list[Resolved]:
        """All keys that a URL may have; NginxError if that cannot be said."""
        if not self.templates:
            return resolve(url, self.directory, self.levels, self.learned)
        keys = {key_for(url, template): template for template in self.templates}
        return [Resolved(url, key, template, self._exists(key)) for key, template in keys.items()]

    def of_word(self, word: str) -> list[Resolved]:
        """As :meth:`of_url`, but a word that is the key of an entry is that key."""
        key = word.encode("utf-8", "surrogateescape")
        if self._exists(key):
            return [Resolved(word, key, "the key itself", exists=True)]
        return self.of_url(word)

    def _exists(self, key: bytes) -> bool:
        return self.directory.find(key, self.levels) is not None


def refuse_what_is_no_cache(directory: CacheDir) -> bool:
    """NginxError for a directory that holds files, and no entry among them.

    Returns False for one that is empty: nothing speaks against it.
    """
    census = Census()
    if next(directory.walk(census), None):
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


def configured(configuration: Configuration, root: Path) -> tuple[tuple[int, ...], list[str]]:
    """(levels, templates of keys) of the cache in a directory, from the configuration."""
    wanted = os.path.realpath(root)
    cache = next((c for c in configuration.caches if os.path.realpath(c.path) == wanted), None)
    if cache is None:
        known = ", ".join(each.path for each in configuration.caches) or "no cache at all"
        raise NginxError(f"the configuration has no cache in {root}, only {known}")
    users = [each for each in configuration.cached if configuration.cache_of(each) == cache]
    if not users:
        raise NginxError(f"{cache.place}: no location uses the zone {cache.zone}")
    return cache.levels, list(dict.fromkeys(template_of(location) for location in users))
