"""The nginx doctor: what an HTTP cache saves or costs, why it misses, and purge without a module.

A cache directory
    layout.py      the header that nginx writes before each cached response, by version and ABI
    cachefile.py   one file of a cache directory, read and never guessed; heads.py: its head
    keys.py        from a key to its path, and from request headers to a variant (varying.py)
    cachedir.py    the directory: a walk that survives nginx working in it
    inspection.py  what a directory holds, and inspection_page.py in words; ram.py (pagecache.py):
                   how much of it is in RAM; bodies.py: what is stored several times, and the rule
                   for keys (spelling.py) that would mend it

Purge
    purge.py       soft (expire in place) and hard (unlink), with a receipt.py, receipt_page.py
    learn.py       from a URL to its key: templates.py; targets.py: whatever a user names;
                   select.py: by a pattern; proof.py: nginx is asked afterwards
    agent.py       a purge for other hosts, with signing.py; hosts.py: here and there alike
    site_purge.py  the Django side: after the commit, on all hosts; purge_settings.py: its setting;
                   apps.py: its check

What a view says
    cacheable_view.py  a view says what nginx may keep: arguments.py is its key, personal.py what
                   is never shared; middleware.py: in development, which line was against it, by
                   witness.py and hooks.py

Configuration
    configuration.py  what a configuration says about caching: directives.py is its tree,
                   locations.py its inheritance
    lint/          what is wrong with it; generate/: one that is right
    sandbox.py     a private nginx with a scripted application, for proofs

Logs
    logs.py        access logs as bytes: unpack.py, follow.py; formats.py: how to read them;
                   alike.py: which are read together; urlshape.py: URLs in groups
    ledger.py      what a cache saves (savings.py) and costs, ledger_page.py in words; misses.py:
                   why it is missed; queries.py: lengths; site.py: what a configuration says of it
    watch.py       a log while it is written: tail.py reads it, fading.py and tally.py forget, and
                   watch_screen.py draws it
    whatif.py      what other rules would bring, whatif_page.py in words; whatif_rules.py: rules,
                   whatif_curves.py: points, whatif_origin.py: how much of it would be outdated

    text.py        findings as tables of text; html.py: as a page; units.py: nginx's times and sizes

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
