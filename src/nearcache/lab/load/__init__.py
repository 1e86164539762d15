"""Who asks, and when: calls that are due, whatever became of those before.

open_loop.py    when each call should begin, and what became of it
fixed_rate.py   reads at a fixed rate, over an alias
http_client.py  a client of web servers for fixed rates
wrk.py          wrk, for as much as there can be
"""
