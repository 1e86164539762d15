"""Who may do what, among all processes that share a store: locks, claims, single computations.

locks.py               a named lock over an engine
lock_attempts.py       one attempt to get it: asking, waiting in its queue, giving up
leases.py              what a holder has until its time is over
lock_renewal.py        threads that renew what this process holds
async_locks.py         a lock for async code only
claims.py              "I compute this", said to all processes
single_flight.py       of all who miss a key one computes
background_refresh.py  computing behind a request
"""
