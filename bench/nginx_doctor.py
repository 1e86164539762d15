"""The rows of the nginx doctor: a log, a replay, a purge; beside what people use today.

    log      `nearcache nginx report --json`, the whole process; the native pass alone, inside
             this process; GoAccess with all of its panels, as JSON; `wc -l`, which only reads
    replay   a Zipf load under three sets of rules, from Python, one call each
    purge    one known URL of a full directory: from Python, as a process, and by find and grep;
             beside a Python that does nothing

Every arm runs on the one core that this process is pinned to, in turns in random order, on
files in memory (tmpfs): no disk is measured. What each arm found is checked before it counts.
The two reports are not the same work: GoAccess counts visitors, referrers and browsers, ours URL
groups, repeats and lengths. Both read every line and every field of the format.
"""

from __future__ import annotations

import json
import math
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from bench.measure import Arm, Points, interleaved
from bench.nginx_input import (
    LEVELS,
    TRACE_FORMAT,
    TTL_S,
    fill,
    repeated_log,
    store,
    url_of,
    zipf_log,
)
from nearcache import _core
from nearcache.lab.statistics.bootstrap import Medians
from nearcache.lab.statistics.stats import ALPHA, effect_of, interval_of
from nearcache.nginx.cachedir.directory import CacheDir
from nearcache.nginx.logs.files import Logs
from nearcache.nginx.purge.purge import Purger
from nearcache.nginx.purge.receipt import How
from nearcache.nginx.whatif.rules import Change, Frame, Place, Today, Zone, replay_rules

NEARCACHE = (sys.executable, "-m", "nearcache", "nginx")
# What the project promises, on one core.
LINES_PER_S = 2_000_000
REPLAYED_PER_S = 2_000_000
PURGE_S = 0.005
TIMES_GOACCESS = 15

INSTALL_GOACCESS = "goaccess is not installed; install with: sudo apt-get install goaccess"


@dataclass(frozen=True)
class Sizes:
    """How much is measured. ``quick`` figures mean nothing."""

    lines: int = 1_000_000
    requests: int = 2_000_000
    keys: int = 200_000
    entries: int = 100_000
    purges: int = 100  # in a round
    rounds: int = 9
    agent_entries: int = 1_000_000
    agent_seconds: int = 60

    @classmethod
    def quick(cls) -> Sizes:
        return cls(
            lines=2000,
            requests=5000,
            keys=500,
            entries=500,
            purges=5,
            rounds=2,
            agent_entries=500,
            agent_seconds=1,
        )


@dataclass(frozen=True)
class Took:
    """What an arm took: the median over rounds, with its 95 % interval."""

    table: str
    name: str
    seconds: float
    low: float
    high: float
    count: int  # lines, requests or purges that this is for
    at_least: float = 0  # promised, a second

    @property
    def per_second(self) -> float:
        return self.count / self.seconds


@dataclass(frozen=True)
class Ratio:
    """How many times longer ``against`` takes than ``name``, in the same rounds."""

    table: str
    name: str
    against: str
    ratio: float
    low: float
    high: float
    promised: float


@dataclass(frozen=True)
class Latencies:
    """Answers of a server, in seconds. Promised is that none fails."""

    table: str
    name: str
    count: int
    failed: int
    p50: float
    p99: float
    longest: float


@dataclass(frozen=True)
class Missing:
    """What was not measured, and what to do about it."""

    table: str
    missing: str


Row = Took | Ratio | Latencies | Missing


def rows(where: Path, source: Path | None, sizes: Sizes) -> Iterator[Row]:
    """Measures table by table.

    Args:
        source: a combined log, whose lines are repeated; else made ones.
    """
    yield from log_rows(where, source, sizes)
    yield from replay_rows(sizes)
    yield from purge_rows(where, sizes)


# -- a log


