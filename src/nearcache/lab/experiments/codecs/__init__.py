"""How values are written: serializers, compressors, parsers.

plan.py        the question
arm.py         an alias on Redis, with its stored bytes in sight
link_model.py  other networks than the one it was measured on
break_even.py  the map of them
findings.py    what only this experiment shows
"""
