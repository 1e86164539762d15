"""nearcache: find out which cache is fastest for your Django app, and run it.

What users import; all else may move
    backends.py      what goes into ``CACHES``, with its options
    sessions.py      a session engine that logs nobody out while the cache is away
    memoize.py       ``@memoize``; locked.py: ``@locked``; errors.py: all that is raised
    nginx/           the doctor of nginx's cache; for sites: ``purge_url``, ``@cacheable``
    web/             the lab as a page; recording/: a site's calls, noted for the lab
    cli/             the command line; __main__.py starts it
    apps.py          for ``INSTALLED_APPS``

Rooms of the caches, each of which imports only those below it
    integrations/    what other parts of Django ask of caches: system checks
    django_cache/    Django's contract and what it lacks, over any engine and over Redis
    engines/         bytes under bytes keys: shared memory, Redis, a dict for tests
    codec/           a header byte, a serializer, maybe a compressor
    coordination/    among processes: locks, their renewal, one computation of many
    base/            keys, options, time, what belongs to a process
    _core            shared memory, the hot paths and the nginx log pass, in Rust (``crates/``)

Measuring
    lab/             measures caches; nothing but ``cli`` and ``web`` imports it
    report/          how the findings of both doctor and lab are shown

docs/architecture.md has the life of a ``get`` and of a ``set`` through these rooms.
Importing this package imports neither Django nor a client library.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nearcache.django_cache.locked import locked
    from nearcache.django_cache.memoize import memoize

__all__ = ["__version__", "locked", "memoize"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """The decorators are loaded when they are asked for: they import Django."""
    if name in ("locked", "memoize"):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
