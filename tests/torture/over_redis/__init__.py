"""Torture of RedisCache: workers are killed and forked, the server is frozen and replaced.

plan      who takes part, on which server; what is claimed of which key
work      what an owner of keys does, and judges
worker    the processes: threads, greenlets, tasks, and one that forks without Python's hooks
rig       the killer, and the server's troubles
"""
