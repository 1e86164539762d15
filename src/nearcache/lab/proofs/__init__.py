"""Proof that a candidate is what its name says, and did what was asked.

proof.py      parser, pool, compressor, server: as the live objects have them
place.py      where it stores; seal_off.py: with a module absent
canary.py     does it keep a value; companion.py: for another process; brief.py: until when
stored.py     bytes of an item in the server; stored_form.py: what they are
"""
