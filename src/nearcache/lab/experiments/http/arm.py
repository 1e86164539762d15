"""One arrangement of web servers around one endpoint, and how it answers.

Each candidate has processes of its own: the application, and nginx in front of it. They
share one core (as one small host would), and the generator has another; where there is only
one, the proof says "shared cores". Their databases, sockets and caches are in the candidate's
directory, which is on tmpfs.

What is asked is drawn from the songs by popularity (Zipf), or is one song as in the article, or
is for every other request a URL that nobody has asked before. Everything is warm before the
first recorded visit: all songs were asked for while the treatment was proven.
"""

from __future__ import annotations

import json
import os
import random
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from nearcache.lab.base.arm import Arm
from nearcache.lab.base.messages import Phase, Setup, Visit, Visited
from nearcache.lab.endpoint.songs import SONGS, Songs
from nearcache.lab.load.http_client import (
    Answer,
    BadAnswer,
    Connections,
    be_punctual,
    closed_loop,
    open_loop,
    request,
)
from nearcache.lab.load.open_loop import NS, OpenLoop, arrivals
from nearcache.lab.load.wrk import Wrk, find_wrk
from nearcache.lab.proofs.proof import TreatmentNotApplied
from nearcache.lab.servers.web import Site, children_of, start_site

CAPACITY = "requests_per_s"
LEAST_CAPACITY_NS = 200_000_000  # shorter, and the slowest arm would answer a few dozen times
CLIENTS = 8  # of the closed loop: twice the threads that could serve them
CROWD = 16  # who ask for the same at once
WORK_MS = 30  # what one answer takes them then
COLD_REQUESTS, EXPIRING = 15, 8
TTL_PASSED_S = 2.2  # nginx counts in whole seconds
TOLERANCE_NS = 500_000
LEAST_HITS = 0.99  # of requests for what is warm
DRAWN = 4096  # requests that are drawn beforehand, and repeated
ONE_SONG = 7


