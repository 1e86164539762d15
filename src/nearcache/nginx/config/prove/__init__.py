"""Does nginx do what the configuration promises? Seen, not read.

sandbox.py  a private nginx with a scripted application
script.py   an application that does what is to be proven
proof.py    both together, and a table of what was seen
"""
