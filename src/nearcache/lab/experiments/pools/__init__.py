"""Connection pools, and the queues inside them.

plan.py        the question
arm.py         a crowd in a child of the worker
findings.py    what only this experiment shows
"""