def log_rows(where: Path, source: Path | None, sizes: Sizes) -> Iterator[Row]:
    table = f"log: {sizes.lines:,} combined lines, {source.name if source else 'made'} repeated"
    log, counted = where / "access.log", sizes.lines
    repeated_log(log, source, counted)
    arms: dict[str, Callable[[], object]] = {
        "nearcache nginx report": lambda: check(report(log), counted),
        "the native pass alone": lambda: check(log_pass(log), counted),
        "wc -l": lambda: check(int(output("wc", "-l", log).split()[0]), counted),
    }
    if shutil.which("goaccess"):
        arms["goaccess"] = lambda: check(goaccess(log, where / "goaccess.json"), counted)
    else:
        yield Missing(table, INSTALL_GOACCESS)
    points = warmed({name: timed(arm) for name, arm in arms.items()}, sizes)
    yield from arms_of(table, points, counted, {"the native pass alone": LINES_PER_S})
    if "goaccess" in points:
        yield ratio_of(table, points, "nearcache nginx report", "goaccess", promised=TIMES_GOACCESS)
    yield ratio_of(table, points, "wc -l", "the native pass alone")
    log.unlink()


def report(log: Path) -> int:
    """The lines that it read."""
    found = json.loads(output(*NEARCACHE, "report", "--json", "--format", "combined", log))["log"]
    return well_read(int(found["lines"]), int(found["bad"]))


def log_pass(log: Path) -> int:
    found = _core.NginxLog("combined")
    for chunk in Logs([str(log)]).chunks():
        found.feed(chunk)
    found.finish()
    result = found.result()
    return well_read(result["lines"], result["bad"])


def well_read(lines: int, bad: int) -> int:
    """A line that fits no format costs less; real logs have a few that were cut."""
    assert bad <= lines / 1000, f"{bad:,} of {lines:,} lines are no combined ones"
    return lines


def goaccess(log: Path, to: Path) -> int:
    """All panels; no progress, no names of hosts, no places, and no settings of this machine."""
    options = ("--log-format=COMBINED", "--no-global-config", "--no-progress", "-o", str(to))
    output("goaccess", str(log), *options)
    found = json.loads(to.read_bytes())["general"]
    return well_read(int(found["total_requests"]), int(found["failed_requests"]))


# -- a replay


def replay_rows(sizes: Sizes) -> Iterator[Row]:
    table = f"replay: {sizes.requests:,} requests, Zipf over {sizes.keys:,} URLs"
    today = Today(zones=(Zone(inactive_s=3600),), places=(Place(valid=((200, TTL_S),), lock=True),))
    log = zipf_log(sizes.requests, sizes.keys)
    trace = traced(log, today)
    changes = {
        "as it is": Change(),
        "ttl 1h, max_size 64m": Change(ttl_s=3600, max_size=64 << 20),
        "key lower,sort-args,drop=n": Change(key="lower,sort-args,drop=n"),
    }
    arms = {name: timed(partial(replay, trace, today, each)) for name, each in changes.items()}
    arms["reading the log for it"] = timed(lambda: traced(log, today))
    points = warmed(arms, sizes)
    yield from arms_of(table, points, sizes.requests, dict.fromkeys(changes, REPLAYED_PER_S))


def traced(log: bytes, today: Today) -> _core.NginxTrace:
    valid = [(place.valid, place.ignore_headers) for place in today.places]
    trace = _core.NginxTrace(TRACE_FORMAT, valid=valid, sample_by="lower,sort-args,drop=n")
    trace.feed(log)
    trace.finish()
    return trace


def replay(trace: _core.NginxTrace, today: Today, change: Change) -> None:
    facts = trace.facts()
    outcome = trace.replay(replay_rules(today, change, Frame(rate=facts["rate"])))
    check(sum(outcome["all"]["requests"].values()), facts["lines"])
    assert outcome["all"]["requests"]["HIT"] > 0


# -- a purge


def purge_rows(where: Path, sizes: Sizes) -> Iterator[Row]:
    table = f"purge: one known URL of {sizes.entries:,} entries"
    root = where / "cache"
    root.mkdir()
    fill(root, sizes.entries)
    purging = Purging(root, sizes)
    points = warmed(
        {
            "Python, soft": partial(purging.from_python, "soft"),
            "Python, hard": partial(purging.from_python, "hard"),
            "nearcache nginx purge URL": purging.by_url,
            "nearcache nginx purge --key": purging.by_key,
            "find, grep, rm": purging.by_grep,
            "python -c pass": timed(lambda: output(sys.executable, "-c", "pass")),
        },
        sizes,
    )
    per_second = 1 / PURGE_S
    promised = {"Python, soft": per_second, "Python, hard": per_second}
    yield from arms_of(table, points, 1, promised)
    yield ratio_of(table, points, "nearcache nginx purge URL", "find, grep, rm")
    yield ratio_of(table, points, "Python, soft", "find, grep, rm")
    shutil.rmtree(root)


