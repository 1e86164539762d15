"""Connections that many callers share, and pools of those that they cannot.

connect.py            redis-py makes connections; their errors become ours
sync_connection.py    one connection that carries all threads and greenlets of the process
connection_state.py   what its callers share; waiters.py: where they wait
channel.py            its bytes
async_connection.py   the same for the tasks of an event loop; async_wire.py: one connection
event_loops.py        what belongs to an event loop, and goes when it goes
breaker.py            an outage costs microseconds, not a timeout per call
pool.py               connections for blocking commands, transactions, Pub/Sub and ``client``
fair_semaphore.py     a bounded number of seats, first come first served
clients.py            redis-py's clients over these pools
"""
