"""A trial on a real site: real servers, real clients and real faults, and every answer is checked.

    project/      the site: sessions, cached pages and fragments, single flight, locks, async
    servers.py    what runs it: one entry per server
    versions.py   a second version of the code, which a site is upgraded to
    stores.py     where its caches are: a redis-server or a directory in memory, each its own
    faults.py     what is done to it: one entry per fault, and what it excuses
    scenarios.py  which of these meet: the registry
    clients.py    users who ask, and know what they must be told
    judge.py      what is excused when, and what is not
    trial.py      one scenario, from start to end

``python -m tests.site`` runs them for as long as it is told to; ``test_short.py`` runs a few. The
invariants:

    I1 foreign    no answer is another user's
    I2 wrong      no value is torn, older than what was confirmed, or back from the dead
    I3 overlap    one holder of a lock, one computation of a missing value; tokens grow
    I4 lost       nothing stored is lost and nobody is logged out, unless the store lost its data
    I5 recovery   after a fault the site is as before, within a bounded number of requests; no
                  request hangs
    I6 errors     an error is one of ours, or what the fault makes of the server
"""
