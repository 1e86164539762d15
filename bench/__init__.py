"""Speed, memory and hit ratio, as ratios against named peers: ``make bench``.

    measure.py    interleaved rounds of two callables; the ratio with its interval
    peers.py      the caches under comparison and their values
    rows.py       every row of the table: operation, peer, what the project promises
    over_redis.py the rows against Redis and Memcached, on the core of the servers
    crowds.py     thousands of greenlets, tasks, threads; a contended lock (crowd.py: one of them)
    processes.py  rows that need several processes
    space.py      bytes per item
    page.py       all of it as docs/benchmarks.md
    nginx_doctor.py  the rows of the nginx doctor; nginx_input.py: logs and directories for them,
                  nginx_page.py: docs/benchmarks-nginx.md
    nginx_agent.py   its agent, with a million files and in a crowd

All rows but those of ``processes.py`` run in one process pinned to one core. No row
is a test: a busy machine must not fail a build.
"""
