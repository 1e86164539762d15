"""The nginx doctor: what an HTTP cache saves or costs, why it misses, and purge without a module.

    layout.py      the header that nginx writes before each cached response, by version and ABI
    cachefile.py   one file of a cache directory, read and never guessed; heads.py: its head
    keys.py        from a key to its path, and from request headers to a variant
    cachedir.py    the directory: a walk that survives nginx working in it
    inspection.py  what a directory holds; ram.py: how much of it is in RAM; bodies.py: what
                   is stored several times, and the rule for keys that would mend it
    purge.py       soft (expire in place) and hard (unlink), with a receipt
    learn.py       from a URL to its key; targets.py: whatever a user names
    agent.py       a purge for other hosts; hosts.py: here and there alike
    site_purge.py  the Django side: after the commit, on all hosts; apps.py: its check
    cacheable_view.py  a view says what nginx may keep: arguments.py is its key, personal.py what
                   is never shared; middleware.py: in development, which line was against it
    configuration.py  what a configuration says about caching: directives.py is its tree,
                   locations.py its inheritance
    logs.py        access logs as bytes: unpack.py, follow.py; formats.py: how to read them
    ledger.py      what a cache saves (savings.py) and costs; misses.py: why it is missed;
                   queries.py: lengths; site.py: what a configuration says about a log
    watch.py       a log while it is written: tail.py reads it, fading.py forgets, and
                   watch_screen.py draws it
    whatif.py      what other rules would bring; whatif_rules.py: rules, whatif_curves.py: points
    text.py        findings as tables of text; html.py: as a page
    lint/          what is wrong with it; generate/: one that is right
    sandbox.py     a private nginx with a scripted application, for proofs

Nothing here writes into a cache directory but ``purge``, and that only into entries
whose key and checksum were verified.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nearcache.nginx.cacheable_view import cacheable
    from nearcache.nginx.site_purge import (
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
        from nearcache.nginx import cacheable_view

        return cacheable_view.cacheable
    if name in __all__:
        from nearcache.nginx import site_purge

        return getattr(site_purge, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
