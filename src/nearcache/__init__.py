"""nearcache: find out which cache is fastest for your Django app, and run it.

What users import
    backends.py    what goes into ``CACHES``, with its options
    sessions.py    a session engine that logs nobody out while the cache is away
    memoize.py     ``@memoize``; locked.py: ``@locked``; errors.py: all that is raised
    nginx/         the doctor of nginx's cache; for sites: ``purge_url``, ``@cacheable``
    web/           the lab as a page; recording/: a site's calls, noted for the lab
    cli/           the command line; __main__.py starts it
    apps.py        for ``INSTALLED_APPS``; checks.py: each cache is tried

Django's contract
    adapter.py     over any engine; redis_cache.py over Redis; twins.py: ``a*`` over shared memory
    forgiving.py   ``on_error="miss"``; shm_forgiving.py: of a cache file that cannot be opened
    extras.py      what Django's API lacks; stampede.py: ``get_or_set``
    project.py     whose cache a name is; testrun.py, redis_apart.py: tests have caches apart;
                   rooted.py: so has root by sudo, which is said

Stores and values
    engine.py      THE CONTRACT of engines; engines/: shared memory, Redis, a dict for tests
    codec/         a header byte, a serializer, maybe a compressor
    _core          shared memory, the hot paths and the nginx log pass, in Rust (``crates/``)

Small parts, which know nothing of those above
    entry.py       an entry of ``CACHES``, checked whole
    options.py     options of all backends: redis_options.py, stampede_options.py; drop_in.py: what
                   Django and django-redis call them
    keys.py        keys of caches; callkeys.py: keys of calls
    living.py      directories that go with their process
    locks.py       named locks; bids.py: getting one; leases.py: having it; keeper.py: renewing it;
                   alocks.py: awaited
    flight.py      of all who miss one computes; claims.py: among processes; refresh.py: behind
                   a request
    threads.py     starting one, and which one runs
    flows.py       written once, run plain and awaited
    outage.py      what was forgiven, said once; metrics.py: counted
    process.py     what belongs to a process; clock.py: time from outside
    charts/        curves for pages that are one file

The lab
    lab/           measures caches; nothing but ``cli`` and ``web`` imports it

Importing this package imports neither Django nor a client library.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
