"""The rules of evidence, and the statistics they rest on.

rules.py       the rules as a table: what breaks one that voids has no rank
evidence.py    what the sample shows; readings.py: what the comparisons show
findings.py    the words of a broken rule; unmeasured.py: what was ordered in vain
stats.py       ratios, intervals, the noise floor; knows nothing of caches
bootstrap.py   over processes, then rounds; student.py: when there are few
fairness.py    how evenly answers went to those who asked
steadiness.py  warm-up, change points, trends; firm.py: percentiles that may be quoted
"""
