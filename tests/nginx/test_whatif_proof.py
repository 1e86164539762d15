"""The proof of whatif: forecast from the log of one real nginx what another then does.

Several nginx run side by side before one uWSGI, which some ask in HTTP and some in its own
protocol. They differ in one rule each and get the same requests at the same moments
(``loads.py``). From the log of the one that has today's rules it is forecast what each other
logs. That they had one load is judged by their own logs: on a machine so busy that they had
not, it is tried again.

So must the model give what each nginx itself logged; where a manager removes entries, only if it
woke when it does on a machine that is not busy.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from nearcache._core import NginxTrace
from nearcache.lab.servers import child_setup, end_process, free_port
from nearcache.nginx.config.read.configuration import read_configuration
from nearcache.nginx.whatif.forecast import Backtest, Question, WhatIf, whatif
from nearcache.nginx.whatif.rules import Change, Subject, today_of
from tests.needs import missing

from .conftest import Nginx, StartNginx, accepts, wait_for
from .loads import NUMBER, Turns, ask_all, is_calm, send, wait_for_turn, zipf

POINT = 0.01
APART_S = 0.05
APART = 0.02  # of the requests
TRIES = 4
STARTS = 20  # a second each, on a busy machine
LOG_FORMAT = (
    "$msec $request_time $upstream_response_time $upstream_cache_status $status "
    "$body_bytes_sent $upstream_bytes_received $request_method $request_uri "
    f"$upstream_http_cache_control $http_{NUMBER.lower().replace('-', '_')}"
)
PLAN = zipf(requests=900, keys=100, seconds=12)
WSGI = """
import time
def application(environ, start_response):
    number = int(environ["REQUEST_URI"].split("/")[2].split("?")[0])
    time.sleep(0.005 * (number % 4))
    body = b"x" * (500 + 37 * number)
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""


Ports = dict[str, int]  # by protocol


