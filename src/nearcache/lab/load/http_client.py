"""HTTP/1.1 over connections that stay open, as little as a generator needs.

One thread, one ``select``: its timeout is exact to microseconds, where epoll's is to
milliseconds, which is more than a cached answer takes. GET only, and only answers with a
``Content-Length``; anything else is an error, since a generator that copes hides things.

    Connections   a bounded set of them; ask one thing, or many at once
    open_loop     requests when they are due, answers from then on (open_loop.py)
    closed_loop   each connection asks again at once: how much the server can do
"""

from __future__ import annotations

import ctypes
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from nearcache.lab.load.open_loop import NS, OpenLoop

PR_SET_TIMERSLACK = 29
MOST_CONNECTIONS = 64
ANSWER_TIMEOUT_S = 10.0
READ_BYTES = 65536


class BadAnswer(Exception):
    """What came back is no answer to what was asked, or not the one it must be."""


@dataclass(frozen=True)
class Answer:
    status: int
    head: bytes
    body: bytes

    def header(self, name: bytes) -> str:
        """The value of a header; empty if it is not there."""
        at = self.head.lower().find(b"\r\n" + name.lower() + b":")
        if at < 0:
            return ""
        return self.head[at + len(name) + 3 :].split(b"\r\n", 1)[0].strip().decode()