class Purging:
    """Each arm takes entries at random; they are put back when its time was taken."""

    def __init__(self, root: Path, sizes: Sizes) -> None:
        self.root = root
        self.sizes = sizes
        self.chance = random.Random(3)

    def from_python(self, how: How) -> float:
        numbers = self.chance.sample(range(self.sizes.entries), self.sizes.purges)
        keys = [url_of(number).encode() for number in numbers]
        with CacheDir(self.root, follow=False) as directory:
            purger = Purger(directory, how=how)
            began = time.perf_counter_ns()
            for key in keys:
                purger.purge_key(key, LEVELS)
            took_ns = time.perf_counter_ns() - began
            assert all(is_over(directory, key, how) for key in keys)
        for number in numbers:
            store(self.root, number)
        return took_ns / len(keys)

    def by_url(self) -> float:
        return self._once("soft", self._nearcache)

    def by_key(self) -> float:
        return self._once("soft", lambda url: self._nearcache("--levels", "1:2", "--key", url))

    def by_grep(self) -> float:
        """What answers to "how do I purge one URL" have said for years."""

        def act(url: str) -> None:
            search = f"grep -lFx 'KEY: {url}'"
            command = f"find {self.root} -type f -print0 | xargs -0 {search} | xargs -r rm"
            # xargs says 123 where grep found nothing in some of its files.
            subprocess.run(["sh", "-c", command], check=False, stdout=subprocess.DEVNULL)

        return self._once("hard", act)

    def _nearcache(self, *words: str) -> None:
        output(*NEARCACHE, "purge", "--cache", self.root, "--yes", "--json", *words)

    def _once(self, how: How, act: Callable[[str], None]) -> float:
        number = self.chance.randrange(self.sizes.entries)
        url = url_of(number)
        began = time.perf_counter_ns()
        act(url)
        took_ns = time.perf_counter_ns() - began
        with CacheDir(self.root) as directory:
            assert is_over(directory, url.encode(), how), f"{url} was not purged"
        store(self.root, number)
        return took_ns


def is_over(directory: CacheDir, key: bytes, how: How) -> bool:
    found = directory.find(key, LEVELS)
    return (
        found is None if how == "hard" else bool(found and found.entry.time_left(time.time()) < 0)
    )


# -- all of them


def output(*command: object) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return done.stdout.decode()


def check(found: int, expected: int) -> None:
    """A tool that left lines out would look fast."""
    assert found == expected, f"{found:,} of {expected:,} were read"


def timed(act: Callable[[], object]) -> Arm:
    def take() -> float:
        began = time.perf_counter_ns()
        act()
        return time.perf_counter_ns() - began

    return take


def warmed(arms: Mapping[str, Arm], sizes: Sizes) -> dict[str, Points]:
    """What they took in turns, after each has run once for nothing."""
    for arm in arms.values():
        arm()
    return interleaved(arms, sizes.rounds)


def arms_of(
    table: str,
    points: Mapping[str, Points],
    count: int,
    at_least: Mapping[str, float] | None = None,
) -> Iterator[Took]:
    for name, rounds in points.items():
        seconds = [nanoseconds / 1e9 for nanoseconds in rounds.values()]
        interval = interval_of(Medians([[math.log(each) for each in seconds]]), ALPHA)
        low, high = map(math.exp, interval)
        promised = (at_least or {}).get(name, 0)
        yield Took(table, name, median(seconds), low, high, count, promised)


def ratio_of(
    table: str, points: Mapping[str, Points], name: str, against: str, promised: float = 0
) -> Ratio:
    effect = effect_of({0: points[against]}, {0: points[name]})
    assert effect is not None
    return Ratio(table, name, against, effect.ratio, effect.low, effect.high, promised)
