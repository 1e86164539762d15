"""Many small values in Redis, as keys or in hashes.

plan.py        the question
arm.py         loads, weighs, reads; rules.py: when a hash changes its encoding
findings.py    what only this experiment shows
"""
