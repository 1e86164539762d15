"""A script, run by a new interpreter: how long until the cache answers?

    python -P cold.py '<JSON: caches or module, key, started_ns, is_private, gets>'

Imports nothing of the lab, whose own imports would count; of a user's settings it takes the
cache and the databases, so their module is imported and their apps are not. It reads; it writes
in a cache of its own process alone. Prints JSON: nanoseconds since
``started_ns`` (CLOCK_MONOTONIC, which all processes share) and of single gets.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any


def main() -> None:
    python = time.monotonic_ns()
    order = json.loads(sys.argv[1])
    import django
    from django.conf import settings

    settings.configure(**(own_settings(order) if order["module"] else {"CACHES": order["caches"]}))
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


def own_settings(order: dict[str, Any]) -> dict[str, Any]:
    """The user's alias, as the worker has it; see nearcache.lab.own.alias.moved."""
    from django.conf import Settings

    theirs = vars(Settings(order["module"]))
    entry = dict(theirs["CACHES"][order["alias"]])
    if entry["BACKEND"].endswith(".RecordingCache"):
        entry = dict(entry["OPTIONS"]["of"])
    if order["shm_path"]:
        entry["LOCATION"] = order["shm_path"]
    return {
        "CACHES": {"default": entry},
        "DATABASES": theirs.get("DATABASES", {}),
        "SECRET_KEY": theirs.get("SECRET_KEY", ""),
    }


if __name__ == "__main__":
    main()
