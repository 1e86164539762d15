"""S3 beside caches, for a small object.

plan.py        the question
arm.py         set, get, delete; boxes.py: the clients
distance.py    a server that seems further away
findings.py    what only this experiment shows
"""
