"""A child that misbehaves as it is told: ``python -m tests.lab.odd_child``."""

from __future__ import annotations

import time

from nearcache.lab.arms.child_link import Link

link = Link()
while (question := link.hear()) is not None:
    print("a library that prints")
    if "die" in question:
        raise SystemExit("its last words")
    if "hang" in question:
        time.sleep(60)
    if "fail" in question:
        link.fail(ValueError("no such luck\nsecond line"))
    elif "miss" in question:
        link.miss("gevent does not import", "pip install gevent")
    else:
        link.say({"heard": question})
