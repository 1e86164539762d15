"""Purges on other hosts.

agent.py  a purge for who asks; doorway.py: who comes, guard.py: who may, by signing.py
hosts.py  here and there alike: this host's caches, and agents
"""
