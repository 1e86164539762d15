"""The rules of evidence: was it measured honestly, and how firm is it?

rules.py     the rules as a table: what breaks one that voids has no rank
evidence.py  what the sample shows; readings.py: what the comparisons show
findings.py  the words of a broken rule
firm.py      percentiles that may be quoted
"""
