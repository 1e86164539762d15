"""The lab as a page: every hit times one read of one cache, and ``/summary`` shows them all.

    path("cachelab/", include("nearcache.web.urls"))    in a project's URLconf
    "nearcache.web"                                     in INSTALLED_APPS, for its checks
    nearcache lab serve                                 alone, without a project

    views.py     the routes of urls.py; apps.py and checks.py: what Django checks
    options.py   the setting NEARCACHE_WEB
    samples.py   where samples go: shared by all workers, and none of the caches under test
    buckets.py   a histogram as whole numbers, so that it can live in shared memory
    bench.py     one timed read, and by chance one write, of one alias
    finding.py   whether there is a winner
    summary.py   what the samples say; text.py, pages.py (pages/) and JSON show it; sizes.py: bytes
    access.py    who may come in
    serving.py   ``lab serve``: servers, workers and their end; standalone.py is their Django

It needs Django and nothing else. What a page says of a cache is true of these workers under
this load, queues and all: use it to see a site breathe, and ``nearcache lab run`` to compare
caches fairly.
"""

SETUP_VARIABLE = "NEARCACHE_WEB_SETUP"  # from serving.py to standalone.py
