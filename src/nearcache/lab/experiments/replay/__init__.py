"""The user's recorded calls, played again.

plan.py        the question
arm.py         calls in their order, answers checked
findings.py    what only this experiment shows
"""
