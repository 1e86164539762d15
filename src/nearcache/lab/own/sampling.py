"""Values of a live Redis, taken so that nobody notices: read-only, paced, bounded.

    SCAN        a page of keys; pages come in the order of a keyed hash, so the first that
                match are as good as random ones
    per page    TYPE, PTTL, MEMORY USAGE, OBJECT ENCODING, STRLEN in one write
    per value   GETRANGE of a string that is not too large

``CLIENT NO-TOUCH`` keeps the reads from looking like use to an eviction policy, where
the server knows it. Between two round trips the sampler sleeps so long that its share of
the server's time stays below a bound; what it took is reported. What is counted is the time
until an answer begins, less that of a PING: the server cannot have worked longer.

Nothing is unpickled unless that was asked for. A value that is not decoded is kept as the
bytes that are stored: of the same size, and as compressible.
"""

from __future__ import annotations

import re
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nearcache.errors import LabError
from nearcache.lab.base.redact import redact
from nearcache.lab.own.data import MOST_VALUE_BYTES
from nearcache.recording.recorder import first_word

READ_ONLY = {
    ("SCAN",), ("TYPE",), ("PTTL",), ("STRLEN",), ("GETRANGE",), ("DBSIZE",),
    ("PING",), ("MEMORY", "USAGE"), ("OBJECT", "ENCODING"), ("CLIENT", "NO-TOUCH"),
}  # fmt: skip
QUESTIONS = [("TYPE",), ("PTTL",), ("MEMORY", "USAGE"), ("OBJECT", "ENCODING"), ("STRLEN",)]
PAGE = 200
AT_ONCE = 20  # keys; their questions fit into what Redis reads at a time
HEAVY_BYTES = 16 * 1024
PINGS = 5
SERVER_SHARE = 0.01  # of its time
LONGEST_S = 60.0
TIMEOUT_S = 5.0
SQUEEZED_BYTES = 64 * 1024
LEAST_SQUEEZED_BYTES = 64  # what is smaller is made larger by zlib's own header
# What Django puts before a key: its prefix and version.
_DJANGO = re.compile(r"[^:]*:\d+:")


@dataclass(frozen=True)
class Taken:
    """One key of the sample. Its name is not kept."""

    prefix: str
    type: str
    encoding: str
    size_bytes: int  # STRLEN; of what is no string, MEMORY USAGE
    memory: int | None  # MEMORY USAGE
    ttl_ms: int | None  # None: never expires
    raw: bytes | None  # None: not fetched
    squeezed: float | None  # zlib level 1: after by before


@dataclass
class LiveSample:
    """What was found, and what it cost the server."""

    source: str  # without its password
    taken: list[Taken] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    keys_in_database: int = 0
    scanned: int = 0
    untouched: bool = False  # whether the server knew CLIENT NO-TOUCH
    server_s: float = 0.0  # at most
    wall_s: float = 0.0
    stopped: str = ""  # why there are fewer than asked for

    @property
    def server_share(self) -> float:
        return self.server_s / self.wall_s if self.wall_s else 0.0


