"""Users who ask, each for himself, and know what they must be told.

A user asks one thing after the other. What was answered well is confirmed; what was not may
have happened or not, or may happen later, and nothing more is said about that key.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.site.judge import Judge
from tests.site.project import answers
from tests.site.project.answers import EVERYBODY, Wrong
from tests.site.servers import Answer, Hanging, Site, Unanswered

KEYS = 6
LOCKS = 3
AFTER_AN_ERROR_S = 0.05
OURS = "nearcache.sessions"
SIZES = (50, 200, 3000, 40_000)
DESTROYED_BY = 40
"""After so many visits a user logs in anew."""


@dataclass
class Manners:
    """How all clients behave; a fault changes it for a while."""

    interrupts: float = 0.0
    """Which part of requests is interrupted by an exception in the site."""
    disconnects: float = 0.0
    hangs: float = 0.0
    pause_s: float = 0.0
    sizes: tuple[int, ...] = SIZES
    unread: bool = False
    """Whether a value may be there that not everybody can read."""


class Failed(Exception):
    """An answer that is none: an error, or a request that was interrupted."""

    def __init__(self, names: list[str], text: str) -> None:
        super().__init__(text)
        self.names = names


@dataclass
class Own:
    """A value of this user alone: what it must be."""

    generation: int = 0
    version: int | None = None
    sure_since: float = field(default_factory=time.monotonic)


@dataclass
class Session:
    cookie: str | None = None
    visits: int = 0
    sure: bool = True
    """Whether nothing that failed may have written it, or may write it later."""
    seen_at: float = 0.0


class Client(threading.Thread):
    def __init__(
        self, number: int, site: Site, judge: Judge, manners: Manners, seed: int, sessions: str
    ) -> None:
        super().__init__(name=f"user{number}", daemon=True)
        self.user, self.site, self.judge, self.manners = f"user{number}", site, judge, manners
        self.random = random.Random(seed)
        self.sessions = sessions
        self.over = threading.Event()
        self.own = [Own() for _ in range(KEYS)]
        self.versions = 0
        self.counted: Counter[int] = Counter()
        self.tried: Counter[int] = Counter()
        self.confirmed_at: dict[int, float] = {}
        self.session = Session()
        self.asked = self.steps = 0
        self.path = ""
        """What was asked last."""
        self.other: Site | None = None
        """A second server of the same site, asked in turn with the first."""
        self.good_in_a_row = self.bad = 0
        self.pids: dict[int, float] = {}

    # -- one thing after the other ------------------------------------------------------------

    def run(self) -> None:
        while not self.over.is_set():
            self.step()
            self.steps += 1
            if self.manners.pause_s:
                self.over.wait(self.manners.pause_s)

    def step(self) -> None:
        began = time.monotonic()
        try:
            self.act()
        except Unanswered as error:
            self.went_wrong(["unanswered"], str(error), began)
        except Hanging as error:
            self.went_wrong(["hanging"], str(error), began)
        except Failed as error:
            self.went_wrong(error.names, str(error), began)
        except Wrong as error:
            self.went_wrong(["wrong"], f"{self.path}: {error}", began)
        else:
            self.judge.count("good")
            self.good_in_a_row += 1

    def went_wrong(self, names: list[str], text: str, since: float) -> None:
        self.good_in_a_row = 0
        if names[0] == "interrupted":
            self.judge.count("interrupted")
            return
        self.bad += 1
        where = text.partition(":")[0].removeprefix("async/").partition("/")[0].partition("?")[0]
        where = "" if names[0] in ("unanswered", "hanging", "wrong") else where
        self.judge.blame(names, f"{self.user}: {text}", since, where)
        self.over.wait(AFTER_AN_ERROR_S)

    def act(self) -> None:
        chance = self.random.random()
        if chance < self.manners.disconnects:
            return self.disconnect()
        if chance < self.manners.disconnects + self.manners.hangs:
            return self.hang()
        acts = (self.value, self.memo, self.page, self.fragment, self.put, self.get, self.get)
        acts += (self.many, self.forget, self.count, self.lock, self.visit, self.visit)
        return self.random.choice(acts)()

    # -- asking -------------------------------------------------------------------------------

    def ask(self, path: str, method: str = "GET", twice: bool = True) -> dict[str, Any]:
        """What a view told; ``twice``: there is one for tasks, too."""
        self.asked += 1
        self.judge.count("asked")
        nonce = f"{self.user}-{self.asked}"
        headers = {"X-User": self.user, "X-Asked": nonce, "X-Sessions": self.sessions}
        if self.session.cookie:
            headers["Cookie"] = f"sessionid={self.session.cookie}"
        as_task = twice and self.site.server.async_views and self.random.random() < 0.5
        path = f"async/{path}" if as_task else path
        # A signal within asgiref's own bridge from WSGI to a task is asgiref's matter.
        may_be = not (as_task and self.site.server.main_thread)
        if may_be and self.random.random() < self.manners.interrupts:
            headers["X-Interrupt"] = f"{self.random.uniform(0.0005, 0.02):.4f}"
        site = self.random.choice((self.site, self.other or self.site))
        self.path = path
        return self.told(path, site.ask(method, f"/{path}", headers), nonce)

    def told(self, path: str, answer: Answer, nonce: str) -> dict[str, Any]:
        told = answer.told
        if answer.status == 503 and self.sessions == OURS:
            raise Failed(["SessionsAway"], f"{path}: 503")
        if told is None:
            raise Failed(["error of the server"], f"{path}: {answer.status}, and no JSON")
        if "error" in told:
            names = told["error"]
            if names[0] == "SessionInterrupted":
                names = self.no_session("SessionInterrupted")
            raise Failed(names, f"{path}: {answer.status} {names[0]} {told['text']}")
        if answer.asked != nonce:
            raise Wrong(f"foreign: {path} answers {answer.asked}, not {nonce}")
        if answer.cookie is not None:
            self.session.cookie = answer.cookie
        if answer.status == 504:
            raise Failed(["interrupted"], path)
        if answer.status == 409:
            raise Failed(["busy"], f"{path}: the lock was not free in time")
        self.pids[told["pid"]] = time.monotonic()
        return told

    def no_session(self, name: str) -> list[str]:
        """Django's engines take an outage for an empty or a deleted session, ours does not."""
        return [name] if self.sessions == OURS else [name, "taken for logged out"]

    def whose(self) -> str:
        return self.random.choice((EVERYBODY, EVERYBODY, self.user))

    # -- what everybody may compute -----------------------------------------------------------

    def value(self) -> None:
        whose, key = self.whose(), f"{self.random.randrange(KEYS)}"
        answers.read(whose, key, self.ask(f"flown/{whose}/{key}")["value"])

    def memo(self) -> None:
        whose, key = self.whose(), f"{self.random.randrange(KEYS)}"
        answers.read(whose, key, self.ask(f"memo/{whose}/{key}")["value"])

    def page(self) -> None:
        key = f"{self.random.randrange(KEYS)}"
        answers.read(self.user, key, self.ask(f"page/{key}", twice=False)["value"])

    def fragment(self) -> None:
        key = f"{self.random.randrange(KEYS)}"
        answers.read(self.user, key, self.ask(f"fragment/{key}", twice=False)["value"])

    # -- what is mine -------------------------------------------------------------------------

    def put(self) -> None:
        at, size = self.random.randrange(KEYS), self.random.choice(self.manners.sizes)
        self.versions += 1
        with self.changing(at) as own:
            path = f"own/{at}-{own.generation}?version={self.versions}&bytes={size}"
            self.ask(path, "POST")
            own.version = self.versions

    def forget(self) -> None:
        at = self.random.randrange(KEYS)
        with self.changing(at) as own:
            self.ask(f"own/{at}-{own.generation}", "DELETE")
            own.version = None

    @contextlib.contextmanager
    def changing(self, at: int) -> Any:
        """If this fails, the key is not used again: the change may come later."""
        own = self.own[at]
        self.own[at] = Own(own.generation + 1)
        yield own
        own.sure_since = time.monotonic()
        self.own[at] = own

    def get(self) -> None:
        at = self.random.randrange(KEYS)
        own = self.own[at]
        key = f"{at}-{own.generation}"
        self.compare(own, key, self.ask(f"own/{key}")["value"])

    def many(self) -> None:
        keys = {f"{at}-{own.generation}": own for at, own in enumerate(self.own)}
        values = self.ask("many?" + "&".join(f"key={key}" for key in keys))["values"]
        for key, own in keys.items():
            self.compare(own, key, values[key])

    def compare(self, own: Own, key: str, value: Any) -> None:
        if value is None:
            if own.version is not None:
                text = f"{self.user}: {key}, version {own.version}, is not there"
                self.judge.blame(["lost"], text, own.sure_since)
                own.version = own.version if self.manners.unread else None
        else:
            version = answers.read(self.user, key, value)
            if version != own.version:
                raise Wrong(f"{key}: version {version}, not {own.version}")
        own.sure_since = time.monotonic()

    def count(self) -> None:
        at = self.random.randrange(KEYS)
        since = self.confirmed_at.get(at, time.monotonic())
        self.tried[at] += 1
        told = self.ask(f"count/{at}")
        if told["begun"] and self.counted[at]:
            text = f"{self.user}: counter {at}, at {self.counted[at]}, is not there"
            self.judge.blame(["lost"], text, since)
        elif told["total"] <= self.counted[at]:
            raise Wrong(f"counter {at}: {told['total']} after {self.counted[at]}")
        if told["total"] > self.tried[at]:
            raise Wrong(f"counter {at}: {told['total']} after {self.tried[at]} requests")
        self.counted[at], self.confirmed_at[at] = told["total"], time.monotonic()

    # -- sessions -----------------------------------------------------------------------------

    def visit(self) -> None:
        if not self.session.cookie or self.session.visits >= DESTROYED_BY:
            return self.log_in()
        was, self.session.sure = self.session.sure, False
        value = self.ask("me")["value"]
        if value is None:
            text = f"{self.user} is ({self.sessions})"
            self.judge.blame(self.no_session("logged out"), text, self.session.seen_at)
            self.session = Session()
            return None
        visits = answers.read(self.user, "me", value)
        if was and visits != self.session.visits + 1:
            text = f"{self.user}: visit {visits} after {self.session.visits}"
            # Ours says what could not be written, Django's with on_error="miss" does not.
            name = "our older session" if self.sessions == OURS else "older session"
            self.judge.blame([name], text, self.session.seen_at)
        self.session.visits, self.session.sure = visits, was
        self.session.seen_at = time.monotonic()
        return None

    def log_in(self) -> None:
        self.session = Session()
        self.ask("login", "POST", twice=False)
        self.session.seen_at = time.monotonic()

    # -- locks --------------------------------------------------------------------------------

    def lock(self) -> None:
        began = time.monotonic()
        if self.ask(f"lock/{self.random.randrange(LOCKS)}")["lost"]:
            self.judge.blame(["LockLost"], f"{self.user}: a lock was lost", began)

    # -- bad manners --------------------------------------------------------------------------

    def disconnect(self) -> None:
        """Asks, and is gone before there is an answer."""
        whose, key = self.whose(), self.random.randrange(KEYS)
        path = self.random.choice(
            (f"flown/{whose}/{key}", f"memo/{whose}/{key}", f"lock/{key % LOCKS}")
        )
        if self.site.server.async_views:
            path = self.random.choice(("", "async/")) + path
        request = f"GET /{path} HTTP/1.1\r\nHost: localhost\r\nX-User: {self.user}\r\n\r\n"
        self.judge.count("disconnected")
        with contextlib.suppress(OSError), socket.socket() as connection:
            connection.settimeout(10)
            connection.connect(("127.0.0.1", self.site.port))
            # Closing resets the connection: nobody reads the answer.
            linger = struct.pack("ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            connection.sendall(request.encode())
            self.over.wait(self.random.uniform(0, 0.01))

    def hang(self) -> None:
        """Lets a worker hang until the server kills it."""
        self.judge.count("hung")
        with contextlib.suppress(Failed, Unanswered):
            self.ask(f"hang/{self.random.choice(('lock', 'flight'))}", twice=False)
