"""Bodies that are stored several times, and the rule for keys that would store them once.

Two keys with the same body may be two spellings of one page (``?q=ABBA`` and ``?q=abba``), or
two pages that say the same ("not found"). So bodies alone prove nothing; what counts is a
rule with its counter-evidence:

    all keys that a rule would make one have the same body     for it
    any of them has another body                               against it

A rule is proposed only if nothing is against it. Compared is like with like: the same
status and Content-Encoding, since a page and its gzip differ. An answer that says the time
or carries a token differs each time, which counts against: the error is on the safe side.

This reads every file, so it has to be asked for, is paced, and gives back to the kernel what
was not in RAM before. What it remembers lies in a temporary database on the disk.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Any

from nearcache.nginx.cachedir.cachefile import CacheFile, read_open
from nearcache.nginx.cachedir.directory import CacheDir, Census, Found
from nearcache.nginx.cachedir.select import Selects, everything
from nearcache.nginx.inspect.pagecache import method
from nearcache.nginx.keys.groups import is_tracking
from nearcache.nginx.keys.merging import PLAIN, arguments_of, rule_of

CHUNK = 1 << 18
DIGEST_BYTES = 16
SHOWN = 10
MOST_ARGUMENTS = 20  # that are tried, of those in duplicates

SCHEMA = """
CREATE TABLE stored (key TEXT, digest BLOB, status INT, encoding TEXT, size INT)
"""
DUPLICATES = """
SELECT count(DISTINCT key) AS keys, sum(size) - max(size) AS spare, min(key), max(key)
FROM stored GROUP BY digest HAVING keys > 1 ORDER BY spare DESC
"""
# Inside: one row for what must be alike. Outside: one row for each key after the rule. Spellings
# that were never stored with the same encoding cannot be compared, and say nothing.
EVIDENCE = """
WITH alike AS (
    SELECT spelt(key) AS page, count(DISTINCT digest) AS bodies, count(DISTINCT key) AS keys,
           min(status) AS least, max(status) AS most, sum(size) - max(size) AS spare,
           min(key) AS one, max(key) AS other
    FROM stored GROUP BY page, encoding
), pages AS (
    SELECT max(bodies) = 1 AND min(least) = max(most) AS agree, max(keys) AS keys,
           sum(spare) AS spare, min(one) AS one, max(other) AS other
    FROM alike GROUP BY page HAVING min(one) <> max(other)
)
SELECT agree, count(*), sum(spare), one, other
FROM pages WHERE keys > 1 OR NOT agree GROUP BY agree
"""


@dataclass(frozen=True)
class Evidence:
    """What stored bodies say about one rule. Pages: groups of keys that it would make one."""

    rule: str
    pages: int  # whose spellings all had the same body
    against: int  # that had different ones
    spare_bytes: int  # of files that the rule would not store
    example: tuple[str, str]  # two spellings
    counterexample: tuple[str, str] | None

    @property
    def is_proposed(self) -> bool:
        return self.pages > 0 and self.against == 0


@dataclass
class Bodies:
    """What was found. Sizes are bytes of files."""

    entries: int = 0
    read_bytes: int = 0
    empty: int = 0  # without a body: redirects and the like
    duplicated: int = 0  # different bodies that lie under several keys
    spare_bytes: int = 0  # if each of these lay there once
    largest: list[dict[str, Any]] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)
    together: Evidence | None = None  # all that is proposed, as one rule
    census: Census = field(default_factory=Census)
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        facts = asdict(self) | {"census": self.census.to_json()}
        for shown, each in zip(facts["evidence"], self.evidence, strict=True):
            shown["proposed"] = each.is_proposed
        return facts


class BodyReader:
    """Reads entries for a walk, with their bodies: ``digest`` is that of the last one read."""

    def __init__(
        self,
        bytes_per_second: float | None = None,
        selects: Selects = everything,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.bytes_per_second = bytes_per_second
        self.selects = selects
        self.sleep = sleep
        self.digest = b""
        self.read_bytes = 0
        self._ask = method()[1]

    def __call__(self, descriptor: int, name: str) -> CacheFile:
        size = os.fstat(descriptor).st_size
        before = self._ask(descriptor, 0, size) if self._ask else None
        entry = read_open(descriptor, name)
        if self.selects(entry):
            self.digest = self._digest(descriptor, entry.body_start)
        if before and not before.resident:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return entry

    def _digest(self, descriptor: int, at: int) -> bytes:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        digest = blake2b(digest_size=DIGEST_BYTES)
        while chunk := os.pread(descriptor, CHUNK, at):
            digest.update(chunk)
            at += len(chunk)
            self.read_bytes += len(chunk)
            if self.bytes_per_second:
                self.sleep(len(chunk) / self.bytes_per_second)
        return digest.digest()


def compare_bodies(
    directory: CacheDir, selects: Selects = everything, *, bytes_per_second: float | None = None
) -> Bodies:
    """Read every body that ``selects`` says yes to, and weigh rules for keys."""
    bodies, began = Bodies(), time.monotonic()
    reader = BodyReader(bytes_per_second, selects)
    # No name: SQLite makes a private file in the directory for temporary ones, and removes it.
    database = sqlite3.connect("")
    try:
        database.execute(SCHEMA)
        found = (each for each in directory.walk(bodies.census, reader) if selects(each.entry))
        database.executemany("INSERT INTO stored VALUES (?,?,?,?,?)", _rows(found, reader, bodies))
        _weigh(database, bodies)
    finally:
        database.close()
    bodies.read_bytes = reader.read_bytes
    bodies.seconds = time.monotonic() - began
    return bodies


def _rows(
    entries: Iterator[Found], reader: BodyReader, bodies: Bodies
) -> Iterator[tuple[str, bytes, int, str, int]]:
    for found in entries:
        entry = found.entry
        bodies.entries += 1
        if entry.body_size == 0:
            # Nothing is saved by storing nothing once, and all empty bodies are alike.
            bodies.empty += 1
            continue
        encoding = ",".join(entry.headers("content-encoding")).lower()
        yield entry.text, reader.digest, entry.status or 0, encoding, entry.size


def _weigh(database: sqlite3.Connection, bodies: Bodies) -> None:
    arguments: Counter[str] = Counter()
    for keys, spare, one, other in database.execute(DUPLICATES):
        bodies.duplicated += 1
        bodies.spare_bytes += spare
        if len(bodies.largest) < SHOWN:
            bodies.largest.append({"keys": keys, "spare_bytes": spare, "examples": [one, other]})
        arguments.update(set(arguments_of(one)) | set(arguments_of(other)))
    if not bodies.duplicated:
        return
    weighed = (_evidence(database, rule) for rule in _candidates(arguments))
    bodies.evidence = sorted(
        (each for each in weighed if each),
        key=lambda each: (not each.is_proposed, -each.spare_bytes, each.rule),
    )
    proposed = [each.rule for each in bodies.evidence if each.is_proposed]
    bodies.together = _evidence(database, ",".join(proposed)) if len(proposed) > 1 else None


def _candidates(arguments: Counter[str]) -> list[str]:
    names = dict.fromkeys(
        "utm_*" if name.startswith("utm_") else name
        for name, _ in arguments.most_common()
        if name and not set(name) & set("*?[],")
    )
    # What everybody knows as tracking first, so that it is not crowded out.
    wanted = sorted(names, key=lambda name: name != "utm_*" and not is_tracking(name))
    return [*PLAIN, *(f"drop={name}" for name in wanted[:MOST_ARGUMENTS])]


def _evidence(database: sqlite3.Connection, rule: str) -> Evidence | None:
    """None if the rule makes no two keys one."""
    database.create_function("spelt", 1, rule_of(rule), deterministic=True)
    rows: Sequence[tuple[int, int, int, str, str]] = database.execute(EVIDENCE).fetchall()
    if not rows:
        return None
    agree = next((row for row in rows if row[0]), None)
    differ = next((row for row in rows if not row[0]), None)
    return Evidence(
        rule=rule,
        pages=agree[1] if agree else 0,
        against=differ[1] if differ else 0,
        spare_bytes=agree[2] if agree else 0,
        example=(agree or differ or rows[0])[3:5],
        counterexample=differ[3:5] if differ else None,
    )
