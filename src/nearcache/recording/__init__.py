"""What a site's cache is asked, recorded in production to be measured again elsewhere.

    trace.py      the file: records of calls in blocks; written and read here, drawn there
    recorder.py   this process's part of it: who is sampled, the buffer, the bounds
    cache.py      the backend that wraps another and notes its calls: calls.py is one of them
    options.py    what it is told in ``CACHES``

It is no part of the lab, which reads the files: it runs in production, beside a site's own
caches, and needs nothing that the lab needs. What it notes are sizes, times and keyed hashes;
never a key and never a value.
"""

from __future__ import annotations
