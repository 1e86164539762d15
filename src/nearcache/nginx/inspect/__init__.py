"""What a cache directory holds.

inspection.py  counted on one walk (tally.py), and page.py in words
ram.py         how much of it is in RAM (pagecache.py)
bodies.py      what is stored several times, and the rule for keys that would mend it
"""
