"""Purge without a module: from a URL to the files of its entry, here and on other hosts.

purge.py       soft (expire in place) and hard (unlink), with a receipt.py, receipt_page.py
targets.py     whatever a user names; select.py: by a pattern
learn.py       from a URL to its key: templates.py
proof.py       nginx is asked afterwards
agent.py       a purge for other hosts; doorway.py: who comes, guard.py: who may, by signing.py
hosts.py       here and there alike
site_purge.py  the Django side: after the commit, on all hosts; purge_settings.py: its setting
"""
