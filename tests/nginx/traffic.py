"""A real nginx with its logs in several formats, some traffic, and those logs read by hand."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from nearcache.cli import main

from .conftest import PATIENCE_S, Answer, Nginx, StartNginx, Upstream, wait_for

MEMBERS = """
    msec request_time upstream_response_time upstream_cache_status status request_method scheme
    host request_uri cl_key body_bytes_sent upstream_http_cache_control upstream_http_vary
    cl_set_cookie http_accept_encoding http_user_agent
"""
JSON_FORMAT = "{" + ",".join(f'"{name}":"${name}"' for name in MEMBERS.split()) + "}"
CUSTOM_FORMAT = (
    '$remote_addr [$time_local] $msec "$request" $status $body_bytes_sent $request_time '
    '"$upstream_response_time" $upstream_cache_status $host "$http_user_agent" "$cl_key"'
)
FETCH_S = 0.02
STATUS = "location = /nginx-status { stub_status; access_log off; }"


def site(start_nginx: StartNginx, upstream: Upstream, lines: str = "") -> Nginx:
    """nginx that logs every request thrice: combined, as JSON, and in a format of its own."""
    return start_nginx(
        http=f"""
            proxy_cache_path {{cache}} levels=1:2 keys_zone=z:1m inactive=1h;
            map $upstream_http_set_cookie $cl_set_cookie {{ "" ""; default 1; }}
            log_format custom '{CUSTOM_FORMAT}';
            log_format lines escape=json '{JSON_FORMAT}';""",
        server=f"""
            set $cl_key $scheme://$host$request_uri;
            access_log combined.log combined;
            access_log custom.log custom;
            access_log json.log lines;
            location / {{
                proxy_pass http://127.0.0.1:{upstream.port};
                proxy_cache z;
                proxy_cache_key $cl_key;
                proxy_cache_valid 200 1h;
                add_header X-Cache $upstream_cache_status always;
                {lines}
            }}
            location /plain/ {{ proxy_pass http://127.0.0.1:{upstream.port}; }}
            {STATUS}""",
    )


def slow(path: str, _headers: Any) -> Answer:
    """An application that thinks for a while; what it says depends on the path."""
    time.sleep(FETCH_S)
    headers = {"/me": {"Set-Cookie": "s=1"}, "/private": {"Cache-Control": "private"}}
    return Answer(b"x" * 1000, 200, headers.get(path.split("?")[0], {}))


def ask(nginx: Nginx, paths: Sequence[str]) -> None:
    """Asks one after the other, and waits until all is logged."""
    log = nginx.directory / "json.log"
    before = count_lines(log)
    for path in paths:
        nginx.get(path)
    assert wait_for(lambda: count_lines(log) == before + len(paths))


def crowd(nginx: Nginx, upstream: Upstream, path: str, size: int) -> None:
    """So many ask for one page, and none is answered before nginx has read what all ask.

    nginx must have ``STATUS``.
    """
    answer, all_ask = upstream.script, threading.Event()

    def script(path: str, headers: Any) -> Answer:
        all_ask.wait(PATIENCE_S)
        return answer(path, headers)

    upstream.script = script
    threads = [threading.Thread(target=nginx.get, args=(path,)) for _ in range(size)]
    for thread in threads:
        thread.start()
    assert wait_for(lambda: at_work(nginx) == size)
    all_ask.set()
    for thread in threads:
        thread.join()


def at_work(nginx: Nginx) -> int:
    """How many requests nginx has read and not answered, but for the one that asks this."""
    said = re.search(r"Writing: (\d+)", nginx.get("/nginx-status").body.decode())
    assert said
    return int(said[1]) - 1


def count_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def rows(nginx: Nginx) -> list[dict[str, str]]:
    """The JSON log, by Python's own parser."""
    text = (nginx.directory / "json.log").read_text()
    return [json.loads(line) for line in text.splitlines()]


def run(*arguments: object, code: int = 0) -> str:
    """What ``nearcache nginx ...`` prints, errors too."""
    done = CliRunner().invoke(main, ["nginx", *map(str, arguments)])
    assert done.exit_code == code, f"{done.exit_code}: {done.output}\n{done.exception!r}"
    return done.output


def run_piped(text: bytes, *arguments: object) -> str:
    """What a process of its own prints that has this in standard input."""
    command = [sys.executable, "-m", "nearcache", "nginx", *map(str, arguments)]
    done = subprocess.run(command, input=text, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def read_terminal(descriptor: int) -> str:
    """All that comes out of a pseudo-terminal until nobody has its other end open."""
    seen = b""
    with os.fdopen(descriptor, "rb", buffering=0) as terminal:
        try:
            while piece := terminal.read(65536):
                seen += piece
        except OSError:  # EIO: it was closed
            pass
    return seen.decode()


def run_json(*arguments: object, code: int = 0) -> Any:
    return json.loads(run(*arguments, "--json", code=code))
