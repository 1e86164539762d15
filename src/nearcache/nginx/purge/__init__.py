"""Purge without a module: from a URL to the files of its entry, on this host.

purge.py    soft (expire in place) and hard (unlink), with a receipt.py, and page.py in words
targets.py  whatever a user names
learn.py    from a URL to its key, by the keys that are there
proof.py    nginx is asked afterwards
"""
