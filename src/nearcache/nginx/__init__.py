"""The nginx doctor: what an HTTP cache saves or costs, why it misses, and purge without a module.

    ondisk/        a cache directory: keys, ages, sizes, variants, what is in RAM
    purging/       soft and hard, by URL, key or pattern; the Django side; other hosts
    responses/     what a view says nginx may keep; middleware.py: in development, which line was
                   against it; apps.py: checks of the settings
    conf/          what a configuration says about caching
    lint/          what is wrong with it; generate/: one that is right
    sandbox.py     a private nginx with a scripted application, for proofs
    logs/          access logs as bytes, and their formats
    answers/       what a log tells: what the cache saves and costs, why it is missed
    whatif/        what other rules would bring
    watching/      a log while it is written
    text.py        findings as tables of text; html.py: as a page; units.py: nginx's times and sizes

Nothing here writes into a cache directory but ``purging``, and that only into entries
whose key and checksum were verified.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nearcache.nginx.purging.site_purge import (
        PurgeFailed,
        PurgeResult,
        apurge_url,
        apurge_urls,
        purge_stats,
        purge_url,
        purge_urls,
    )
    from nearcache.nginx.responses.cacheable_view import cacheable

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
        from nearcache.nginx.responses import cacheable_view

        return cacheable_view.cacheable
    if name in __all__:
        from nearcache.nginx.purging import site_purge

        return getattr(site_purge, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
