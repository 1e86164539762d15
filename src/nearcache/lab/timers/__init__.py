"""How long one operation takes, and where the time goes.

operations.py   the timed loops over an alias; timed.py: one of them, call by call
attribution.py  key, encode, wait, network, server, decode
link.py         the way to a server: its floor
traffic.py      bytes that went there and came back
stolen.py       what other guests of the host took, and what is done again for it
"""
