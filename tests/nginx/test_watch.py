"""A log is watched while a real nginx writes it: counted, listed, drawn, and ended politely."""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import random
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.cells import cell_len

from nearcache._core import NginxLog
from nearcache.cli import main
from nearcache.nginx.logs.follow import Follower
from nearcache.nginx.report.ledger import ledger
from nearcache.nginx.watch.fading import Amount, Fading, FadingTimes, by_upstream
from nearcache.nginx.watch.screen import Around, screen, summary
from nearcache.nginx.watch.watch import BY, Watch

from .conftest import PATIENCE_S, Nginx, StartNginx, Upstream
from .traffic import ask, site, slow

COMMAND = [sys.executable, "-m", "nearcache", "nginx", "watch"]
PATHS = ["/song/1", "/song/1", "/song/2", "/song/1", "/me", "/plain/x"]


@pytest.fixture
def busy(start_nginx: StartNginx, upstream: Upstream) -> Nginx:
    """nginx with a log of a few requests."""
    upstream.script = slow
    nginx = site(start_nginx, upstream)
    ask(nginx, PATHS)
    return nginx


def log_of(nginx: Nginx) -> Path:
    return nginx.directory / "json.log"


class Watching:
    """``watch --json`` of a file, in a process of its own."""

    def __init__(self, path: Path, *options: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, str(path), "--json", "--every", "0.2", *options],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout
        self.out = self.process.stdout
        self.last: Any = self.look()

    def look(self) -> Any:
        self.last = json.loads(self.out.readline())
        return self.last

    def until(self, seen: Callable[[Any], bool]) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while not seen(self.last):
            assert time.monotonic() < deadline, self.last
            self.look()
        return self.last

    def until_requests(self, count: int) -> Any:
        return self.until(lambda look: look["since_start"]["requests"] >= count)

    def end(self, number: int = signal.SIGINT) -> Any:
        """What it said last."""
        self.process.send_signal(number)
        rest = self.out.read().splitlines()
        assert self.process.wait(PATIENCE_S) == 0
        return json.loads(rest[-1]) if rest else self.last


@contextmanager
def watching(path: Path, *options: str) -> Iterator[Watching]:
    session = Watching(path, *options)
    try:
        yield session
    finally:
        session.process.kill()
        session.out.close()
        session.process.wait()


# -- a real nginx


def test_hits_and_misses_are_counted_from_the_end_at_prices_learned_before(busy: Nginx) -> None:
    with watching(log_of(busy), "--by", "reason") as session:
        assert session.last["since_start"]["requests"] == 0
        assert session.last["log"]["learned_from_lines"] == len(PATHS)
        ask(busy, ["/song/1", "/song/2", "/song/1", "/song/3", "/me"])
        since = session.until_requests(5)["since_start"]
        look = session.last
    assert (since["requests"], since["served"], since["cacheable"]) == (5, 3, 4)
    assert since["hit_ratio"] == 3 / 5
    assert since["cacheable_hit_ratio"] == 3 / 4
    reasons = {name: each["requests"] for name, each in look["why"].items()}
    assert reasons == {"compulsory": 1, "set_cookie": 1}, "the log before is the keys' past"
    assert since["saved_s"] > 3 * 0.02, "what fetches took before the start is known"
    assert since["upstream_s"] > 2 * 0.02
    assert {each["name"] for each in look["top"]} == {"compulsory", "set_cookie"}
    assert look["log"]["bad"] == 0


def test_seconds_saved_are_the_ledgers(busy: Nginx) -> None:
    ask(busy, ["/song/1"] * 5)
    with watching(log_of(busy), "--from-start", "--by", "group") as session:
        counted = session.last["since_start"]
        ended = session.end()
    log = NginxLog("json")
    log.feed(log_of(busy).read_bytes())
    found = ledger(log.result())
    assert found.total.saved
    assert counted["requests"] == found.total.requests
    assert counted["saved_s"] == pytest.approx(found.total.saved.seconds)
    assert counted["upstream_s"] == pytest.approx(found.total.upstream_s)
    assert found.span_s
    assert counted["seconds"] >= found.span_s, "a backlog lasted as long as its times say"
    assert ended["since_start"]["requests"] == counted["requests"]


