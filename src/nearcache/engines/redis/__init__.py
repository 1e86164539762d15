"""Redis and Valkey as an engine: redis-py connects, nearcache speaks.

    target/       where and how to connect
    protocol/     commands as bytes, replies as objects, scripts, errors
    contract.py   THE CONTRACT of lines and topologies: which server takes a request
    connection/   one connection that carries all callers, and pools for what cannot share one
    topology/     one server, a primary with replicas, Sentinel, Cluster
    locks/        named locks with a queue, wake-ups, claims
    engine.py     the contract of engines over a topology

Each of them imports only those above it. Nothing here imports Django.
"""
