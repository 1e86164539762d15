"""Connections that many callers share, and pools of connections for one caller each.

connect.py            redis-py makes connections; its errors become ours
sync_connection.py    one connection that carries all threads and greenlets of the process
connection_state.py   what the callers of it share; waiters.py: what they wait on
channel.py            its socket and its reader
async_connection.py   one connection that carries all tasks of a loop; async_wire.py: its bytes
event_loops.py        what belongs to an event loop, and ends with it
breaker.py            an outage costs a call microseconds, and not a timeout
pool.py               connections for blocking commands, transactions, Pub/Sub and ``client``
fair_semaphore.py     a bounded number of seats, first come first served
clients.py            redis-py's clients over these pools
"""
