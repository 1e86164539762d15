"""An application for the proof: its answers depend on the request alone, and none is like another.

    /vary/...        differs by language, and says so
    /set-cookie/...  sets one
    /private/... and /no-store/...   say so in Cache-Control
    /missing/...     404
    /slow/...        takes its time
    /big/...         a body of known bytes, of which parts may be had
    anything else    a page

The first word of the path chooses. ``X-Answer: 500`` makes it fail. A body says what arrived
(path, arguments, host, language, method), and has a number that no other body has: whoever
gets the same number got the same answer. Runs under any WSGI server.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from typing import Any
from uuid import uuid4

SLOW_S = 0.3
BIG = bytes(range(256)) * 64
REASONS = {200: "OK", 404: "Not Found", 500: "Internal Server Error"}
HEADERS: dict[str, list[tuple[str, str]]] = {
    "vary": [("Vary", "Accept-Language")],
    "set-cookie": [("Set-Cookie", "sessionid=secret; HttpOnly")],
    "private": [("Cache-Control", "private, max-age=600")],
    "no-store": [("Cache-Control", "no-store")],
    "big": [("Accept-Ranges", "bytes")],
}


def application(
    environ: dict[str, Any], start_response: Callable[[str, list[tuple[str, str]]], object]
) -> Iterable[bytes]:
    case = environ.get("PATH_INFO", "/").split("/")[1]
    status = 404 if case == "missing" else int(environ.get("HTTP_X_ANSWER") or 200)
    if case == "slow":
        time.sleep(SLOW_S)
    body = BIG if case == "big" else _what_arrived(environ)
    start_response(
        f"{status} {REASONS.get(status, 'Error')}",
        [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            *HEADERS.get(case, []),
        ],
    )
    return [b""] if environ["REQUEST_METHOD"] == "HEAD" else [body]


def _what_arrived(environ: dict[str, Any]) -> bytes:
    said = {
        "number": uuid4().hex,
        "path": environ.get("PATH_INFO", ""),
        "query": environ.get("QUERY_STRING", ""),
        "host": environ.get("HTTP_HOST", ""),
        "language": environ.get("HTTP_ACCEPT_LANGUAGE", ""),
        "method": environ["REQUEST_METHOD"],
    }
    return json.dumps(said).encode()
