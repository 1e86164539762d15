"""What was measured, kept: one JSON file a run, and everything needed to read it again.

sample.py        one run (sample.schema.json: its schema); histogram.py: what is inside, packed
distribution.py  the same for a chart
machine.py       what it was measured on
files.py         many of them, packed or not; merging.py: several as one
"""
