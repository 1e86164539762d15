"""A log while it is written.

watch.py   what the last minutes were like; tail.py reads, fading.py forgets
screen.py  drawn in a terminal
"""
