"""Why requests were not served from the cache.

misses.py  the reasons, and what would buy most (gains.py), and page.py in words
"""
