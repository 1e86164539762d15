"""What every room of the lab speaks: nouns and messages. Nothing here measures or judges.

model.py        candidate, operation, plan, experiment: frozen data
messages.py     what driver and workers say to each other
arm.py      who measures a candidate: the class that each arm is
prices.py       what the user pays
directories.py  where files are put, and on what kind of place
redact.py       without secrets
"""