def test_rotations_by_rename_and_by_truncation_are_survived_and_counted(busy: Nginx) -> None:
    log = log_of(busy)
    with watching(log) as session:
        ask(busy, ["/song/1"])
        session.until_requests(1)
        log.rename(log.with_suffix(".log.1"))
        busy.get("/song/1")  # into the old file: nginx was not told yet
        busy.reopen(log)
        ask(busy, ["/song/1", "/song/2"])
        look = session.until_requests(4)
        assert (look["log"]["rotations"], look["log"]["truncations"]) == (1, 0)
        shutil.copy(log, log.with_suffix(".log.2"))
        os.truncate(log, 0)
        session.until(lambda look: look["log"]["truncations"] == 1)
        ask(busy, ["/song/1"])
        look = session.until_requests(5)
    assert look["since_start"]["requests"] == look["since_start"]["served"] == 5
    assert look["log"]["bad"] == 0


def test_a_half_written_line_is_waited_for_and_a_bad_one_counted(
    busy: Nginx, tmp_path: Path
) -> None:
    line = log_of(busy).read_bytes().splitlines(keepends=True)[1]
    path = tmp_path / "half.log"
    path.write_bytes(b"a bad one from before\n" + line * 2 + line[:40])
    with watching(path) as session:
        assert (session.last["log"]["lines"], session.last["log"]["bad"]) == (0, 0)
        with path.open("ab") as log:
            log.write(line[40:] + line[:99])
        look = session.until_requests(1)
        assert (look["log"]["lines"], look["log"]["bad"]) == (1, 0)
        with path.open("ab") as log:
            log.write(line[99:] + b"no line of this format\n")
        session.until_requests(2)
        look = session.end(signal.SIGTERM)
    assert (look["log"]["lines"], look["log"]["bad"]) == (3, 1)
    assert look["since_start"]["requests"] == 2


