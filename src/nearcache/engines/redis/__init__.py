"""Redis and Valkey as an engine: redis-py connects, nearcache speaks.

    target.py      where and how to connect: frozen
    location.py    LOCATION as a target; settings.py: options by redis-py's names
    connect.py     redis-py makes and repairs connections; its errors become ours
    resp.py        commands as bytes, replies as objects: hiredis, or Python alone
    line.py        one connection that carries all threads and greenlets of the process
    station.py     what its callers share; seats.py: where they wait; channel.py: its bytes
    aline.py       the same for the tasks of an event loop, and
    wire.py        one connection of it
    server.py      both lines to one server
    breaker.py     an outage costs microseconds, not a timeout per call
    topology.py    THE CONTRACT of what follows: which line takes a request
    standalone.py  one server, or a primary with replicas; sentinel.py: a primary that moves
    cluster.py     slots, MOVED, ASK
    refresh.py     asking where servers are: by one caller at a time, and not too often
    pool.py        connections for blocking commands, transactions, Pub/Sub and ``client``
    gate.py        a bounded number of seats, first come first served
    clients.py     redis-py's clients over these pools
    loops.py       what belongs to an event loop, and goes when it goes
    scripts.py     Lua, one registry line each
    engine.py      the contract of engines over a topology
    locks.py       named locks with a queue; lock_scripts.py: what a lock is on the server
    bells.py       wake-ups for those who wait
    claims.py      who computes a key
    faults.py      error replies and broken connections as our errors

Nothing here imports Django.
"""
