"""Many contenders and few connections: the crowd itself runs in a child of the worker.

A visit opens the gate for as many contenders as its payload says, until a deadline.
Two things are counted of it: what the crowd got done (``get``) and how long each attempt
took from its contender's view (``wait``), failures and unfinished ones included.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from nearcache.lab.arms.child import Child
from nearcache.lab.arms.crowd_styles import MOST_THREADS
from nearcache.lab.base.arm import Arm
from nearcache.lab.base.messages import Phase, Setup, Visit, Visited
from nearcache.lab.results.histogram import GREATEST, new_hdr
from nearcache.lab.statistics.fairness import fairest, jain

CROWD = "nearcache.lab.arms.crowd"
# From here on contenders wait until they give up. All began to wait together, so a round
# must hold one such wave of failures, and begin when the first wave does.
CROWDED = 1000
# Fewer are served in time, and a part of the time shows it.
PART = 4
LEAD_S = 0.1
WARM_UP_CONTENDERS = 100


class PoolArm(Arm):
    """A crowd, and a connection of the lab's own that asks the server about it."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.crowd: Child | None = None
        self.server: Any = None

    def begin(self) -> Mapping[str, str]:
        import redis

        self.name = f"crowd-{os.getpid()}"
        path = self.setup.places["redis_socket"]
        self.server = redis.Redis(unix_socket_path=path)
        order = {
            **self.candidate.options,
            "path": path,
            "name": self.name,
            "server_pid": int(self.server.info("server")["process_id"]),
        }
        self.crowd = Child(CROWD, self.setup.cpu)
        proof: Mapping[str, str] = self.crowd.ask(order)["proof"]
        return {**proof, "server": self.setup.server_version}

    def visit(self, visit: Visit) -> Visited:
        assert self.crowd is not None
        contenders = int(visit.payload)
        crowded = contenders >= CROWDED
        lead_s = self.candidate.options["wait_s"] if crowded else LEAD_S
        measured_s = visit.phase_ns / 1e9 / (1 if crowded else PART)
        if visit.learning:  # pools fill and code warms up; nobody has to give up for that
            contenders = min(contenders, WARM_UP_CONTENDERS)
            lead_s = measured_s = LEAD_S
        question = {"contenders": contenders, "lead_s": lead_s, "measured_s": measured_s}
        found = self.crowd.ask(question)
        phases = phases_of(found, self._connections())
        return Visited(
            [phase for phase in phases if phase.operation in visit.operations],
            facts={} if visit.learning else shortfall(contenders, found["contenders"]),
        )

    def end(self) -> None:
        if self.crowd:
            self.crowd.end()

    def _connections(self) -> int:
        """How many the crowd has, as the server sees it."""
        return sum(client["name"] == self.name for client in self.server.client_list())


def phases_of(found: Mapping[str, Any], connections: int) -> list[Phase]:
    """Throughput and waits of one round, from what the crowd reports."""
    answered, failed, unfinished = found["counts"]
    get = Phase("get", calls=answered + failed + unfinished, hits=answered)
    get.outcomes = dict(found["errors"]) | ({"unfinished": unfinished} if unfinished else {})
    get.measures = measures_of(found, connections)
    if answered:
        # Nobody was answered: then there is no time per answer, and no point.
        get.histogram = encoded([(found["answered_ns"], answered)])
        get.point = found["elapsed_ns"] / answered
        get.parts = parts_of(found, answered)
    wait = Phase("wait", calls=get.calls)
    ends = (("answered_ns", answered), ("failed_ns", failed), ("unfinished_ns", unfinished))
    kinds = [(found[name], count) for name, count in ends]
    if any(count for _, count in kinds):
        wait.histogram, wait.point = encoded(kinds), middle(kinds)
    return [get, wait]


def measures_of(found: Mapping[str, Any], connections: int) -> dict[str, tuple[float, str]]:
    answers: Sequence[int] = found["answers"]
    answered, failed, _ = found["counts"]
    ended = answered + failed
    measures: dict[str, tuple[float, str]] = {
        "answered": (answered / ended if ended else 0.0, "share"),
        "contenders": (len(answers), "count"),
        "went without": (sum(not each for each in answers) / len(answers), "share"),
        "connections": (connections, "count"),
    }
    if found["never_ran"]:
        measures["never had a turn"] = (found["never_ran"], "count")
    if answered:
        measures["fairness"] = (jain(answers), "")
        measures["fairest possible"] = (fairest(answered, len(answers)), "")
        measures["client CPU"] = (found["cpu_share"] * found["elapsed_ns"] / answered, "ns")
    return measures


def parts_of(found: Mapping[str, Any], answered: int) -> dict[str, float]:
    """Wall time per answer: used by the crowd, by the server, by neither of them."""
    client, server = found["cpu_share"], found["server_cpu_share"]
    if server is None:
        return {}
    shares = {"client CPU": client, "server CPU": server, "neither": max(0, 1 - client - server)}
    return {name: share * found["elapsed_ns"] / answered for name, share in shares.items()}


def shortfall(wanted: int, present: int) -> dict[str, str]:
    """What is to be said of a crowd that was smaller than ordered."""
    if present == wanted:
        return {}
    if present == MOST_THREADS:
        why = "more wake each other up all the time, and nothing else is measured"
    else:
        why = "the machine starts no more"
    return {f"{wanted} contenders": f"{present} threads only: {why}"}


# Kinds of ends: every n-th of their times, and how many there were.
Kinds = Sequence[tuple[Sequence[int], int]]


def encoded(kinds: Kinds) -> str:
    """All of them in one histogram, as text."""
    text: bytes = histogram_of(kinds).encode()
    return text.decode()


def middle(kinds: Kinds) -> float:
    """The median of all of them."""
    return float(histogram_of(kinds).get_value_at_percentile(50))


def histogram_of(kinds: Kinds) -> Any:
    histogram = new_hdr()
    for kept, count in kinds:
        each, rest = divmod(count, max(1, len(kept)))
        for position, value in enumerate(kept):
            times = each + (position < rest)
            histogram.record_value(max(1, min(value, GREATEST)), times)
    return histogram
