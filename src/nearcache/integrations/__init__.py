"""What other parts of Django ask of caches.

system_checks.py   Django's system checks: open each cache, and tell what would fail per request
"""
