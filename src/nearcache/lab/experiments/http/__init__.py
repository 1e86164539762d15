"""One endpoint behind web servers and caches.

plan.py        the question
arm.py         one arrangement of servers, and how it answers
findings.py    what only this experiment shows
"""
