"""What other parts of Django ask of caches.

system_checks.py   each cache is opened, and what would fail per request is said now
"""
