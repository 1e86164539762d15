"""Named locks over Redis, and claims.

locks.py         a lock with a queue; lock_scripts.py: what a lock is on the server
wake_ups.py      wake-ups for callers that wait
claims.py        who computes a key
"""
