"""A load that two nginx can be given alike: who asks for what, and when, from a seed."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from http.client import HTTPConnection

Plan = Sequence[tuple[float, str]]  # (seconds after the begin, target)
CONNECTIONS = 16  # some wait at a lock while others send
LATE_S = 0.05


def zipf(requests: int, keys: int, seconds: float, exponent: float = 0.9, seed: int = 1) -> Plan:
    """Targets by Zipf's law, moments by Poisson's."""
    chance = random.Random(seed)
    weights = [1 / rank**exponent for rank in range(1, keys + 1)]
    picks = chance.choices(range(keys), weights, k=requests)
    moments = sorted(chance.uniform(0, seconds) for _ in range(requests))
    return [(at, f"/page/{key}?n={key % 7}") for at, key in zip(moments, picks, strict=True)]


def send(port: int, plan: Plan) -> float:
    """Sends all of it; the share of requests that were sent too late to be the same load."""
    # On the second: nginx counts lifetimes in whole ones; half a second later is another load.
    begin = time.monotonic() + 1.1 - (time.time() + 0.1) % 1
    late = [0] * CONNECTIONS
    threads = [
        threading.Thread(target=_send, args=(port, plan[each::CONNECTIONS], begin, late, each))
        for each in range(CONNECTIONS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(late) / len(plan)


def _send(port: int, plan: Plan, begin: float, late: list[int], place: int) -> None:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    for at, target in plan:
        left = begin + at - time.monotonic()
        if left > 0:
            time.sleep(left)
        late[place] += left < -LATE_S
        connection.request("GET", target)
        connection.getresponse().read()
    connection.close()
