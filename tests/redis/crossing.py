"""Many callers of one line while everything breaks: is any reply somebody else's?

Run as a program: ``python -m tests.redis.crossing threads|gevent PORT SOCKET SECONDS``. Prints a
JSON object; ``wrong`` lists replies that are not the answer to what was asked.

Each worker owns keys of its own and counts what it writes there, so that it knows every value
that its key can have. ECHO of a word that is used once cannot be answered by anybody else's
reply. Counters are incremented by all, and acknowledged and uncertain increments are counted.
"""

# ruff: noqa: E402 - gevent patches before everything else is imported

from __future__ import annotations

import sys

MODE, PORT, PATH, SECONDS = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
if MODE == "gevent":
    from gevent import monkey

    monkey.patch_all()

import collections
import contextlib
import ctypes
import json
import os
import random
import signal
import threading
import time
from typing import Any

import redis

from nearcache.engines.redis.connection.sync_connection import SyncConnection
from nearcache.engines.redis.contract import ONCE, READ, SAFE
from nearcache.engines.redis.protocol.resp import pack
from nearcache.engines.redis.target.target import Address, Target
from nearcache.errors import CircuitOpen, EngineUnavailable

GREEN = MODE == "gevent"
WORKERS = 150 if GREEN else 12
READ_TIMEOUT_S = 0.15
PAD = b"." * 300

counts: collections.Counter[str] = collections.Counter()
wrong: list[str] = []
stop = threading.Event()
frozen = threading.Event()


class Hit(Exception):
    """What callers are interrupted by; an Exception, as gevent.Timeout may raise one."""


def expect(true: bool, what: Any) -> None:
    if not true:
        wrong.append(repr(what)[:300])


def say_late() -> None:
    print("it did not end", flush=True)
    os._exit(3)


class Worker:
    def __init__(self, line: SyncConnection, me: int) -> None:
        self.line = line
        self.me = me
        self.random = random.Random(me)
        self.number = 0
        self.key = b"own:%d" % me
        self.written: int | None = None
        self.perhaps: set[int] = set()
        # Appending is one operation, for threads and for interrupts.
        self.asked: list[int] = []
        self.acknowledged: list[int] = []

    def run(self) -> None:
        while not stop.is_set():
            with contextlib.suppress(Hit):  # it may hit while we count the last one
                self.work()

    def work(self) -> None:
        steps = [self.echo, self.echo_many, self.write, self.read, self.count]
        while not stop.is_set():
            self.number += 1
            try:
                with interruption(self.random):
                    self.random.choice(steps)()
                counts["done"] += 1
            except CircuitOpen:
                counts["open"] += 1
                time.sleep(0.005)
            except EngineUnavailable as error:
                counts[type(error).__name__] += 1
            except Hit:
                counts["interrupted"] += 1

    def word(self) -> bytes:
        return b"%d:%d:%s" % (self.me, self.number, PAD * self.random.choice((0, 1, 1, 200)))

    def echo(self) -> None:
        word = self.word()
        reply = self.line.ask(pack(b"ECHO", word), None, READ)
        expect(reply == word, ("echo", word[:40], reply))

    def echo_many(self) -> None:
        words = [b"%d-%s" % (place, self.word()) for place in range(self.random.randint(2, 9))]
        packed = b"".join(pack(b"ECHO", word) for word in words)
        replies = self.line.ask_many(packed, len(words), self.random.choice((READ, SAFE)))
        expect(replies == words, ("echo_many", words[0][:40], replies))

    def write(self) -> None:
        # Perhaps written, until the reply says so. What timed out in a frozen server may be
        # carried out long after, so it stays possible for ever.
        number = self.number
        self.perhaps.add(number)
        value = b"%s=%d" % (self.key, number)
        reply = self.line.ask(pack(b"SET", self.key, value), self.key, SAFE)
        expect(reply == b"OK", ("set", reply))
        self.written = number
        self.perhaps.discard(number)

    def read(self) -> None:
        reply = self.line.ask(pack(b"GET", self.key), self.key, READ)
        if reply is None:
            expect(self.written is None, ("gone", self.key))
            return
        key, _, number = reply.partition(b"=")
        expect(key == self.key, ("get", self.key, reply))
        known = self.perhaps | {self.written}
        expect(int(number) in known, ("old value", self.key, reply, self.written))

    def count(self) -> None:
        self.asked.append(self.number)
        reply = self.line.ask(pack(b"INCR", b"counter"), b"counter", ONCE)
        self.acknowledged.append(self.number)
        expect(isinstance(reply, int), ("incr", reply))


# ---- what breaks


@contextlib.contextmanager
def interruption(rng: random.Random) -> Any:
    """gevent.Timeout after a very short time, for every third call."""
    if not GREEN or rng.random() > 0.3:
        yield
        return
    import gevent

    with gevent.Timeout(rng.choice((0.0005, 0.002, 0.01)), Hit):
        yield


