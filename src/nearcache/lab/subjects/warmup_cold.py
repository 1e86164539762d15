"""A script, run by a new interpreter: how long until the cache answers?

    python -P warmup_cold.py '<JSON: caches, database, key, started_ns, is_private, gets>'

Imports nothing of the lab, whose own imports would count. Prints JSON: nanoseconds since
``started_ns`` (CLOCK_MONOTONIC, which all processes share) and of single gets.
"""

from __future__ import annotations

import json
import sys
import time


def main() -> None:
    python = time.monotonic_ns()
    order = json.loads(sys.argv[1])
    import django
    from django.conf import settings

    settings.configure(CACHES=order["caches"], DATABASES=order["databases"], USE_TZ=True)
    django.setup()
    set_up = time.monotonic_ns()
    from django.core.cache import caches

    cache = caches["default"]
    made = time.monotonic_ns()
    first = cache.get(order["key"])
    answered = time.monotonic_ns()
    missed = cache.get(order["key"] + ":none")
    after_miss = time.monotonic_ns()
    if order["is_private"]:
        cache.set(order["key"], first_value := {"a new process": "begins empty"})
    else:
        first_value = first
    steady, wrong = [], 0
    for _ in range(order["gets"]):
        start = time.perf_counter_ns()
        value = cache.get(order["key"])
        steady.append(time.perf_counter_ns() - start)
        wrong += value != first_value
    found = {
        "python": python - order["started_ns"],
        "django": set_up - python,
        "backend": made - set_up,
        "first_get": answered - made,
        "first_miss": after_miss - answered,
        "steady": steady,
        "wrong": wrong + (missed is not None),
        "first": first,
    }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
