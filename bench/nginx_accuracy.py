"""What the nginx doctor says, against what nginx then does: forecast, real, error.

    one plan of requests ──> today's nginx ──> its log ──> report, misses, whatif
                        ├──> nginx without a cache ──> what the hits would have taken
                        └──> an nginx for each rule ──> its log: what the rule really does

All get each request at the same moment, from one origin: some pages are slow, one slow page has
many hits, pages are asked for in several spellings, and below /api/ hosts have entries of their
own. The origin, a process of its own, waits as long as a page takes, so that a busy machine changes
little; nobody asks about the turn of a second, when lifetimes end (``tests/nginx/loads.py``).
"""

from __future__ import annotations

import multiprocessing
import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection
from itertools import accumulate
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from nearcache.nginx.logs.served import SERVED
from nearcache.nginx.misses.misses import KEY_RULES
from tests.nginx.conftest import PATIENCE_S, Answer, Nginx, Upstream, wait_for
from tests.nginx.loads import CALM
from tests.nginx.spellings import map_of, spelled
from tests.nginx.traffic import count_lines, run_json

TTL_S = 4
FORMAT = (
    "$msec $request_time $upstream_response_time $upstream_cache_status $status $body_bytes_sent "
    "$upstream_bytes_received $request_method $scheme $host $request_uri "
    "$upstream_http_cache_control $upstream_http_set_cookie $http_x_number"
)
HOSTS = ("a.example", "b.example")
CONNECTIONS = 16
BOTH = f"{KEY_RULES['tracking']},{KEY_RULES['case']}"
TABLE = "accuracy: what was forecast from one nginx, and what others did"

Plan = list[tuple[float, str, str]]  # seconds after the begin, host, target


@dataclass(frozen=True)
class Accuracy:
    """One figure: ``unit`` is ``s``, ``requests`` or ``%``; of ratios the error is in points."""

    table: str
    name: str
    unit: str
    forecast: float
    real: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Variant:
    """What an nginx has that today's has not. ``option``: the same for ``whatif``."""

    lines: str = ""
    keys: str = ""
    ttl_s: int = TTL_S
    option: tuple[str, ...] = ()
    cached: bool = True


@dataclass(frozen=True)
class Line:
    status: str
    upstream_s: float


Logged = Mapping[str, Mapping[int, Line]]  # by variant, and by the number of the request

VARIANTS: Mapping[str, Variant] = {
    "today": Variant(),
    "no cache": Variant(cached=False),
    f"ttl {3 * TTL_S}s": Variant(ttl_s=3 * TTL_S, option=("--ttl", f"{3 * TTL_S}s")),
    "lock": Variant("proxy_cache_lock on;", option=("--lock",)),
    "background update": Variant(
        "proxy_cache_use_stale updating; proxy_cache_background_update on;",
        option=("--background-update",),
    ),
    "min_uses 2": Variant("proxy_cache_min_uses 2;", option=("--min-uses", "2")),
    "keys without utm_*": Variant(
        keys=KEY_RULES["tracking"], option=("--key", KEY_RULES["tracking"])
    ),
    "keys in lower case": Variant(keys=KEY_RULES["case"], option=("--key", KEY_RULES["case"])),
    "both rules for keys": Variant(keys=BOTH, option=("--key", BOTH)),
}
ALONE = {"leave utm_*": "keys without utm_*", "spell the key": "keys in lower case"}


def rows(seconds: int, requests: int) -> Iterator[Accuracy]:
    """Two loads of so many seconds: seconds saved are measured with nobody else at the origin."""
    plan = plan_of(seconds, requests)
    names = list(VARIANTS)
    with logged(names[:2], plan) as (today, logs):
        yield from _of_report(today, logs)
    with logged([names[0], *names[2:]], plan) as (today, logs):
        yield from _of_misses(today, logs)
        yield from _of_whatif(today, logs)


@contextmanager
def logged(names: Sequence[str], plan: Plan) -> Iterator[tuple[Nginx, Logged]]:
    """The first nginx of these, and what all of them logged of the plan."""
    targets = [target for _, _, target in plan]
    with ExitStack() as stack:
        port = stack.enter_context(origin_at())
        started: list[Nginx] = []
        for name in names:
            started.append(_start(VARIANTS[name], port, targets))
            stack.callback(started[-1].box.__exit__)
        send([nginx.port for nginx in started], plan)
        for nginx in started:
            log = nginx.directory / "all.log"
            assert wait_for(partial(has_lines, log, len(plan))), nginx.errors
        yield started[0], {name: read(each) for name, each in zip(names, started, strict=True)}


def plan_of(seconds: int, requests: int) -> Plan:
    chance = random.Random(11)
    pages = list(accumulate(1 / rank**0.9 for rank in range(1, 101)))
    plan = []
    for _ in range(requests):
        page = chance.choices(range(100), cum_weights=pages)[0]
        kind = chance.choices(("page", "s", "api", "report"), (2, 6, 1.5, 0.5))[0]
        target = f"/{kind}/{page}"
        if kind == "s":
            target = spelled(chance, page)
        elif kind == "report":
            target = f"/report/{1 if chance.random() < 0.7 else page + 2}"
        at = chance.randrange(seconds) + chance.uniform(*CALM)
        plan.append((at, chance.choice(HOSTS), target))
    return sorted(plan)