class Pacer:
    """Sleeps after each round trip, so that the server is ours for ``share`` of the time."""

    def __init__(
        self,
        share: float,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.share, self.clock, self.sleep = share, clock, sleep
        self.floor_s = 0.0  # what a round trip takes that asks for nothing
        self.spent_s = 0.0
        self.began_s = clock()

    def spend(self, waited_s: float) -> None:
        took_s = max(0.0, waited_s - self.floor_s)
        self.spent_s += took_s
        self.sleep(took_s / self.share - took_s)

    @property
    def wall_s(self) -> float:
        return self.clock() - self.began_s


class ReadOnly:
    """A connection that asks questions only; anything else is a fault of this file."""

    def __init__(self, connection: Any, pacer: Pacer) -> None:
        self.connection, self.pacer = connection, pacer

    def ask(self, *command: Any) -> Any:
        return self.ask_all([command])[0]

    def ask_all(self, commands: Sequence[tuple[Any, ...]], *, heavy: bool = False) -> list[Any]:
        """Answers in order; an error of the server is an answer.

        The server has done its work when the first byte arrives: it answers what it has
        read of a pipeline together. Of ``heavy`` answers it has much to copy after that.
        """
        for command in commands:
            assert READ_ONLY & {command[:1], command[:2]}, command[:2]
        clock = self.pacer.clock
        packed = self.connection.pack_commands(commands)
        began_s = clock()
        self.connection.send_packed_command(packed, check_health=False)
        if not self.connection.can_read(timeout=TIMEOUT_S):
            raise LabError(f"the server did not answer within {TIMEOUT_S:.0f} s")
        first_s = clock() - began_s
        answers = [self._answer() for _ in commands]
        self.pacer.spend(clock() - began_s if heavy else first_s)
        return answers

    def _answer(self) -> Any:
        import redis

        try:
            return self.connection.read_response()
        except redis.ResponseError as error:
            return error


def sample_redis(
    url: str,
    *,
    match: str = "*",
    keys: int = 500,
    share: float = SERVER_SHARE,
    options: dict[str, Any] | None = None,
    pacer: Pacer | None = None,
) -> LiveSample:
    """Up to ``keys`` string values whose keys match. Raises LabError if nobody answers."""
    import redis

    found = LiveSample(redact(url, options))
    pacer = pacer or Pacer(share)
    try:
        connection = _connection(url, options)
        try:
            connection.connect()
            _take(found, ReadOnly(connection, pacer), match, keys)
        finally:
            connection.disconnect()
    except redis.RedisError as error:
        said = redact(str(error), [url, options])
        raise LabError(
            f"{found.source} cannot be sampled ({type(error).__name__}: {said})"
        ) from error
    except ValueError as error:
        raise LabError(
            f"{found.source} is no address of a Redis: {redact(str(error), url)}"
        ) from error
    found.server_s, found.wall_s = pacer.spent_s, pacer.wall_s
    return found


def _connection(url: str, options: dict[str, Any] | None) -> Any:
    """Not a client: CLIENT NO-TOUCH is a state of the connection, and it is timed on it."""
    import redis

    given = {"socket_timeout": TIMEOUT_S, "socket_connect_timeout": TIMEOUT_S, **(options or {})}
    pool = redis.ConnectionPool.from_url(url, **given)
    return pool.connection_class(**pool.connection_kwargs)


def _take(found: LiveSample, server: ReadOnly, match: str, keys: int) -> None:
    server.pacer.floor_s = _floor_s(server)
    found.untouched = server.ask("CLIENT", "NO-TOUCH", "ON") in (b"OK", "OK")
    size = server.ask("DBSIZE")
    found.keys_in_database = size if isinstance(size, int) else 0
    for page in _pages(found, server, match):
        for start in range(0, len(page), AT_ONCE):
            room = keys - sum(each.raw is not None for each in found.taken)
            _take_some(found, server, page[start : start + AT_ONCE][:room])
        if sum(each.raw is not None for each in found.taken) >= keys:
            return
        if server.pacer.wall_s > LONGEST_S:
            found.stopped = f"stopped after {LONGEST_S:.0f} s"
            return


def _floor_s(server: ReadOnly) -> float:
    """What an exchange takes in which the server has next to nothing to do."""
    waits = []
    for _ in range(PINGS):
        before_s = server.pacer.spent_s
        answer = server.ask("PING")
        if isinstance(answer, Exception):
            raise answer  # NOAUTH, for example
        waits.append(server.pacer.spent_s - before_s)
    return min(waits)


def _pages(found: LiveSample, server: ReadOnly, match: str) -> Iterator[list[bytes]]:
    cursor: Any = 0
    while True:
        answer = server.ask("SCAN", cursor, "MATCH", match, "COUNT", PAGE)
        if isinstance(answer, Exception):
            raise answer
        cursor, page = int(answer[0]), [_raw(key) for key in answer[1]]
        found.scanned = min(found.scanned + PAGE, found.keys_in_database)
        yield page
        if cursor == 0:
            found.scanned = found.keys_in_database
            return


def _take_some(found: LiveSample, server: ReadOnly, page: Sequence[bytes]) -> None:
    if not page:
        return
    commands = [(*words, key) for key in page for words in QUESTIONS]
    answers = server.ask_all(commands)
    facts = [answers[i : i + len(QUESTIONS)] for i in range(0, len(answers), len(QUESTIONS))]
    wanted = {key: fact[4] for key, fact in zip(page, facts, strict=True) if _wanted(found, fact)}
    fetched = _values(found, server, wanted)
    for key, fact in zip(page, facts, strict=True):
        if _text(fact[0]) != "none":
            found.taken.append(_taken(key, fact, fetched.get(key)))


def _wanted(found: LiveSample, fact: Sequence[Any]) -> bool:
    kind, size = _text(fact[0]), fact[4]
    if kind == "none":
        found.skipped["gone meanwhile"] += 1
    elif kind != "string":
        found.skipped[f"no string but a {kind}"] += 1
    elif not isinstance(size, int):
        found.skipped["not readable here"] += 1
    elif size > MOST_VALUE_BYTES:
        found.skipped["too large"] += 1
    else:
        return True
    return False


def _values(found: LiveSample, server: ReadOnly, wanted: Mapping[bytes, int]) -> dict[bytes, bytes]:
    """GETRANGE and not GET: a value that has grown since is cut, and then left out."""
    small = [key for key, size in wanted.items() if size <= HEAVY_BYTES]
    trips = [small] if small else []
    trips += [[key] for key, size in wanted.items() if size > HEAVY_BYTES]
    fetched: dict[bytes, bytes] = {}
    for keys in trips:
        commands = [("GETRANGE", key, 0, MOST_VALUE_BYTES) for key in keys]
        answers = server.ask_all(commands, heavy=keys is not small)
        for key, answer in zip(keys, answers, strict=True):
            if isinstance(answer, bytes) and 0 < len(answer) <= MOST_VALUE_BYTES:
                fetched[key] = answer
            else:
                found.skipped["gone meanwhile, or empty"] += 1
    return fetched


def _taken(key: bytes, fact: Sequence[Any], raw: bytes | None) -> Taken:
    kind, ttl, memory, encoding, length = fact
    used = memory if isinstance(memory, int) else None
    return Taken(
        prefix=first_word(_DJANGO.sub("", key.decode(errors="replace"), count=1)),
        type=_text(kind),
        encoding="-" if isinstance(encoding, Exception) else _text(encoding),
        size_bytes=length if isinstance(length, int) else used or 0,
        memory=used,
        ttl_ms=ttl if isinstance(ttl, int) and ttl >= 0 else None,
        raw=raw,
        squeezed=_squeezed(raw) if raw else None,
    )


def _squeezed(raw: bytes) -> float | None:
    if len(raw) < LEAST_SQUEEZED_BYTES:
        return None
    head = raw[:SQUEEZED_BYTES]
    return len(zlib.compress(head, 1)) / len(head)


def _raw(key: Any) -> bytes:
    return key if isinstance(key, bytes) else str(key).encode()


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
