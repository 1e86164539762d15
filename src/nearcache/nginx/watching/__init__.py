"""A log while it is written.

watch.py         what the last minutes were like; tail.py reads, fading.py and tally.py forget
watch_screen.py  drawn in a terminal
"""