class HttpArm(Arm):
    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.options = setup.candidate.options
        self.songs = Songs(setup.seed)
        self.bodies = [self.songs.body(song_id) for song_id in range(SONGS)]
        self.cpus = _cores(setup.cpu)
        self.wrk: Wrk | None = None
        self.servers: Any = None
        self.expiring: list[str] = []
        self.expire_at = 0.0

    def begin(self) -> Mapping[str, str]:
        served = self.cpus[0] if self.cpus else None
        cache = self.candidate.settings or None
        self.site, self.servers = start_site(
            self.setup, self.options["server"], self.options["front"], cache, served
        )
        self.connections = Connections(self.site.port)
        if self.cpus:
            os.sched_setaffinity(0, {self.cpus[1]})
        be_punctual()
        binary = find_wrk()
        if binary:
            generator = self.cpus[1] if self.cpus else None
            self.wrk = Wrk(binary, Path(self.setup.directory), self.site.port, generator)
        state = self._state()
        self._prove_answers()
        return self._proof(state)

    def visit(self, visit: Visit) -> Visited:
        measured = {
            "capacity": self._capacity,
            "cold": self._cold,
            "expired": self._expired,
            "stampede": self._stampede,
        }
        # Servers close what was idle since the last visit; that is not what is to be seen.
        self.connections.close()
        phases = []
        learned: dict[str, float] = {}
        for operation in self._asked(visit):
            if operation in measured:
                phase = measured[operation](visit)
            elif visit.learning or visit.payload == "single":
                continue  # one song or many: at a rate that Django can serve it is the same
            else:
                phase = self._at_rate(operation, visit)
            phases.append(phase)
            if operation == "capacity" and phase.point:
                learned[CAPACITY] = NS / phase.point
        visited = Visited(phases, learned=learned, facts=self._facts())
        if self.site.cache_directory and visit.learning:
            visited.stored_bytes, visited.stored_how = _file_bytes(self.site.cache_directory)
        return visited

    def _asked(self, visit: Visit) -> Sequence[str]:
        """The operations of a visit; the first one also learns what rates are shares of."""
        if visit.learning and "capacity" not in visit.operations:
            return ["capacity", *visit.operations]
        return visit.operations

    def end(self) -> None:
        if self.servers is not None:
            self.connections.close()
            self.servers.stop()

    # -- what is asked ---------------------------------------------------------------------------

    def _drawn(self, visit: Visit) -> list[int]:
        """Songs in the order in which they are asked for; the same for all candidates."""
        if visit.payload == "single":
            return [ONE_SONG] * DRAWN
        rng = random.Random(f"{self.setup.seed}:{visit.draw}")
        shares = list(accumulate(1 / rank for rank in range(1, SONGS + 1)))
        return rng.choices(range(SONGS), cum_weights=shares, k=DRAWN)

    def _paths(self, songs: Sequence[int], visit: Visit, purpose: str) -> list[str]:
        """With the payload "tail" every other one is new, to this round and to this purpose."""
        if visit.payload != "tail":
            return [_path(song) for song in songs]
        fresh = f"{visit.round_id}-{purpose}-"
        return [
            _path(song) if n % 2 else f"{_path(song)}?v={fresh}{n}" for n, song in enumerate(songs)
        ]

    def _judge(self, songs: Sequence[int], seen: dict[str, int]) -> Callable[[int, Answer], None]:
        """Every answer must be the one of its URL; who gave it is counted."""

        def judge(number: int, answer: Answer) -> None:
            who = self._checked(songs[number % len(songs)], answer)
            seen[who] = seen.get(who, 0) + 1

        return judge

    def _checked(self, song_id: int, answer: Answer) -> str:
        """Who gave this answer. Raises BadAnswer if it is not that of the song."""
        if answer.status != 200:
            raise BadAnswer(f"status {answer.status} for song {song_id}: {answer.body[:80]!r}")
        if answer.body != self.bodies[song_id]:
            raise BadAnswer(f"another body than that of song {song_id}: {answer.body[:80]!r}")
        if answer.header(b"X-Cache-Status") == "HIT":
            return "nginx"  # first: what nginx kept says what Django said then
        return "Django's cache" if answer.header(b"X-App-Cache") == "hit" else "the view"

    # -- what is measured ------------------------------------------------------------------------

    def _capacity(self, visit: Visit) -> Phase:
        songs = self._drawn(visit)
        seen: dict[str, int] = {}
        phase_ns = max(visit.phase_ns, LEAST_CAPACITY_NS)
        if self.wrk:
            fresh = f"{visit.round_id.replace(':', '-')}-c-" if visit.payload == "tail" else ""
            drive = self.wrk.drive(
                [_path(song) for song in songs], self.bodies, CLIENTS, phase_ns, fresh
            )
            answers, wall_ns, busy = drive.answers, drive.wall_ns, drive.generator_cpu
            hits = drive.hits
        else:
            messages = [request(path) for path in self._paths(songs, visit, "c")]
            answers, wall_ns, busy = closed_loop(
                self.connections, CLIENTS, lambda n: messages[n % DRAWN],
                self._judge(songs, seen), phase_ns,
            )  # fmt: skip
            hits = answers - seen.get("the view", 0)
        if not answers:
            raise BadAnswer("nothing was answered in the whole phase")
        phase = Phase("capacity", point=wall_ns / answers, calls=answers, hits=answers)
        phase.measures = {
            "hit share": (self._expected_hits(hits, answers, visit), "share"),
            "generator_cpu": (busy, "share"),
        }
        return phase

    def _at_rate(self, operation: str, visit: Visit) -> Phase:
        rate = visit.lowest[CAPACITY] * int(operation.removeprefix("at_")) / 100
        songs = self._drawn(visit)
        paths = self._paths(songs, visit, operation)
        seconds = visit.phase_ns / NS
        rng = random.Random(f"{self.setup.seed}:{visit.draw}:{operation}")
        due = arrivals(rate, seconds, rng)
        load = OpenLoop(rate, TOLERANCE_NS)
        seen: dict[str, int] = {}
        messages = [request(paths[n % DRAWN]) for n in range(len(due))]
        self.connections.ensure(CLIENTS)
        busy = open_loop(
            self.connections, load, due, messages, self._judge(songs, seen),
            give_up_ns=2 * visit.phase_ns,
        )  # fmt: skip
        phase = Phase(operation, samples=load.response_ns, calls=load.begun, hits=load.begun)
        phase.measures = load.measures(busy)
        if load.begun:  # at a low rate none may be due in a short phase
            hits = load.begun - seen.get("the view", 0)
            phase.measures["hit share"] = (self._expected_hits(hits, load.begun, visit), "share")
        return phase

    def _cold(self, visit: Visit) -> Phase:
        """URLs that nobody has asked before, one after the other."""
        paths = [f"{_path(n)}?v={visit.round_id}-cold-{n}" for n in range(COLD_REQUESTS)]
        samples, seen = self._one_by_one(paths, range(COLD_REQUESTS))
        if seen != {"the view": len(samples)}:
            raise TreatmentNotApplied(f"what was never asked before was answered by {seen}")
        return Phase("cold", samples=samples, calls=len(samples), hits=len(samples))

    def _expired(self, visit: Visit) -> Phase:
        """URLs whose time is over, one after the other: those that the last visit has asked for."""
        ids = range(EXPIRING)
        samples: array[int] = array("Q")
        if self.expiring:
            time.sleep(max(0.0, self.expire_at - time.monotonic()))
            samples, seen = self._one_by_one(self.expiring, ids)
            if seen != {"the view": len(samples)}:
                raise TreatmentNotApplied(f"what has expired was answered by {seen}")
        self.expiring = [f"{_path(n)}?ttl=1&v={visit.round_id}-{n}" for n in ids]
        self._one_by_one(self.expiring, ids)
        self.expire_at = time.monotonic() + TTL_PASSED_S
        return Phase("expired", samples=samples, calls=len(samples), hits=len(samples))

    def _stampede(self, visit: Visit) -> Phase:
        """A crowd asks for one new URL at once: how often was it computed?"""
        message = request(f"{_path(ONE_SONG)}?work={WORK_MS}&v={visit.round_id}-crowd")
        before = self._state()["computed"]
        self.connections.ensure(CROWD)
        began_ns = time.perf_counter_ns()
        answers = self.connections.get_all([message] * CROWD)
        took_ns = time.perf_counter_ns() - began_ns
        for answer in answers:
            self._checked(ONE_SONG, answer)
        computed = self._state()["computed"] - before
        phase = Phase("stampede", samples=array("Q", [computed]), calls=1, hits=1)
        phase.measures = {"until all have it": (float(took_ns), "ns")}
        return phase

    def _one_by_one(
        self, paths: Sequence[str], songs: Sequence[int]
    ) -> tuple[array[int], dict[str, int]]:
        samples: array[int] = array("Q")
        seen: dict[str, int] = {}
        judge = self._judge(songs, seen)
        for number, path in enumerate(paths):
            began_ns = time.perf_counter_ns()
            answer = self.connections.get(path)
            samples.append(time.perf_counter_ns() - began_ns)
            judge(number, answer)
        return samples, seen

    # -- proof -----------------------------------------------------------------------------------

    def _prove_answers(self) -> None:
        """Ask for every song twice: who answers the second time must be who should.

        The view's own count of itself must say the same as the headers do.
        """
        expected = self.options["answers"]
        for attempt, who in ((1, "the view"), (2, expected)):
            before = self._state()["computed"]
            _, seen = self._one_by_one([_path(n) for n in range(SONGS)], range(SONGS))
            computed = self._state()["computed"] - before
            if seen != {who: SONGS}:
                raise TreatmentNotApplied(
                    f"asked for the {'first' if attempt == 1 else 'second'} time, {SONGS} songs "
                    f"should come from {who}, and came from {_words(seen)}"
                )
            if computed != (SONGS if who == "the view" else 0):
                raise TreatmentNotApplied(
                    f"headers say that {who} answered, and the view was run {computed} times"
                )

    def _expected_hits(self, hits: int, answers: int, visit: Visit) -> float:
        share = hits / answers
        is_cached = self.options["answers"] != "the view"
        if visit.payload != "tail" and is_cached and share < LEAST_HITS:
            raise TreatmentNotApplied(f"only {share:.0%} of what is warm came from a cache")
        if not is_cached and hits:
            raise TreatmentNotApplied(f"{hits} answers came from a cache that should not be there")
        return share

    def _state(self) -> dict[str, Any]:
        answer = self.connections.get("/lab/state")
        found: dict[str, Any] = json.loads(answer.body)
        return found

    def _proof(self, state: Mapping[str, Any]) -> dict[str, str]:
        site = self.site
        proof = {
            "backend": str(state["cache"]),
            "answers": self.options["answers"],
            "server": _server_of(site, state),
            "cores": self._cores_proof(site, state),
        }
        if self.wrk:
            proof["driven by"] = f"{self.wrk.version} at full speed, our own client at fixed rates"
        else:
            proof["driven by"] = "our own client"
        return proof

    def _cores_proof(self, site: Site, state: Mapping[str, Any]) -> str:
        if not self.cpus:
            return "shared cores"
        served, generator = self.cpus
        pids = [int(state["pid"])]
        pids += children_of(site.front.process.pid) if site.front else []
        for pid in pids:
            if os.sched_getaffinity(pid) != {served}:
                raise TreatmentNotApplied(f"process {pid} is not on CPU {served} alone")
        return f"servers on CPU {served}, generator on CPU {generator}"

    def _facts(self) -> dict[str, str]:
        return {} if self.cpus else {"cores": "servers and generator share one"}


def _cores(measuring: int) -> tuple[int, int] | None:
    """(of the servers, of the generator); None where there is only one."""
    others = sorted(os.sched_getaffinity(0) - {measuring})
    return (measuring, others[-1]) if others else None


def _path(song_id: int) -> str:
    return f"/api/song/{song_id}"


def _server_of(site: Site, state: Mapping[str, Any]) -> str:
    names = [f"nginx {site.front.version}"] if site.front else []
    return ", ".join([*names, site.app.name, f"Django {state['django']}"])


def _file_bytes(directory: Path) -> tuple[float, str]:
    """What a kept answer takes on the file system, blocks and all."""
    files = [path.stat() for path in directory.rglob("*") if path.is_file()]
    total = sum(found.st_blocks * 512 for found in files)
    return total / max(1, len(files)), "its file on tmpfs"


def _words(seen: Mapping[str, int]) -> str:
    return ", ".join(f"{who} ({times})" for who, times in seen.items())