def origin(path: str, _headers: Mapping[str, str]) -> Answer:
    """Takes as long as its path says."""
    number = int("".join(filter(str.isdigit, path.split("&")[0])) or 0)
    slow = path == "/report/1"
    time.sleep(0.5 if slow else 0.02 if path.startswith("/report") else 0.04 * (1 + number % 5))
    return Answer(b"x" * (300 + 17 * number))


@contextmanager
def origin_at() -> Iterator[int]:
    """Its port, while it runs."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(theirs,))
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send(None)
        process.join(PATIENCE_S)


def _serve(pipe: Connection) -> None:
    upstream = Upstream()
    upstream.script = origin
    pipe.send(upstream.port)
    pipe.recv()
    upstream.stop()


def _start(variant: Variant, port: int, targets: list[str]) -> Nginx:
    cache = (
        f"proxy_cache z; proxy_cache_valid 200 {variant.ttl_s}s; {variant.lines}"
        if variant.cached
        else ""
    )
    location = f"proxy_pass http://127.0.0.1:{port}; {cache}"
    made = map_of(targets, variant.keys, "made") if variant.keys else ""
    target = "$made" if variant.keys else "$request_uri"
    return Nginx(
        "nginx",
        f"proxy_cache_path {{cache}} levels=1:2 keys_zone=z:4m inactive=1h; "
        f"map_hash_bucket_size 512; map_hash_max_size 65536; {made} log_format all '{FORMAT}';",
        f"""access_log all.log all;
            location /api/ {{ {location} proxy_cache_key $scheme$host{target}; }}
            location / {{ {location} proxy_cache_key {target}; }}""",
    )


def send(ports: list[int], plan: Plan) -> None:
    """Each request to all of them at once, when it is due."""
    begin = time.monotonic() + 2 - time.time() % 1  # on the second
    numbered = list(enumerate(plan))

    def turn(mine: list[tuple[int, tuple[float, str, str]]]) -> None:
        connections = [HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S) for port in ports]
        for number, (at, host, target) in mine:
            time.sleep(max(0.0, begin + at - time.monotonic()))
            for connection in connections:
                headers = {"Host": host, "X-Number": str(number)}
                connection.request("GET", target, headers=headers)
            for connection in connections:
                connection.getresponse().read()
        for connection in connections:
            connection.close()

    threads = [
        threading.Thread(target=turn, args=(numbered[each::CONNECTIONS],))
        for each in range(CONNECTIONS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def read(nginx: Nginx) -> dict[int, Line]:
    """By the number of the request."""
    found = {}
    for line in (nginx.directory / "all.log").read_text().splitlines():
        words = line.split()
        found[int(words[-1])] = Line(words[3], float(words[2]) if words[2] != "-" else 0.0)
    return found


def has_lines(log: Path, lines: int) -> bool:
    return count_lines(log) == lines


def hit_ratio(log: Mapping[int, Line]) -> float:
    return sum(line.status in SERVED for line in log.values()) / len(log)


def fetches(log: Mapping[int, Line]) -> int:
    return sum(line.status not in SERVED for line in log.values())


def _options(nginx: Nginx) -> tuple[object, ...]:
    return (
        nginx.directory / "all.log", "--format", FORMAT, "--config", nginx.configuration,
    )  # fmt: skip


def _of_report(today: Nginx, logs: Logged) -> Iterator[Accuracy]:
    saved = run_json("report", *_options(today))["total"]["saved"]
    uncached = logs["no cache"]
    real = sum(
        uncached[number].upstream_s
        for number, line in logs["today"].items()
        if line.status in SERVED
    )
    yield Accuracy(
        TABLE, "report: seconds saved", "s", saved["seconds"], real, saved["low_s"], saved["high_s"]
    )


def _of_misses(today: Nginx, logs: Logged) -> Iterator[Accuracy]:
    now = fetches(logs["today"])
    total, shown = 0, 0
    changes = run_json("misses", *_options(today))["changes"]
    for change in changes:
        name = next((ALONE[each] for each in ALONE if change["do"].startswith(each)), None)
        if name:
            real = now - fetches(logs[name])
            alone = change["alone"]["requests"]
            yield Accuracy(TABLE, f"misses: fetches saved by {name}", "requests", alone, real)
            total += change["gain_requests"]
            shown += 1
    if shown == len(ALONE):
        real = now - fetches(logs["both rules for keys"])
        yield Accuracy(TABLE, "misses: fetches saved by both together", "requests", total, real)


def _of_whatif(today: Nginx, logs: Logged) -> Iterator[Accuracy]:
    def asked(option: tuple[str, ...]) -> dict[str, Any]:
        found: dict[str, Any] = run_json("whatif", *_options(today), *option, "--anyway")
        return found

    for name, variant in VARIANTS.items():
        if variant.option:
            found = asked(variant.option)
            forecast = found["forecasts"][0]["hit_ratio_all"]
            real = hit_ratio(logs[name])
            yield Accuracy(TABLE, f"whatif: hit ratio with {name}", "%", 100 * forecast, 100 * real)
