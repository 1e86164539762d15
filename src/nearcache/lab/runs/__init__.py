"""A run, from what a user asks for to a sample in a file. Nothing here judges.

laboratory.py    from a wish to an order; prices.py: what the user pays, kept with it
driver.py        asks the workers in random order, collects, survives Ctrl-C
crew.py          the workers' processes; messages.py: what is said to them
worker.py        one process per candidate: sets up, proves, measures on request
interleaving.py  the random order of a round; stopping.py: Ctrl-C and SIGTERM
stolen.py        what other guests of the host took, and what is done again for it
machine.py       what it ran on; redact.py: without secrets
keeping.py       samples and pages written to files; directories.py: in which
"""
