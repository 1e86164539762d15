"""One scenario, from start to end: start the site, let clients ask, do what is to be done to
it, wait until all is well again; and so on until the time is over.
"""

from __future__ import annotations

import contextlib
import random
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.site.clients import Client, Manners
from tests.site.judge import Judge, Window
from tests.site.scenarios import Scenario
from tests.site.servers import SOURCES, Site
from tests.site.stores import STORES, Store

CLIENTS = 6
CALM_REQUESTS = 200
GOOD_IN_A_ROW = 10
HANGS_AFTER_S = 180
MOST_BAD = 200
"""Bad answers to one client after a fault has ended. Clients wait 50 ms after each: it is 10 s
of a circuit breaker whose pauses are 2.5 s at most, or of a server that starts.
"""
LOCK_S, LOCK_WHEN_KILLED_S = 60, 3
WAIT_S = 20
REACHES_BACK_S = 1.0
"""Who met another one may have met one from before."""
NEVER_IN_A_LOG = (
    "Segmentation fault|SIGSEGV|SIGBUS|Fatal Python error|panicked|signal 11|Bus error"
    "|memory allocation of"
)
UNCLEAN = "|Exception ignored|Exception in thread|was never awaited|was never retrieved"
UNCLEAN += "|was destroyed but it is pending|GeneratorExit"
SESSIONS_TABLE = (
    "CREATE TABLE django_session (session_key varchar(40) NOT NULL PRIMARY KEY,"
    " session_data text NOT NULL, expire_date datetime NOT NULL)"
)
DJANGO = "django.contrib.sessions.backends"
SESSIONS = {
    "miss": (f"{DJANGO}.cached_db", f"{DJANGO}.cache"),
    "raise": ("nearcache.sessions",),
}
"""Engines, by what the cache of the sessions does in an outage."""


@dataclass(frozen=True)
class Report:
    """What was seen."""

    scenario: Scenario
    seed: int
    seconds: float
    counts: Counter[str]
    excused: Counter[str]
    violations: list[str]

    def line(self) -> str:
        seen = [f"{name} {count:,}" for name, count in sorted(self.counts.items())]
        excused = [f"{name} {count:,}" for name, count in self.excused.most_common()]
        return ", ".join(seen) + (f"; excused: {', '.join(excused)}" if excused else "")


