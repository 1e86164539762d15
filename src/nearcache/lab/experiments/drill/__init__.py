"""A backend, put through faults.

plan.py        the question
arm.py         break, ask, mend, look; patient.py: the process it happens to
findings.py    what only this experiment shows
"""
