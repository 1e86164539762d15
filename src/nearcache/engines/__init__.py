"""Engines: bytes in, bytes out. None of them imports Django; a test says so.

contract.py   THE CONTRACT of engines: bytes under bytes keys, with deadlines
shm.py        shared memory: which file, of which size; the store is native
memory.py     a dict, for tests
redis/        Redis and Valkey
"""
