"""Which cache backend answers fastest: any alias, so the arm is that of ``arms``.

plan.py        the question
findings.py    what only this experiment shows
"""
