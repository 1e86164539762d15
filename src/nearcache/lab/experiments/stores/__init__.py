"""JSON kept in Redis, in PostgreSQL, or in both.

plan.py        the question
arm.py         written, read back, checked; contract.py: what is asked of a store
redis.py       stores in Redis; postgres.py: in PostgreSQL; both.py: two at once
findings.py    what only this experiment shows
"""
