"""How long one operation takes, and where the time goes.

operations.py   the timed loops over an alias; timed.py: one of them, call by call
open_loop.py    calls when they are due; fixed_rate.py: what came of it
attribution.py  key, encode, wait, network, server, decode
link.py         the way to a server: its floor; wire.py: bare sockets
traffic.py      bytes that went there and came back
"""
