"""What other parts of Django ask of caches.

system_checks.py   `manage.py check`: opens each cache, and tells what would fail per request
"""