def request(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: lab\r\n\r\n".encode()


class Connection:
    """One connection; one request at a time."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), ANSWER_TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.received = b""
        self.number = -1  # of the request that is under way
        self.due_ns = 0
        self.begun_ns = 0
        self.free_ns = 0  # since when nothing is

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, number: int, message: bytes, due_ns: int) -> None:
        self.number, self.due_ns = number, due_ns
        self.begun_ns = time.perf_counter_ns()
        if self.socket.send(message) != len(message):
            raise BadAnswer("a request did not fit into the socket")

    def receive(self) -> Answer | None:
        """The answer, once it is complete."""
        more = self.socket.recv(READ_BYTES)
        if not more:
            raise BadAnswer("the server closed the connection instead of answering")
        self.received += more
        head, found, body = self.received.partition(b"\r\n\r\n")
        if not found or len(body) < (length := _length(head)):
            return None
        if len(body) > length:
            raise BadAnswer("more came than one answer")
        self.received = b""
        return Answer(int(head[9:12]), head, body)


def _length(head: bytes) -> int:
    at = head.lower().find(b"\r\ncontent-length:")
    if at < 0:
        raise BadAnswer(f"an answer without a length: {head[:80]!r}")
    return int(head[at + 17 :].split(b"\r\n", 1)[0])


Judge = Callable[[int, Answer], None]  # (number of the request, its answer): raises if it is wrong


@dataclass
class Connections:
    """Connections to one port, opened when they are needed. Use ``close``."""

    port: int
    most: int = MOST_CONNECTIONS
    idle: list[Connection] = field(default_factory=list)
    all: list[Connection] = field(default_factory=list)

    def take(self) -> Connection | None:
        """A free one, or a new one; None if all are busy."""
        if self.idle:
            return self.idle.pop()
        if len(self.all) >= self.most:
            return None
        made = Connection(self.port)
        made.free_ns = time.perf_counter_ns()
        self.all.append(made)
        return made

    def give_back(self, connection: Connection) -> None:
        connection.number = -1
        connection.free_ns = time.perf_counter_ns()
        self.idle.append(connection)

    def ensure(self, count: int) -> None:
        """Open so many before anything is timed."""
        held = [self.take() for _ in range(min(count, self.most))]
        for connection in held:
            if connection:
                self.give_back(connection)

    def get(self, path: str) -> Answer:
        """One request, by itself."""
        return self.get_all([request(path)])[0]

    def get_all(self, messages: Sequence[bytes]) -> list[Answer]:
        """So many requests at the same time; their answers in order."""
        answers: dict[int, Answer] = {}
        busy = []
        for number, message in enumerate(messages):
            connection = self.take()
            if connection is None:
                raise ValueError(f"at most {self.most} requests at once")
            connection.send(number, message, 0)
            busy.append(connection)
        give_up_at = time.monotonic() + ANSWER_TIMEOUT_S
        while busy:
            for connection, answer in self.ready(busy, give_up_at - time.monotonic()):
                answers[connection.number] = answer
                busy.remove(connection)
                self.give_back(connection)
            if time.monotonic() > give_up_at:
                raise BadAnswer(f"no answer within {ANSWER_TIMEOUT_S:.0f} s")
        return [answers[number] for number in range(len(messages))]

    def ready(
        self, busy: Sequence[Connection], timeout_s: float
    ) -> Iterator[tuple[Connection, Answer]]:
        """Wait for answers; those that are complete."""
        readable, _, _ = select.select(busy, (), (), max(0.0, timeout_s))
        for connection in readable:
            answer = connection.receive()
            if answer is not None:
                yield connection, answer

    def close(self) -> None:
        for connection in self.all:
            connection.socket.close()
        self.all.clear()
        self.idle.clear()


def be_punctual() -> None:
    """Ask the kernel not to put our timers together with others (it may, by 50 µs)."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)


def open_loop(
    connections: Connections,
    load: OpenLoop,
    due: Sequence[int],
    messages: Sequence[bytes],
    judge: Judge,
    *,
    give_up_ns: int,
) -> float:
    """Send each message when it is due, whatever became of the others.

    A message that finds all connections busy waits for the next one; ``load`` counts that as
    waiting, and counts what was sent late although a connection was free. What has not been
    sent ``give_up_ns`` after the start is dropped. Returns ``generator_cpu``: of the whole
    time, what this process computed.
    """
    waiting: deque[int] = deque()
    busy: set[Connection] = set()
    following = 0
    cpu_ns = time.process_time_ns()
    start_ns = time.perf_counter_ns()
    while following < len(due) or waiting or busy:
        now_ns = time.perf_counter_ns() - start_ns
        while following < len(due) and due[following] <= now_ns:
            waiting.append(following)
            following += 1
        if now_ns > give_up_ns:
            load.drop(len(waiting) + len(due) - following)
            waiting.clear()
            following = len(due)
        while waiting and (connection := connections.take()):
            number = waiting.popleft()
            connection.send(number, messages[number], start_ns + due[number])
            busy.add(connection)
        left_ns = _until_next(due, following, now_ns, give_up_ns)
        for connection, answer in connections.ready(list(busy), left_ns / NS):
            ended_ns = time.perf_counter_ns()
            judge(connection.number, answer)
            load.answered(connection.due_ns, connection.begun_ns, ended_ns, connection.free_ns)
            busy.discard(connection)
            connections.give_back(connection)
        if now_ns > give_up_ns + int(ANSWER_TIMEOUT_S * NS):
            raise BadAnswer(f"{len(busy)} requests were not answered")
    wall_ns = time.perf_counter_ns() - start_ns
    return (time.process_time_ns() - cpu_ns) / wall_ns if wall_ns else 0.0


def _until_next(due: Sequence[int], following: int, now_ns: int, give_up_ns: int) -> int:
    if following < len(due):
        return max(0, due[following] - now_ns)
    return max(0, give_up_ns - now_ns) or NS


def closed_loop(
    connections: Connections,
    count: int,
    messages: Callable[[int], bytes],
    judge: Judge,
    phase_ns: int,
) -> tuple[int, int, float]:
    """``count`` connections that ask again as soon as they are answered.

    Returns (answers, wall ns, generator_cpu). For where wrk is not: a generator in Python is
    busy long before a proxy's cache is.
    """
    connections.ensure(count)
    number = answers = 0
    cpu_ns, start_ns = time.process_time_ns(), time.perf_counter_ns()
    busy = []
    for _ in range(count):
        connection = connections.take()
        assert connection
        connection.send(number, messages(number), 0)
        busy.append(connection)
        number += 1
    while busy:
        is_over = time.perf_counter_ns() - start_ns > phase_ns
        for connection, answer in connections.ready(busy, ANSWER_TIMEOUT_S):
            judge(connection.number, answer)
            answers += 1
            if is_over:
                busy.remove(connection)
                connections.give_back(connection)
            else:
                connection.send(number, messages(number), 0)
                number += 1
    wall_ns = time.perf_counter_ns() - start_ns
    return answers, wall_ns, (time.process_time_ns() - cpu_ns) / wall_ns