def interrupt_threads(threads: list[threading.Thread]) -> None:
    """An exception from outside, at whatever bytecode the thread is."""
    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    while not stop.is_set():
        victim = random.choice(threads)
        if frozen.is_set():  # else nobody would wait long enough for a timeout
            time.sleep(0.01)
            continue
        raise_in(ctypes.c_ulong(victim.ident or 0), ctypes.py_object(Hit))
        time.sleep(0.003)


def kill_connections() -> None:
    with redis.Redis(unix_socket_path=PATH) as client:
        while not stop.is_set():
            time.sleep(random.uniform(0.01, 0.06))
            with contextlib.suppress(redis.RedisError):
                client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                counts["kills"] += 1


def freeze(server_pid: int) -> None:
    while not stop.wait(SECONDS / 5):  # nor does a copy in a child leave it frozen
        frozen.set()
        os.kill(server_pid, signal.SIGSTOP)
        try:
            time.sleep(READ_TIMEOUT_S * 2)
        finally:
            os.kill(server_pid, signal.SIGCONT)
            frozen.clear()
        counts["freezes"] += 1


def fork_children(line: SyncConnection) -> None:
    while not stop.is_set():
        time.sleep(0.15)
        child = os.fork()
        if not child:
            os._exit(child_asks(line))
        status = wait_for(child)
        expect(status == 0, ("child", status))
        counts["children"] += 1


def child_asks(line: SyncConnection) -> int:
    """0 if the child got its own replies, over a connection of its own."""
    stop.set()  # under gevent the parent's greenlets go on here, as copies of themselves
    asked, seen = 0, len(wrong)
    before = line.stats()["connects"]
    for number in range(200):
        word = b"child:%d:%d" % (os.getpid(), number)
        try:
            reply = line.ask(pack(b"ECHO", word), None, READ)
        except EngineUnavailable:  # killed or frozen, as in the parent
            continue
        if reply != word:
            return 1
        asked += 1
    time.sleep(0.01 if GREEN else 0)  # lets the copies come to their ends
    if len(wrong) > seen:
        return 4
    return 0 if not asked or line.stats()["connects"] > before else 2


def wait_for(child: int) -> int:
    give_up_at = time.monotonic() + 120
    while time.monotonic() < give_up_at:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -99


def was_rough(lines: tuple[SyncConnection, ...]) -> bool:
    """Otherwise that nothing crossed says nothing; test_crossing.py asks for as much."""
    kinds = ("kills", "freezes", "children", "interrupted", "ReplyTimeout", "ConnectionFailed")
    stats = sum((collections.Counter(line.stats()) for line in lines), collections.Counter())
    enough = stats["connects"] > 10 and stats["again"] > 0 and counts["done"] > 500
    return enough and all(counts[kind] > 0 for kind in kinds)


def main() -> None:
    watchdog = threading.Timer(SECONDS * 4 + 180, say_late)
    watchdog.daemon = True
    watchdog.start()
    target = Target(read_timeout_s=READ_TIMEOUT_S, connect_timeout_s=READ_TIMEOUT_S, breaker_s=0.05)
    unix = SyncConnection(target, Address(path=PATH))
    tcp = SyncConnection(target, Address(host="127.0.0.1", port=PORT))
    with redis.Redis(unix_socket_path=PATH) as client:
        server_pid = int(client.info("server")["process_id"])
    workers = [Worker((unix, tcp)[me % 2], me) for me in range(WORKERS)]
    working = [threading.Thread(target=worker.run) for worker in workers]
    breaking = [
        threading.Thread(target=kill_connections),
        threading.Thread(target=freeze, args=(server_pid,)),
        threading.Thread(target=fork_children, args=(unix,)),
    ]
    for thread in working:
        thread.start()
    if not GREEN:
        breaking.append(threading.Thread(target=interrupt_threads, args=(working,)))
    for thread in breaking:
        thread.start()
    time.sleep(SECONDS)
    give_up_at = time.monotonic() + 60
    while not was_rough((unix, tcp)) and time.monotonic() < give_up_at:  # a slow host
        time.sleep(0.1)
    stop.set()
    for thread in breaking + working:
        thread.join()
    for line in (unix, tcp):  # it works as before, if not at once
        worker = Worker(line, -1)
        while True:
            try:
                worker.echo()
                break
            except EngineUnavailable:
                time.sleep(0.01)
    with redis.Redis(unix_socket_path=PATH) as client:
        counts["counter"] = int(client.get("counter") or 0)
    counts["acknowledged"] = sum(len(worker.acknowledged) for worker in workers)
    counts["uncertain"] = sum(len(worker.asked) for worker in workers) - counts["acknowledged"]
    stats = collections.Counter(unix.stats()) + collections.Counter(tcp.stats())
    print(json.dumps({"wrong": wrong[:5], "counts": counts, "stats": stats}))


if __name__ == "__main__":
    main()