class Trial:
    def __init__(self, scenario: Scenario, seed: int, directory: Path) -> None:
        self.scenario, self.seed, self.directory = scenario, seed, directory
        self.random = random.Random(seed)
        self.judge = Judge()
        self.manners = Manners()
        self.on_error = self.random.choice(sorted(SESSIONS))
        self.store: Store = STORES[scenario.store_name](directory)
        self.clients: list[Client] = []
        self.users = 0
        self.logs: list[Path] = []

    def run(self, seconds: float = 0.0, say: Callable[[str], None] = lambda text: None) -> Report:
        """Does what is to be done once, and again while time is left."""
        began = time.monotonic()
        try:
            self.start()
            self.work(CALM_REQUESTS)
            while True:
                self.once(say)
                if time.monotonic() - began >= seconds or self.judge.violations:
                    break
            self.finish()
        finally:
            self.end()
        counts, excused = self.judge.counts, self.judge.excused
        took = time.monotonic() - began
        return Report(self.scenario, self.seed, took, counts, excused, self.judge.violations)

    # -- start and end ------------------------------------------------------------------------

    def start(self) -> None:
        with sqlite3.connect(self.directory / "database") as database:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute(SESSIONS_TABLE)
        database.close()
        self.store.start()
        fault = self.scenario.fault
        self.site = Site(self.scenario.server, self.directory, self.settings(), fault.timeout_s)
        self.logs.append(self.site.log)
        self.site.start()
        self.site.wait_ready()
        if fault.always:
            self.judge.opens(fault.excuses)
        self.join(self.site, CLIENTS)

    def join(self, site: Site, count: int) -> list[Client]:
        """New users, who ask that server."""
        joined = []
        for number in range(self.users, self.users + count):
            sessions = SESSIONS[self.on_error][number % len(SESSIONS[self.on_error])]
            seed = self.random.randrange(1 << 32)
            joined.append(Client(number, site, self.judge, self.manners, seed, sessions))
            joined[-1].start()
        self.users += count
        self.clients += joined
        return joined

    def settings(self) -> dict[str, object]:
        fault = self.scenario.fault
        lasts = fault.kills and not self.store.frees_at_death
        # Who holds the GIL until he is killed cannot renew: the lock must last until then.
        lasts_s = LOCK_WHEN_KILLED_S if fault.timeout_s > WAIT_S else 2 * fault.timeout_s
        return {
            "directory": str(self.directory),
            "inside": str(self.directory),
            "caches": self.store.caches(self.on_error),
            "sessions": SESSIONS[self.on_error],
            "lock_s": lasts_s if lasts else LOCK_S,
            "wait_s": WAIT_S if lasts_s < WAIT_S / 2 else 2 * WAIT_S,
            "environment": self.scenario.fault.environment,
        }

    def finish(self) -> None:
        """Nobody asks any more: what is left?"""
        self.dismiss(self.clients)
        self.site.end()
        self.hear()
        for fault in self.store.faults():
            self.judge.blame(["wrong"], f"the store: {fault}", time.monotonic())
        for log in self.logs:
            self.look_into(log.read_text(errors="replace"))
        self.explain_hangs()

    def look_into(self, log: str) -> None:
        never = NEVER_IN_A_LOG + ("" if self.scenario.fault.noisy else UNCLEAN)
        for found in re.finditer(never, log):
            around = log[max(0, found.start() - 300) : found.end() + 700]
            # A signal may come while Python itself cleans up, and is then lost.
            if not (found[0] == "Exception ignored" and "raise Alarm" in around):
                self.judge.blame(["log"], f"...{around}...", time.monotonic())

    def explain_hangs(self) -> None:
        """Some are none of ours, if the log says what Python did."""
        judge = self.judge
        if self.python_hangs():
            hung = [each for each in judge.violations if each.startswith("hanging")]
            judge.violations = [each for each in judge.violations if each not in hung]
            judge.excused["hanging"] += len(hung)

    def python_hangs(self) -> bool:
        """Whether the log says that Python itself let a request hang."""
        said = self.scenario.fault.hangs_if
        logs = [log.read_text(errors="replace") for log in self.logs]
        return bool(said) and any(re.search(said, log) for log in logs)

    def dismiss(self, clients: list[Client]) -> None:
        for client in clients:
            client.over.set()
        for client in clients:
            client.join(HANGS_AFTER_S)

    def end(self) -> None:
        for client in self.clients:
            client.over.set()
        if hasattr(self, "site"):
            self.site.end(gently=False)
        self.store.end()

    # -- the fault ----------------------------------------------------------------------------

    def once(self, say: Callable[[str], None]) -> None:
        fault = self.scenario.fault
        window = self.judge.opens(fault.excuses)
        self.judge.count("faults")
        with fault.do(self):
            pass
        self.recover(window)
        self.work(CALM_REQUESTS)
        self.hear()
        asked, faults = self.judge.counts["asked"], self.judge.counts["faults"]
        say(f"{asked:,} requests, {faults} faults, {len(self.judge.violations)} violations")

    def recover(self, window: Window) -> None:
        """Until every client has good answers again."""
        for client in self.clients:
            client.good_in_a_row = client.bad = 0
        give_up_at = time.monotonic() + HANGS_AFTER_S
        while not all(client.good_in_a_row >= GOOD_IN_A_ROW for client in self.clients):
            worst = max(client.bad for client in self.clients)
            if worst > MOST_BAD or time.monotonic() > give_up_at:
                self.violate("recovery", f"{worst} bad answers after the fault, and no end")
                break
            self.revive()
            time.sleep(0.02)
        window.ended = time.monotonic()
        worst = max(client.bad for client in self.clients)
        self.judge.counts["worst recovery"] = max(self.judge.counts["worst recovery"], worst)
        self.judge.count("recoveries")

    def violate(self, kind: str, text: str) -> None:
        self.judge.counts["violations"] += 1
        self.judge.violations.append(f"{kind}: {text}")

    def hear(self) -> None:
        self.judge.hear(self.directory / "told", REACHES_BACK_S)

    # -- what faults use ----------------------------------------------------------------------

    def work(self, requests: int) -> None:
        """Until clients have asked so many times more."""
        until = self.judge.counts["asked"] + self.judge.counts["disconnected"] + requests
        give_up_at = time.monotonic() + HANGS_AFTER_S
        while self.judge.counts["asked"] + self.judge.counts["disconnected"] < until:
            if time.monotonic() > give_up_at:
                self.violate("hanging", f"{requests} requests are not made")
                return
            self.revive()
            time.sleep(0.01)

    def wait(self, seconds: float) -> None:
        """The fault lasts so long, whatever clients do."""
        time.sleep(seconds)

    @contextlib.contextmanager
    def beside(self, sources: Path = SOURCES, **settings: object) -> Iterator[Site]:
        """Another server, of the same site with these settings and that version of the package."""
        directory = self.directory / f"beside-{self.judge.counts['faults']}"
        directory.mkdir()
        timeout_s = self.scenario.fault.timeout_s
        given = self.settings() | settings
        site = Site(self.scenario.server, directory, given, timeout_s, sources=sources)
        site.start()
        try:
            site.wait_ready()
            yield site
        finally:
            site.end()
            self.logs.append(site.log)

    @contextlib.contextmanager
    def asked_too(self, site: Site) -> Iterator[None]:
        """All clients ask that server as well."""
        for client in self.clients:
            client.other = site
        try:
            yield
        finally:
            self.leave_alone()

    @contextlib.contextmanager
    def users_of(self, site: Site) -> Iterator[None]:
        """That server has clients of its own."""
        joined = self.join(site, CLIENTS // 2)
        try:
            yield
        finally:
            self.dismiss(joined)
            self.clients = [client for client in self.clients if client not in joined]

    def leave_alone(self) -> None:
        """Nobody asks the other server any more, and all its answers are there."""
        steps = [client.steps for client in self.clients]
        for client in self.clients:
            client.other = None
        give_up_at = time.monotonic() + HANGS_AFTER_S
        while any(now.steps <= then for now, then in zip(self.clients, steps, strict=True)):
            if time.monotonic() > give_up_at:
                self.violate("hanging", "a client does not get on")
                return
            time.sleep(0.01)

    def workers(self) -> list[int]:
        """Processes that answer; the server itself, if nobody else does."""
        there = self.site.workers() if self.scenario.server.revives else {self._main()}
        return sorted({pid for client in self.clients for pid in list(client.pids)} & there)

    def a_worker(self) -> int:
        give_up_at = time.monotonic() + HANGS_AFTER_S
        while True:
            answering = self.workers()
            if answering:
                return self.random.choice(answering)
            assert time.monotonic() < give_up_at, "no worker answers"
            time.sleep(0.01)

    def silent(self, seconds: float) -> list[int]:
        """Workers that answer nobody for so long."""
        since = time.monotonic()
        while True:
            answered = {
                pid for each in self.clients for pid, at in list(each.pids.items()) if at > since
            }
            silent = [pid for pid in self.workers() if pid not in answered]
            if not silent or time.monotonic() > since + seconds:
                return silent
            time.sleep(0.02)

    def _main(self) -> int:
        assert self.site.process
        return self.site.process.pid

    def revive(self) -> None:
        """Starts a server again that has no master to do it."""
        if not self.scenario.server.revives and not self.site.runs:
            self.site.end(gently=False)
            self.site.start()
