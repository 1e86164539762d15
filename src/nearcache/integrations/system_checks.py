"""``manage.py check``: opens each cache of ours, and tells now what would fail per request.

nearcache.E001   a cache cannot be used until a setting, a right or a server is changed
nearcache.W001   a server does not answer now
nearcache.W002   aliases of this project use one file, with different sizes or with the same keys
nearcache.W003   another project, or another site of this project, uses the same file
nearcache.W004   root has a cache of its own, which the site does not see
nearcache.E002   `nearcache.sessions` cannot work with these settings
nearcache.W005   `nearcache.sessions` is used without its middleware
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from nearcache.backends import SharedMemoryCache
from nearcache.django_cache.adapter import Configured
from nearcache.django_cache.placement import root
from nearcache.django_cache.placement.project import is_there, this_owner
from nearcache.engines import shm
from nearcache.errors import EngineError, EngineUnavailable, OptionError

PROBE = "nearcache-check"
ENGINE = "nearcache.sessions"


def check_caches(**_: Any) -> Sequence[checks.CheckMessage]:
    ours = {alias: caches[alias] for alias in settings.CACHES}
    found = {alias: cache for alias, cache in ours.items() if isinstance(cache, Configured)}
    faults = {alias: fault for alias, cache in found.items() if (fault := _fault(alias, cache))}
    sound = {alias: cache for alias, cache in found.items() if alias not in faults}
    return [*faults.values(), *_meetings(sound), *_roots_own(sound)]


def check_sessions(**_: Any) -> Sequence[checks.CheckMessage]:
    if settings.SESSION_ENGINE != ENGINE:
        return []
    from nearcache.sessions import SessionStore, session_options  # asks Django's apps for more

    alias = settings.SESSION_CACHE_ALIAS
    if alias not in settings.CACHES:
        problem = f"SESSION_CACHE_ALIAS is {alias!r}, which is none of CACHES"
        return [checks.Error(f"{ENGINE}: {problem}", id="nearcache.E002")]
    try:
        session_options()
        SessionStore()
    except (OptionError, ImproperlyConfigured) as error:
        return [checks.Error(f"{ENGINE}: {error}", id="nearcache.E002")]
    if any(map(_is_ours, settings.MIDDLEWARE)):
        return []
    return [
        checks.Warning(
            f"{ENGINE} without its middleware: an outage of the cache {alias!r} is answered 500",
            hint=f'put "{ENGINE}.SessionMiddleware" into MIDDLEWARE, instead of Django\'s',
            id="nearcache.W005",
        )
    ]


def _is_ours(name: str) -> bool:
    from nearcache.sessions import SessionMiddleware

    try:
        found = import_string(name)
    except ImportError:
        return False  # Django reports it
    return isinstance(found, type) and issubclass(found, SessionMiddleware)


def _fault(alias: str, cache: Any) -> checks.CheckMessage | None:
    """The error that a request would meet. The engine is asked, because it forgives nothing."""
    try:
        cache.engine.contains(cache._raw_key(PROBE, None))
    except EngineUnavailable as error:
        return checks.Warning(f"the cache {alias!r} does not answer: {error}", id="nearcache.W001")
    except EngineError as error:
        return checks.Error(f"the cache {alias!r} cannot be used: {error}", id="nearcache.E001")
    return None


def _meetings(sound: dict[str, Any]) -> Iterator[checks.CheckMessage]:
    files: dict[str, dict[str, SharedMemoryCache]] = defaultdict(dict)
    for alias, cache in _shared(sound):
        files[cache.path][alias] = cache
    for path, aliases in files.items():
        yield from _of_aliases(path, aliases)
        yield from _of_projects(path, " and ".join(map(repr, aliases)))


def _shared(sound: dict[str, Any]) -> Iterator[tuple[str, SharedMemoryCache]]:
    return (each for each in sound.items() if isinstance(each[1], SharedMemoryCache))


def _roots_own(sound: dict[str, Any]) -> Iterator[checks.CheckMessage]:
    own = {cache.path for _, cache in _shared(sound) if cache.is_of_user}
    said = [text for path in sorted(own) if (text := root.problem(path))]
    return (checks.Warning(text, id="nearcache.W004") for text in said[:1])


def _of_aliases(path: str, aliases: dict[str, SharedMemoryCache]) -> Iterator[checks.CheckMessage]:
    chosen = [each.options for each in aliases.values()]
    sizes = {(each.size_bytes, each.max_item_bytes, each.mean_item_bytes) for each in chosen}
    names = {(each.key_prefix, each.version) for each in aliases.values()}
    if len(sizes) > 1:
        problem = "with other sizes: the process that opens it first decides"
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
            hint="give it a LOCATION of its own; if that is over, remove "
            f"{path}{shm.OWNERS_SUFFIX}",
            id="nearcache.W003",
        )
