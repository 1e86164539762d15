"""What is said to a server, and what it says.

resp.py      commands as bytes, replies as objects: hiredis, or Python alone
scripts.py   Lua, one registry line each
faults.py    error replies and broken connections as our errors
"""
