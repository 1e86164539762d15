"""The nginx doctor: what an HTTP cache saves or costs, why it misses, and purge without a module.

    logs/          access logs as bytes, and their formats
    cachedir/      a cache directory: files, heads, variants; keys/: cache keys as text
    config/        a configuration: read, judged, written, and proven on a private nginx
    report/        what the cache saves and costs
    misses/        why it is missed
    whatif/        what other rules would bring
    watch/         a log while it is written
    inspect/       what a directory holds, and what of it is in RAM
    purge/         soft and hard, by URL, key or pattern; agent/: on other hosts
    django/        what a view says nginx may keep, and purges after the commit
    pages/         how all of that is shown as HTML
    middleware.py  in development, which line was against it; apps.py: checks of the settings

Nothing here writes into a cache directory but ``purge/``, and that only into entries
whose key and checksum were verified.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nearcache.nginx.django.decorators import cacheable
    from nearcache.nginx.django.site_purge import (
        PurgeFailed,
        PurgeResult,
        apurge_url,
        apurge_urls,
        purge_stats,
        purge_url,
        purge_urls,
    )

__all__ = [
    "PurgeFailed",
    "PurgeResult",
    "apurge_url",
    "apurge_urls",
    "cacheable",
    "purge_stats",
    "purge_url",
    "purge_urls",
]


def __getattr__(name: str) -> Any:
    # Lazily: the command line reads logs without Django's settings.
    if name == "cacheable":
        from nearcache.nginx.django import decorators

        return decorators.cacheable
    if name in __all__:
        from nearcache.nginx.django import site_purge

        return getattr(site_purge, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
