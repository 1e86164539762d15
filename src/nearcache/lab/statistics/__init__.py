"""Statistics, without a word about caches.

stats.py       ratios, intervals, the noise floor
bootstrap.py   over processes, then rounds; student.py: when there are few
steadiness.py  warm-up, change points, trends
fairness.py    how evenly answers went to those who asked
"""
