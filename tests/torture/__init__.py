"""Processes are killed and frozen inside the store; nobody may notice.

``rig.py`` does it at random for as long as it is told to; the tests do it on purpose.
"""
