"""Which server takes a request.

server.py            one server: a line for threads and a line for event loops
standalone.py        one server, or a primary with replicas
sentinel.py          a primary that moves
cluster.py           slots, MOVED, ASK
topology_refresh.py  asking where servers are: one caller at a time, and not too often
"""
