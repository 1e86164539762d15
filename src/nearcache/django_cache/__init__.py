"""Django's cache contract, and what it lacks, over any engine and codec.

adapter.py             the contract over any engine
async_methods.py       ``a*`` methods of backends whose own methods are native
extra_methods.py       what Django's API lacks, written once for every backend
get_or_set.py          one caller computes, nobody need miss; get_or_set_options.py: how
memoize.py             ``@memoize``; locked.py: ``@locked``
settings_entry.py      an entry of ``CACHES``, checked whole
degraded.py            ``on_error="miss"``; shm_degraded.py: of a file that cannot be opened
placement/             where a cache is if nobody says it: project, test run, root
redis/                 the contract over Redis, which speaks for itself
"""
