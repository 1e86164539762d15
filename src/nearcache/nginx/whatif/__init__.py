"""What other rules would bring: the log replayed through a model of nginx's cache.

forecast.py  the model's answers, beside its error on today's rules
rules.py     rules, as a user gives them
curves.py    points between and beyond them
origin.py    how much of what is served would be outdated
page.py      in words and charts
traces.py    what is replayed: a log of some format
keyshapes.py what keys are made of, learned where nobody says it
"""
