"""A run, from what a user asks for to a sample in a file. Nothing here judges.

laboratory.py    from a wanted to an order
driver.py        asks the workers in random order, collects, survives Ctrl-C
crew.py          the workers' processes
worker.py        one process per candidate: sets up, proves, measures on request
interleaving.py  the random order of a round; stopping.py: Ctrl-C and SIGTERM
run_file.py       samples and pages written to files
"""
