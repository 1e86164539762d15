"""What a client says to a server, and what the server replies.

resp.py      commands as bytes, replies as objects: by hiredis, or by Python alone
scripts.py   Lua, one registry line each
faults.py    error replies and broken connections as our errors
"""