def test_an_empty_log_is_waited_for(tmp_path: Path, busy: Nginx) -> None:
    path = tmp_path / "empty.log"
    path.touch()
    process = subprocess.Popen(
        [*COMMAND, str(path), "--lines", "1", "--every", "30"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr
    assert process.stdout
    try:
        assert b"no lines yet; waiting" in process.stderr.readline()
        with path.open("ab") as log:
            log.write(log_of(busy).read_bytes())
        assert process.stdout.readline().split()[:3] == [b"time", b"requests/s", b"hits_%"]
        process.send_signal(signal.SIGINT)
        summary = process.communicate(timeout=PATIENCE_S)[1].decode()
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()
    assert "6 requests" in summary


@pytest.mark.parametrize("options", [["--once"], ["--lines", "2"], ["--once", "--from-start"]])
def test_an_empty_log_is_not_waited_for_longer_than_was_asked(
    tmp_path: Path, options: list[str]
) -> None:
    path = tmp_path / "empty.log"
    path.touch()
    command = ["nginx", "watch", str(path), "--every", "0.1", *options]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 2
    assert "no lines came in this time, and none were there" in done.stderr
    if "--from-start" not in options:
        done = CliRunner().invoke(main, [*command, "--format", "json"])
        assert done.exit_code == 0, done.output
        assert done.stdout.splitlines()[1].split()[1] == "0.0"


def test_a_pipe_that_says_nothing_is_not_waited_for_longer_than_was_asked() -> None:
    with subprocess.Popen(
        [*COMMAND, "-", "--once", "--every", "0.1"], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr
        assert b"no lines came in this time" in process.stderr.read()
        assert process.wait(PATIENCE_S) == 2


# -- a terminal

SGR = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
    """``watch`` on a pseudo-terminal that is also its controlling one, so that Ctrl-C works."""

    def __init__(
        self, path: Path, columns: int = 80, rows: int = 24, within: Sequence[str] = ()
    ) -> None:
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(theirs)
        hidden = ("COLUMNS", "LINES")
        environment = {k: v for k, v in os.environ.items() if k not in hidden} | {"TERM": "xterm"}
        self.process = subprocess.Popen(
            [*within, *COMMAND, str(path), "--every", "0.2"],
            stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        self.theirs = theirs
        self.seen = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def until(self, text: str) -> None:
        """Reads on until the newest frame says so."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.frames()[-1]:
            assert time.monotonic() < deadline, self.seen[-4000:]
            self.read()

    def read(self) -> None:
        if select.select([self.ours], [], [], 0.1)[0]:
            # What is there may end within a character.
            self.seen += self._decoder.decode(os.read(self.ours, 65536))

    def frames(self) -> list[str]:
        """Every screen that was drawn: rich goes to the upper left corner for each."""
        return [SGR.sub("", each) for each in self.seen.split("\x1b[H")]

    def press(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def end(self) -> tuple[int, str]:
        """The exit code, and what stands there after the screen is gone."""
        deadline = time.monotonic() + PATIENCE_S
        while (code := self.process.poll()) is None:  # it may wait for somebody who reads
            assert time.monotonic() < deadline, self.seen[-4000:]
            self.read()
        while select.select([self.ours], [], [], 0)[0]:
            self.read()
        return code, SGR.sub("", self.seen.rpartition("\x1b[?1049l")[2])

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)


@pytest.fixture
def terminal(busy: Nginx) -> Iterator[Terminal]:
    terminal = Terminal(log_of(busy))
    yield terminal
    terminal.close()


def test_the_screen_fits_80x24_and_q_ends_it(busy: Nginx, terminal: Terminal) -> None:
    terminal.until("keys: q quit")
    ask(busy, ["/song/1", "/song/1", "/song/9", "/me"])
    terminal.until("4 requests, 2 from the cache")
    terminal.until("/song/9")
    terminal.press("r")
    terminal.until("the response sets a cookie")
    terminal.press("g")
    terminal.until("/song/<n>")
    terminal.press("q")
    code, after = terminal.end()
    assert code == 0
    assert "4 requests, 50.0% from the cache" in " ".join(after.split())
    assert termios.tcgetattr(terminal.theirs) == terminal.before, "the terminal is as it was"
    assert "\x1b[?1049h" in terminal.seen
    frames = terminal.frames()[1:-1]
    assert frames
    for frame in frames:
        lines = frame.split("\r\n")
        assert len(lines) <= 24
        assert max(map(cell_len, lines)) <= 80, frame


def test_ctrl_c_ends_it_with_a_summary(busy: Nginx, terminal: Terminal) -> None:
    terminal.until("keys: q quit")
    ask(busy, ["/song/1", "/song/7"])
    terminal.press("\x03")
    code, after = terminal.end()
    assert code == 0
    said = " ".join(after.split())
    assert "2 requests, 50.0% from the cache" in said, "what came since the last look, too"
    assert "The cache saved" in said
    assert "asked for the first time" in said
    assert "Traceback" not in terminal.seen
    assert termios.tcgetattr(terminal.theirs) == terminal.before


STOPS_AND_GOES_ON = """
"$@"
echo the shell has it
read -r
fg >/dev/null
"""


def test_ctrl_z_gives_the_terminal_back_until_fg(busy: Nginx) -> None:
    shell = ["bash", "-mc", STOPS_AND_GOES_ON, "bash"]  # -m: as a shell that people type into
    terminal = Terminal(log_of(busy), within=shell)
    try:
        terminal.until("keys: q quit")
        terminal.press("\x1a")
        terminal.until("the shell has it")
        assert terminal.seen.count("\x1b[?1049h") == terminal.seen.count("\x1b[?1049l") == 1
        assert termios.tcgetattr(terminal.theirs)[3] == terminal.before[3], "lines are echoed again"
        ask(busy, ["/song/1"])
        terminal.press("\n")
        terminal.until("1 request, 1 from the cache")
        assert terminal.seen.count("\x1b[?1049h") == 2, "on a screen of its own again"
        terminal.press("q")
        code, after = terminal.end()
        assert code == 0
        assert "1 request, 100.0% from the cache" in " ".join(after.split())
    finally:
        terminal.close()


# -- scripts


def test_lines_are_columns_and_standard_input_ends_it(busy: Nginx) -> None:
    done = subprocess.run(
        [*COMMAND, "-"], input=log_of(busy).read_bytes(), capture_output=True, check=True
    )
    head, line = done.stdout.decode().splitlines()
    named = dict(zip(head.split(), line.split(), strict=True))
    assert named["hits_%"] == "33.3"
    assert named["bad"] == "0"
    assert b"Watched standard input" in done.stderr


def test_what_a_log_cannot_tell_is_a_dash_and_said(busy: Nginx) -> None:
    text = (busy.directory / "combined.log").read_bytes()
    done = subprocess.run([*COMMAND, "-"], input=text, capture_output=True, check=True)
    head, line = done.stdout.decode().splitlines()
    named = dict(zip(head.split(), line.split(), strict=True))
    assert named["hits_%"] == named["saved_s/s"] == named["upstream_s/s"] == "-"
    assert b"add $upstream_cache_status" in done.stderr


def test_what_cannot_be_watched_is_refused_in_one_line(tmp_path: Path) -> None:
    packed = tmp_path / "packed.log"
    packed.write_bytes(b"\x1f\x8b\x08 and so on")
    empty = tmp_path / "empty.log"
    empty.touch()
    for given, says in (
        ([str(empty), "--seconds", "0.1"], "no lines came in this time"),
        ([str(tmp_path / "gone.log")], "does not exist"),
        ([str(packed)], "is packed: nginx writes nothing to it"),
        (["-", str(packed)], "standard input can be watched alone only"),
    ):
        done = CliRunner().invoke(main, ["nginx", "watch", *given])
        assert done.exit_code == 2
        assert says in done.output
        assert done.output.splitlines()[-1].startswith("nearcache: ")
        assert "Traceback" not in done.output


# -- without files


def lines(chance: random.Random, count: int) -> bytes:
    """A log of everything that a screen must stand."""
    nasty = ["/\x1b[2J", "/歌曲" * 30, "/\u202eabc", "/a\tb", "/ok", "/" + "x" * 300]
    written = []
    for n in range(count):
        status = chance.choice(["HIT", "HIT", "MISS", "EXPIRED", "BYPASS", "UPDATING", "-", "?"])
        took = chance.choice([0.0, 0.001, 0.002, 0.017, 0.4, 3.0, 200.0])
        row = {
            "msec": f"{1000 + n / 10:.3f}",
            "request_time": f"{took:.3f}",
            "upstream_response_time": "" if status == "HIT" else f"{took:.3f}",
            "upstream_cache_status": status,
            "request_method": "GET",
            "request_uri": f"{chance.choice(nasty)}/{chance.randrange(99)}",
            "status": "200",
            "body_bytes_sent": str(chance.randrange(10**9)),
        }
        written.append(json.dumps(row, ensure_ascii=False))
    return "\n".join([*written, ""]).encode()


def test_any_screen_stays_in_its_terminal_and_shows_nothing_raw() -> None:
    chance = random.Random(3)
    log, watch = NginxLog("json", watched=True), Watch(10.0)
    for look in range(40):
        notes = ["one thing", "another " * 20] if look % 2 else []
        for _ in range(12):
            columns, rows = chance.randrange(20, 140), chance.randrange(3, 70)
            around = Around("/var/log/" + "n" * 40, "12:34:56", chance.choice(BY), notes)
            drawn = screen(watch, around, columns, rows).plain
            shown = drawn.split("\n")
            assert len(shown) <= rows
            assert max(map(cell_len, shown)) <= columns, drawn
            assert all(each.isprintable() for each in shown), drawn
        log.feed(lines(chance, 50))
        watch.take(log.take_recent(), 1.0)
    assert "all 40 s" in drawn or rows < 4
    assert all(each.isprintable() for each in summary(watch, "log", []))


def test_urls_have_their_hosts_as_soon_as_there_are_several() -> None:
    log, watch = (
        NginxLog("$msec $upstream_cache_status $host $request_uri", watched=True),
        Watch(10.0),
    )
    log.feed(b"1 MISS a.example /x\n")
    watch.take(log.take_recent(), 1.0)
    assert [name for name, _ in watch.top("url", 9)] == ["/x"]
    log.feed(b"2 MISS a.example /y\n3 MISS b.example /y\n")
    watch.take(log.take_recent(), 1.0)
    assert {name for name, _ in watch.top("url", 9)} == {"/x", "a.example/y", "b.example/y"}


def test_now_is_the_window_and_since_is_everything() -> None:
    chance = random.Random(4)
    log, watch = NginxLog("json", watched=True), Watch(10.0)
    for _ in range(30):
        log.feed(lines(chance, 20))
        watch.take(log.take_recent(), 1.0)
    assert (watch.now.seconds, watch.now.requests) == (10.0, 200)
    assert (watch.since.seconds, watch.since.requests) == (30.0, 600)
    assert watch.since.rates(watch.knows).requests_per_s == 20
    for _ in range(10):
        watch.take(log.take_recent(), 1.0)
    assert watch.now.requests == 0
    assert watch.now.rates(watch.knows).hit_ratio is None
    assert list(watch.hit_ratios)[-10:] == [None] * 10
    assert watch.since.requests == log.result()["total"]["requests"] == 600


def test_a_list_has_rates_that_are_right_at_once_and_forgets() -> None:
    fading = Fading(10.0)
    for _ in range(3):
        fading.fade(1.0)
        fading.add("steady", Amount(requests=7, upstream_s=0.5))
        assert fading.sums["steady"].requests / fading.seconds == pytest.approx(7)
    fading.fade(10.0)
    assert fading.sums["steady"].requests / fading.seconds < 7 / 3
    fading.fade(200.0)
    assert fading.sums == {}


def test_what_too_many_names_had_is_counted_and_shown() -> None:
    fading = Fading(10.0, keeps=10)
    fading.fade(1.0)
    for n in range(100):
        fading.add(f"/{n}", Amount(requests=1, upstream_s=n))
        fading.total.add(Amount(requests=1, upstream_s=n))
    fading.cut(by_upstream)
    assert [name for name, _ in fading.top(2, by_upstream)] == ["/99", "/98"]
    assert (len(fading.sums), fading.dropped) == (10, 90)
    assert fading.unlisted().requests == 90
    kept = sum(each.upstream_s for each in fading.sums.values())
    assert fading.unlisted().upstream_s == pytest.approx(fading.total.upstream_s - kept)

    log, watch = NginxLog("json", watched=True), Watch(10.0)
    row = (
        '{{"request_uri":"/{}","request_method":"GET","upstream_cache_status":"MISS",'
        '"upstream_response_time":"0.1"}}\n'
    )
    for look in range(3):
        log.feed("".join(row.format(1000 * look + n) for n in range(1000)).encode())
        watch.take(log.take_recent(), 1.0)
    assert len(watch.lists["url"].sums) == 1000
    assert watch.lists["url"].dropped == 2000
    shown = screen(watch, Around("log", "", "url"), 80, 24).plain
    assert re.search(r"too many names: \d\d\.\d% of it is not listed", shown)


def test_times_of_whole_milliseconds_make_no_comb() -> None:
    times = FadingTimes()
    times.add([(ms * 1000, 100) for ms in range(1, 200)])
    filled = [each for each in times.bins[1:-1] if each]
    assert sum(times.bins) == pytest.approx(199 * 100)
    assert all(each > 1 for each in filled)
    neighbours = zip(times.bins, times.bins[1:], times.bins[2:], strict=False)
    assert not any(a and not b and c for a, b, c in neighbours)
    times.add([(0, 5), (10**9, 6)])
    assert (times.bins[0], times.bins[-1]) == (5, 6)


def test_a_follower_skips_to_the_last_whole_line_and_keeps_what_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_bytes(b"".join(b"line %d\n" % n for n in range(1000)) + b"half")
    for keep, first in ((10**6, b"line 0\n"), (30, b"line 998\n"), (0, b"")):
        follower = Follower(str(path), os.open(path, os.O_RDONLY))
        past = follower.skip(keep)
        assert past.startswith(first)
        assert past == b"" or past.endswith(b"line 999\n")
        assert len(past) <= keep
        assert follower.read() == b"", "half a line is waited for"
        follower.close()
