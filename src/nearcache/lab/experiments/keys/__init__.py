"""Hash functions over keys.

plan.py        the question
arm.py         one statement at a time
findings.py    what only this experiment shows
"""
