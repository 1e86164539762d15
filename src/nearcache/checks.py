"""``manage.py check``: each cache of ours is opened, and what would fail per request is said now.

nearcache.E001   a cache cannot be used until somebody changes something
nearcache.W001   a server does not answer now
nearcache.W002   aliases of this project meet in one file, with other sizes or the same keys
nearcache.W003   another project, or another site of this project, uses the same file
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.cache import caches

from nearcache.adapter import Configured
from nearcache.backends import SharedMemoryCache
from nearcache.engines import shm
from nearcache.errors import EngineError, EngineUnavailable
from nearcache.project import is_there, this_owner

PROBE = "nearcache-check"


def check_caches(**_: Any) -> Sequence[checks.CheckMessage]:
    ours = {alias: caches[alias] for alias in settings.CACHES}
    found = {alias: cache for alias, cache in ours.items() if isinstance(cache, Configured)}
    faults = {alias: fault for alias, cache in found.items() if (fault := _fault(alias, cache))}
    sound = {alias: cache for alias, cache in found.items() if alias not in faults}
    return [*faults.values(), *_meetings(sound)]


def _fault(alias: str, cache: Any) -> checks.CheckMessage | None:
    """What a request would meet; the engine is asked, which forgives nothing."""
    try:
        cache.engine.contains(cache._raw_key(PROBE, None))
    except EngineUnavailable as error:
        return checks.Warning(f"the cache {alias!r} does not answer: {error}", id="nearcache.W001")
    except EngineError as error:
        return checks.Error(f"the cache {alias!r} cannot be used: {error}", id="nearcache.E001")
    return None


def _meetings(sound: dict[str, Any]) -> Iterator[checks.CheckMessage]:
    files: dict[str, dict[str, SharedMemoryCache]] = defaultdict(dict)
    for alias, cache in sound.items():
        if isinstance(cache, SharedMemoryCache):
            files[cache.path][alias] = cache
    for path, aliases in files.items():
        yield from _of_aliases(path, aliases)
        yield from _of_projects(path, " and ".join(map(repr, aliases)))


def _of_aliases(path: str, aliases: dict[str, SharedMemoryCache]) -> Iterator[checks.CheckMessage]:
    chosen = [each.options for each in aliases.values()]
    sizes = {(each.size_bytes, each.max_item_bytes, each.mean_item_bytes) for each in chosen}
    names = {(each.key_prefix, each.version) for each in aliases.values()}
    if len(sizes) > 1:
        problem = "with other sizes: whoever opens it first decides"
    elif len(names) < len(aliases):
        problem = "with the same keys: a clear() of one empties the other"
    else:
        return
    yield checks.Warning(
        f"the caches {' and '.join(map(repr, aliases))} are one file, {path}, {problem}",
        hint="give each a LOCATION of its own; a name is enough",
        id="nearcache.W002",
    )


def _of_projects(path: str, aliases: str) -> Iterator[checks.CheckMessage]:
    own = this_owner()
    for owner in shm.owners(path):
        if owner == own or not is_there(owner.get("project", "")):
            continue
        another = owner["project"] != own["project"]
        who = owner["project"] if another else "another site of this project (other DATABASES)"
        yield checks.Warning(
            f"the cache {aliases} is used by {who} as well: {path}",
            hint="give it a LOCATION of its own; if that was once, remove "
            f"{path}{shm.OWNERS_SUFFIX}",
            id="nearcache.W003",
        )
