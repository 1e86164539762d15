"""The line under gevent: crowds, time limits, greenlets that are killed, native threads.

Each test is a program, because gevent patches the whole process.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from tests.redis.servers import Server

ROOT = Path(__file__).parents[2]
HEAD = """
from gevent import monkey; monkey.patch_all()
import sys, threading, time, gevent
from nearcache.engines.redis.connection.sync_connection import SyncConnection
from nearcache.engines.redis.protocol.resp import pack
from nearcache.engines.redis.target.target import Address, Target
from nearcache.engines.redis.contract import ONCE, READ, SAFE
from nearcache.errors import ConnectionFailed, ReplyTimeout

def line_of(**settings):
    return SyncConnection(Target(**settings), Address(path=sys.argv[1]))

def echo(line, word):
    return line.ask(pack(b"ECHO", word), None, READ)

def queued(line, count):
    while len(line._state.queue) < count or not line._state.lead:
        gevent.sleep(0.001)

line = line_of(read_timeout_s=20.0, connect_timeout_s=20.0)
"""


def run(server: Server, program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", HEAD + textwrap.dedent(program), server.path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert (done.returncode, done.stderr[-3000:]) == (0, "")


def test_a_crowd_gets_its_own_replies_over_one_connection(server: Server) -> None:
    run(
        server,
        """
        def work(me):
            for number in range(10):
                word = b"%d:%d" % (me, number)
                with gevent.Timeout(60):
                    assert echo(line, word) == word
        greenlets = [gevent.spawn(work, me) for me in range(1000)]
        gevent.joinall(greenlets, raise_error=True)
        stats = line.stats()
        assert stats["connects"] == 1
        # At least two share a round; how many more depends on how soon the server answers.
        assert stats["rounds"] < 5000, stats
        """,
    )


def test_of_a_round_whose_leader_was_interrupted_only_reads_are_certain(server: Server) -> None:
    """The server is frozen and does not answer whoever leads on either: nothing is repeated."""
    run(
        server,
        """
        import os, signal
        line = line_of(read_timeout_s=0.3, connect_timeout_s=0.3, breaker_failures=0)
        while True:
            try:
                info = line.ask(pack(b"INFO", b"server"))
                break
            except (ReplyTimeout, ConnectionFailed):  # a slow host
                pass
        pid = int(dict(l.split(b":", 1) for l in info.splitlines() if b":" in l)[b"process_id"])
        done = {}
        def ask(name, command, safety, seconds=None):
            try:
                with gevent.Timeout(seconds):
                    done[name] = line.ask(command, None, safety)
            except (gevent.Timeout, ReplyTimeout, ConnectionFailed) as error:
                done[name] = f"{type(error).__name__}: {error}"
        os.kill(pid, signal.SIGSTOP)
        # One that leads, alone; then a round of four whose first is interrupted.
        first = gevent.spawn(ask, "first", pack(b"PING"), ONCE, 0.05)
        while not line._state.lead:
            gevent.sleep(0.001)
        rest = [gevent.spawn(ask, "set", pack(b"SET", b"k", b"v"), SAFE),
                gevent.spawn(ask, "incr", pack(b"INCR", b"n"), ONCE),
                gevent.spawn(ask, "get", pack(b"GET", b"k"), READ)]
        gevent.joinall([first, *rest])
        os.kill(pid, signal.SIGCONT)
        assert done.pop("first").startswith("Timeout"), done
        assert all(str(reply).startswith("ReplyTimeout") for reply in done.values()), done
        """,
    )


def test_a_waiter_that_gives_up_leaves_its_place_and_its_reply(server: Server) -> None:
    run(
        server,
        """
        done = []
        def ask(word, seconds):
            try:
                with gevent.Timeout(seconds):
                    done.append(echo(line, word))
            except gevent.Timeout:
                done.append(None)
        leader = gevent.spawn(line.ask, pack(b"BLPOP", b"list", b"0"), None, ONCE)
        while not line._state.lead:
            gevent.sleep(0.001)
        waiting = [gevent.spawn(ask, b"a", 0.02), gevent.spawn(ask, b"b", 60)]
        queued(line, 2)
        waiting[0].join()
        assert done == [None]
        line_of(read_timeout_s=20.0).ask(pack(b"RPUSH", b"list", b"go"))
        gevent.joinall([leader, *waiting], raise_error=True)
        assert leader.value == [b"list", b"go"]
        assert done == [None, b"b"]
        assert line.stats()["connects"] == 1
        """,
    )


def test_native_threads_beside_greenlets(server: Server) -> None:
    """A gevent socket belongs to the thread that made it."""
    run(
        server,
        """
        wrong = []
        def work(me):
            for number in range(100):
                word = b"%d:%d" % (me, number)
                if echo(line, word) != word:
                    wrong.append(word)
                gevent.sleep(0)
        pool = gevent.get_hub().threadpool
        native = [pool.spawn(work, 1000 + me) for me in range(4)]
        green = [gevent.spawn(work, me) for me in range(20)]
        gevent.joinall(green, raise_error=True)
        for each in native:
            each.get()
        assert wrong == []
        """,
    )


def test_a_waiter_is_told_after_its_time_limit(server: Server) -> None:
    run(
        server,
        """
        line._wait_s = 0.1
        line._state.lead[0] = object()
        started = time.monotonic()
        try:
            echo(line, b"x")
            raise AssertionError
        except ReplyTimeout:
            assert 0.09 < time.monotonic() - started
        line._wait_s = 40.0
        assert echo(line, b"x") == b"x"
        """,
    )
