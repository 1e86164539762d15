"""Locks: alone, in a crowd, after a crash.

plan.py        the question
arm.py         what is measured; lockers.py: the locks, one class each
tasks.py       what the processes around a lock do
rules.py       what a lock does beside being fast
findings.py    what only this experiment shows
"""