@pytest.fixture
def ports(tmp_path: Path) -> Iterator[Ports]:
    """A real uWSGI in a process of its own: some pages are large, some are slow."""
    program = Path(sys.executable).with_name("pyuwsgi")
    if not program.exists():
        missing("pyuwsgi is not installed")
    (tmp_path / "app.py").write_text(WSGI)
    ports = {"proxy": free_port(), "uwsgi": free_port()}
    process = subprocess.Popen(
        [program, "--http-socket", f"127.0.0.1:{ports['proxy']}",
         "--uwsgi-socket", f"127.0.0.1:{ports['uwsgi']}", "--wsgi-file", tmp_path / "app.py",
         "--threads", "16", "--need-app", "--die-on-term", "--disable-logging"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        preexec_fn=child_setup(None),
    )  # fmt: skip
    try:
        assert wait_for(lambda: all(map(accepts, ports.values())))
        yield ports
    finally:
        end_process(process)


@dataclass(frozen=True)
class Case:
    """Rules that some nginx has, and what makes them of today's. ``{p}``: proxy or uwsgi."""

    change: Change | None
    rules: str
    path: str = "inactive=1h"
    protocol: str = "proxy"


NOW = "{p}_cache_valid 200 1s;"
TODAY = {protocol: Case(None, NOW, protocol=protocol) for protocol in ("proxy", "uwsgi")}
CASES = {
    "a longer time to live": Case(Change(ttl_s=3), "{p}_cache_valid 200 3s;"),
    "a longer time to live before uWSGI": Case(
        Change(ttl_s=3), "{p}_cache_valid 200 3s;", protocol="uwsgi"
    ),
    "a lock": Case(Change(lock=True), f"{NOW} {{p}}_cache_lock on;"),
    "a background update": Case(
        Change(background=True),
        f"{NOW} {{p}}_cache_use_stale updating; {{p}}_cache_background_update on;",
    ),
    "stored at the second request": Case(Change(min_uses=2), f"{NOW} {{p}}_cache_min_uses 2;"),
    # Its manager removes what is inactive, in turns that begin when nginx does.
    (LAST := "short memory"): Case(Change(inactive_s=1), NOW, "inactive=1s"),
}
EVERYBODY = TODAY | CASES


def start(start_nginx: StartNginx, case: Case, ports: Ports) -> Nginx:
    protocol = case.protocol
    scheme, extra = ("http://", "") if protocol == "proxy" else ("", uwsgi_parameters())
    return start_nginx(
        http=f"log_format whatif '{LOG_FORMAT}'; "
        f"{protocol}_cache_path {{cache}} levels=1:2 keys_zone=z:1m {case.path};",
        server=f"""
            location /page/ {{
                access_log whatif.log whatif;
                {protocol}_pass {scheme}127.0.0.1:{ports[protocol]};
                {protocol}_cache z;
                {protocol}_cache_key $request_uri;
                {extra}
                {case.rules.format(p=protocol)}
            }}""",
    )


def uwsgi_parameters() -> str:
    names = ("REQUEST_METHOD", "REQUEST_URI", "QUERY_STRING", "SERVER_NAME", "SERVER_PORT")
    fixed = "uwsgi_param PATH_INFO $document_uri; uwsgi_param SERVER_PROTOCOL $server_protocol;"
    return fixed + "".join(f" uwsgi_param {name} ${name.lower()};" for name in names)


def ask(nginx: Nginx, *changes: Change) -> WhatIf:
    configuration = read_configuration(nginx.configuration)
    today = today_of(configuration)
    trace = NginxTrace(
        LOG_FORMAT,
        locations=today.locations,
        valid=[(place.valid, place.ignore_headers) for place in today.places],
    )
    trace.feed((nginx.directory / "whatif.log").read_bytes())
    trace.finish()
    question = Question(today=today, changes=changes, subject=Subject(), anyway=True)
    return whatif(trace, question)


def back_test(nginx: Nginx) -> Backtest:
    found = ask(nginx).backtest
    assert found
    return found


def begins(nginx: Nginx) -> list[float]:
    """When each request began, as its log has it: the first of all, and those of the plan."""
    moments = [0.0] * (1 + len(PLAN))
    for line in (nginx.directory / "whatif.log").read_text().splitlines():
        words = line.split()
        moments[int(words[-1])] = float(words[0]) - float(words[1])
    return moments


def share_apart(one: Nginx, other: Nginx) -> float:
    """The share of requests that were not the same for both."""
    pairs = zip(begins(one), begins(other), strict=True)
    apart = [int(a) != int(b) or abs(a - b) > APART_S for a, b in pairs]
    return sum(apart) / len(apart)


def all_started(start_nginx: StartNginx, ports: Ports) -> dict[str, Nginx]:
    """The log of each begins when the manager of the last, which has work, has begun."""
    started = {name: start(start_nginx, case, ports) for name, case in EVERYBODY.items()}
    for _ in range(STARTS):
        started[LAST].stop()
        wait_for_turn()
        started[LAST] = start(start_nginx, EVERYBODY[LAST], ports)
        if is_calm():
            break
    else:
        pytest.skip("nginx takes too long to start: FORECASTS ARE NOT TESTED")
    ask_all([nginx.port for nginx in started.values()], "/page/0?n=0")
    return started


def load(started: dict[str, Nginx]) -> tuple[bool, bool]:
    """All get the plan and have logged it; what the model gives is what each logged.

    Only where the machine was not too busy for it: had all the same load, and had the manager of
    the last its turns?
    """
    with Turns(started[LAST].child(b"cache manager")) as turns:
        send([nginx.port for nginx in started.values()], PLAN)
    for case, nginx in started.items():
        log = nginx.directory / "whatif.log"
        assert wait_for(lambda log=log: log.read_bytes().count(b"\n") > len(PLAN)), case
        nginx.stop()
    has_turns = turns.are_modelled(begins(started[LAST])[0])
    if max(share_apart(started["proxy"], nginx) for nginx in started.values()) > APART:
        return False, has_turns
    for case, nginx in started.items():
        if case != LAST or has_turns:
            test = back_test(nginx)
            assert abs(test.modelled_all - test.logged_all) <= POINT, (case, test.disagreements)
            assert test.agreement >= 0.97, (case, test.disagreements)
    return True, has_turns


def test_forecasts_from_one_nginx_are_what_others_do(start_nginx: StartNginx, ports: Ports) -> None:
    for tried in range(TRIES):
        started = all_started(start_nginx, ports)
        is_one_load, has_turns = load(started)
        if is_one_load and (has_turns or tried > 0):
            break
    else:
        pytest.skip(f"{TRIES} loads were not the same for all: FORECASTS ARE NOT TESTED")
    for name, case in CASES.items():
        if name == LAST and not has_turns:
            continue
        assert case.change
        forecast = ask(started[case.protocol], case.change).forecasts[0].hit_ratio_all
        logged = back_test(started[name]).logged_all
        assert abs(forecast - logged) <= POINT, f"{name}: {forecast:.2%}, not {logged:.2%}"
    # A configuration that is not the one in force does not get away with it.
    now = started["proxy"]
    site = now.directory / "site.conf"
    site.write_text(site.read_text().replace("valid 200 1s", "valid 200 1h"))
    assert not back_test(now).is_good
    if not has_turns:
        pytest.skip(f"its manager did not keep its turns: {LAST.upper()} IS NOT TESTED")
