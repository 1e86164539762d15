"""Traces of others as recordings: Twitter's, libCacheSim's oracleGeneral, access logs.

    twitter   CSV: time (s), key, key size, value size, client, operation, ttl (s)
    oracle    24 bytes a request: u32 time (s), u64 object, u32 size, i64 next request;
              little-endian
    combined  nginx's and Apache's "combined" log lines: GETs that were answered 200

Times are whole seconds there: calls of one second are spread over it evenly. Whether a
request was a hit is not in them: the first of a key is a miss and, where the trace is of
reads only, a set; all others are hits, as of a cache that never forgets. Keys are hashed
with a salt that is drawn and forgotten.
"""

from __future__ import annotations

import csv
import hashlib
import re
import secrets
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path

from nearcache.errors import LabError
from nearcache.recording.recorder import first_word
from nearcache.recording.trace import (
    MOST_U32,
    NEVER_EXPIRES,
    NUMBER_OF,
    RECORD,
    UNKNOWN_SIZE,
    Names,
    Outcome,
    block,
)

NS = 1_000_000_000
BLOCK_RECORDS = 10_000
ORACLE = struct.Struct("<IQIq")
COMBINED = re.compile(r'\S+ \S+ \S+ \[([^\]]+)\] "GET (\S+) [^"]*" 200 (\d+)')
LOG_TIME = "%d/%b/%Y:%H:%M:%S %z"
# What their operations are here; the rest is counted and left out.
TWITTER = {
    "get": "get",
    "gets": "get",
    "set": "set",
    "add": "add",
    "replace": "set",
    "cas": "set",
    "delete": "delete",
    "incr": "incr",
    "decr": "decr",
}


@dataclass(frozen=True)
class Request:
    second: int
    key: str
    size: int
    operation: str = "get"
    ttl_s: int = 0


@dataclass
class Imported:
    records: int = 0
    skipped: Counter[str] = field(default_factory=Counter)


def import_trace(source: Path, form: str, out: Path, most: int) -> Imported:
    """Write the first ``most`` requests as a recording. Raises LabError."""
    done = Imported()
    reader = FORMS[form]
    try:
        requests = list(islice(reader(source, done), most))
    except OSError as error:
        raise LabError(f"{source} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error, struct.error) as error:
        raise LabError(f"{source} is no {form} trace: {error}") from error
    if not requests:
        raise LabError(f"{source} holds no request that is read as {form}; is it another form?")
    requests.sort(key=lambda request: request.second)  # logs are written when requests end
    try:
        with out.open("xb") as file:
            for data in _blocks(requests, form, done):
                file.write(data)
    except FileExistsError:
        raise LabError(f"{out} is there already; give another --out") from None
    except OSError as error:
        raise LabError(f"{out} cannot be written: {error.strerror}") from error
    return done


def _blocks(requests: list[Request], form: str, done: Imported) -> Iterator[bytes]:
    salt = secrets.token_bytes(16)
    process = secrets.token_hex(4)
    prefixes, types = Names(1000), Names(255)
    rows: list[bytes] = []
    known: set[str] = set()
    for time_ns, request in _spread(requests):
        rows += _rows(request, time_ns, salt, known, prefixes, types)
        if len(rows) >= BLOCK_RECORDS:
            done.records += len(rows)
            yield _block(rows, form, process, prefixes, types)
            rows = []
    done.records += len(rows)
    yield _block(rows, form, process, prefixes, types)


def _block(rows: list[bytes], form: str, process: str, prefixes: Names, types: Names) -> bytes:
    head = {
        "process": process,
        "share": 1.0,
        "backend": f"a {form} trace",
        "prefixes": list(prefixes.texts),
        "types": list(types.texts),
        "lost": 0,
        "errors": 0,
    }
    return block(head, rows)


def _spread(requests: list[Request]) -> Iterator[tuple[int, Request]]:
    """Requests of one second evenly over it."""
    counts = Counter(request.second for request in requests)
    seen: Counter[int] = Counter()
    for request in requests:
        place = seen[request.second]
        seen[request.second] += 1
        yield request.second * NS + place * NS // counts[request.second], request


def _rows(
    request: Request, time_ns: int, salt: bytes, known: set[str], prefixes: Names, types: Names
) -> list[bytes]:
    key = int.from_bytes(hashlib.blake2b(request.key.encode(), key=salt, digest_size=8).digest())
    is_new = request.key not in known
    known.add(request.key)
    calls = [(request.operation, Outcome(0))]
    if request.operation == "get":
        calls = [("get", Outcome.MISS), ("set", Outcome(0))] if is_new else [("get", Outcome.HIT)]
    elif request.operation == "delete":
        known.discard(request.key)
        calls = [("delete", Outcome.REFUSED if is_new else Outcome(0))]
    elif request.operation in ("incr", "decr"):
        calls = [(request.operation, Outcome.MISS if is_new else Outcome(0))]
    prefix, kind = prefixes.number(first_word(request.key)), types.number("bytes")
    return [
        RECORD.pack(
            time_ns + place,
            key,
            0,
            UNKNOWN_SIZE if outcome & Outcome.MISS else min(request.size, MOST_U32 - 1),
            _ttl_ms(operation, request.ttl_s),
            prefix,
            1,
            NUMBER_OF[operation],
            outcome,
            kind,
            0,
        )
        for place, (operation, outcome) in enumerate(calls)
    ]


def _ttl_ms(operation: str, ttl_s: int) -> int:
    if operation not in ("set", "add"):
        return 0
    return min(ttl_s * 1000, NEVER_EXPIRES - 1) if ttl_s else NEVER_EXPIRES


def _twitter(source: Path, done: Imported) -> Iterator[Request]:
    with source.open(newline="") as file:
        for row in csv.reader(file):
            try:
                second, key, _, size, _, operation, ttl_s, *_ = row
                request = Request(int(second), key, int(size), TWITTER[operation], int(ttl_s))
            except KeyError:
                done.skipped[f"operation {row[5]}"] += 1
            except ValueError:
                done.skipped["lines that are not of this form"] += 1
            else:
                yield request


def _oracle(source: Path, done: Imported) -> Iterator[Request]:
    data = source.read_bytes()
    if data[:4] == b"\x28\xb5\x2f\xfd":
        raise LabError(f"{source} is compressed; unpack it first: zstd -d {source.name}")
    rest = len(data) % ORACLE.size
    if rest:
        done.skipped["torn request at the end"] += 1
    for second, key, size, _ in ORACLE.iter_unpack(data[: len(data) - rest]):
        yield Request(second, str(key), size)


def _combined(source: Path, done: Imported) -> Iterator[Request]:
    with source.open(errors="replace") as file:
        for line in file:
            found = COMBINED.match(line)
            if found is None:
                done.skipped["no GET that was answered 200"] += 1
                continue
            try:
                moment = datetime.strptime(found[1], LOG_TIME)  # noqa: DTZ007 - it has %z
            except ValueError:
                done.skipped["no time that can be read"] += 1
                continue
            yield Request(int(moment.timestamp()), found[2].lstrip("/"), int(found[3]))


FORMS: dict[str, Callable[[Path, Imported], Iterator[Request]]] = {
    "twitter": _twitter,
    "oracle": _oracle,
    "combined": _combined,
}
