"""New processes, empty caches, restarts under traffic.

plan.py        the question
arm.py         an alias from the beginning; cold.py: in a new interpreter
refill.py      a site that begins with an empty cache
memory.py      what it takes in all processes
findings.py    what only this experiment shows
"""
