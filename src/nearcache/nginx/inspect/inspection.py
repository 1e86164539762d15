"""What a cache directory holds, summed up while it is walked, in memory that does not grow.

    inspection = inspect_directory(CacheDir(path), selects)
    inspection.to_json()

Ages count from when nginx stored or last revalidated an entry. What a stored head says about
persons (Set-Cookie, ``private``, Vary on a cookie) is a finding: whoever asks next gets it.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from nearcache.nginx.cachedir.cachefile import CacheFile
from nearcache.nginx.cachedir.directory import CacheDir, Census, Found, levels_of
from nearcache.nginx.cachedir.select import Selects, everything
from nearcache.nginx.cachedir.varying import headers_of, names_in
from nearcache.nginx.inspect.ram import QuietReader, Ram, keys_zone_bytes
from nearcache.nginx.inspect.tally import Heavy, Spread
from nearcache.nginx.keys.groups import shape_of

SHOWN = 10
EXAMPLES = 5
PERSONAL_VARY = {"authorization", "cookie"}
PERSONAL_CONTROL = ("private", "no-store")


@dataclass(frozen=True, order=True)
class Large:
    """One of the largest entries."""

    size: int
    path: str
    key: str
    body: int


@dataclass
class Leak:
    """One way in which stored responses belong to a person."""

    what: str
    entries: int = 0
    examples: list[str] = field(default_factory=list)  # keys

    def add(self, key: str) -> None:
        self.entries += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(key)


@dataclass
class Inspection:
    """Everything a walk has seen. ``now`` is one moment for all entries, in Unix seconds."""

    root: str
    now: float
    census: Census = field(default_factory=Census)
    ram: Ram = field(default_factory=Ram)
    entries: int = 0  # that were selected; census.entries has all
    bytes: int = 0
    disk_bytes: int = 0
    body_bytes: int = 0
    expired: int = 0
    expired_bytes: int = 0
    variants: int = 0
    keyless: int = 0  # an empty key: all URLs share one entry
    ages: Spread = field(default_factory=Spread)
    left: Spread = field(default_factory=Spread)  # of those that are fresh
    sizes: Spread = field(default_factory=Spread)
    statuses: Counter[str] = field(default_factory=Counter)
    layouts: Counter[str] = field(default_factory=Counter)
    levels: Counter[str] = field(default_factory=Counter)
    heads: Counter[str] = field(default_factory=Counter)
    vary: Heavy[str] = field(default_factory=lambda: Heavy[str](keeps=200))
    per_key: Heavy[tuple[str, str]] = field(default_factory=Heavy)  # (key, Vary) -> files
    sent: Heavy[str] = field(default_factory=lambda: Heavy[str](keeps=200))  # request headers
    groups: Heavy[str] = field(default_factory=Heavy)  # files
    group_bytes: Heavy[str] = field(default_factory=Heavy)
    largest: list[Large] = field(default_factory=list)  # a heap
    leaks: dict[str, Leak] = field(default_factory=dict)
    seconds: float = 0.0

    def take(self, found: Found) -> None:
        entry = found.entry
        self.entries += 1
        self.bytes += entry.size
        self.disk_bytes += entry.blocks
        self.body_bytes += entry.body_size
        self.variants += entry.is_variant
        self.keyless += not entry.key
        self._take_times(entry)
        self.sizes.add(entry.size)
        self.statuses[str(entry.status or "unknown")] += 1
        self.layouts[str(entry.layout)] += 1
        self.levels[":".join(map(str, levels_of(found.folder))) or "none"] += 1
        self.heads[entry.head.kind] += 1
        self._take_key(entry)
        self._take_largest(found)
        for what in _leaks(entry):
            self.leaks.setdefault(what, Leak(what)).add(entry.text)

    def _take_times(self, entry: CacheFile) -> None:
        left = entry.time_left(self.now)
        self.ages.add(max(0.0, self.now - entry.date))
        if left < 0:
            self.expired += 1
            self.expired_bytes += entry.size
        else:
            self.left.add(left)

    def _take_key(self, entry: CacheFile) -> None:
        shape = shape_of(entry.text)
        self.groups.add(shape)
        self.group_bytes.add(shape, entry.size)
        if entry.vary:
            vary = ", ".join(names_in(entry.vary))
            self.vary.add(vary)
            self.per_key.add((entry.text, vary))
            self._take_headers(entry)

    def _take_headers(self, entry: CacheFile) -> None:
        sent = headers_of(entry)
        if sent is None:
            self.sent.add("(values that are not known)")
        else:
            self.sent.add(", ".join(f"{n}: {v}" for n, v in sent.items()) or "(none of them)")

    def _take_largest(self, found: Found) -> None:
        entry = found.entry
        if len(self.largest) < SHOWN:
            heapq.heappush(self.largest, _large(found))
        elif entry.size > self.largest[0].size:
            heapq.heapreplace(self.largest, _large(found))

    def to_json(self) -> dict[str, Any]:
        """Sizes in bytes, times in seconds."""
        return {
            "root": self.root,
            "entries": self.entries,
            "bytes": self.bytes,
            "disk_bytes": self.disk_bytes,
            "body_bytes": self.body_bytes,
            "expired": self.expired,
            "expired_bytes": self.expired_bytes,
            "variants": self.variants,
            "keyless": self.keyless,
            "age_s": self.ages.quantiles(),
            "left_s": self.left.quantiles(),
            "size": self.sizes.quantiles(),
            "statuses": dict(self.statuses.most_common()),
            "layouts": dict(self.layouts.most_common()),
            "levels": dict(self.levels.most_common()),
            "heads": dict(self.heads.most_common()),
            "keys_zone_bytes": keys_zone_bytes(self.census.entries),
            "ram": self.ram.to_json(),
            "census": self.census.to_json(),
            "vary": dict(self.vary.top(SHOWN)),
            "vary_sent": dict(self.sent.top(SHOWN)),
            "most_variants": [
                {"key": key, "vary": vary, "files": files}
                for (key, vary), files in self.per_key.top(SHOWN)
                if files > 1
            ],
            "groups": [
                {"group": shape, "files": self.groups.sums.get(shape), "bytes": size}
                for shape, size in self.group_bytes.top(SHOWN * 2)
            ],
            "largest": [asdict(each) for each in sorted(self.largest, reverse=True)],
            "personal": [asdict(leak) for leak in self.leaks.values()],
            "seconds": round(self.seconds, 3),
        }


def inspect_directory(
    directory: CacheDir, selects: Selects = everything, *, now: float | None = None
) -> Inspection:
    """Walk it all and sum up what ``selects`` says yes to."""
    reader, began = QuietReader(), time.monotonic()
    inspection = Inspection(str(directory.root), time.time() if now is None else now)
    inspection.ram = reader.ram
    for found in directory.walk(inspection.census, reader):
        if selects(found.entry):
            inspection.take(found)
    inspection.seconds = time.monotonic() - began
    return inspection


def list_keys(
    directory: CacheDir, selects: Selects, census: Census, now: float
) -> Iterator[dict[str, Any]]:
    """One dict for each entry, as they come."""
    for found in directory.walk(census, QuietReader()):
        entry = found.entry
        if selects(entry):
            yield {
                "key": entry.text,
                "age_s": round(max(0.0, now - entry.date), 1),
                "left_s": round(entry.time_left(now), 1),
                "size": entry.size,
                "status": entry.status,
                "vary": ", ".join(names_in(entry.vary)),
                "variant": entry.is_variant,
                "path": found.path,
            }


def _large(found: Found) -> Large:
    entry = found.entry
    return Large(entry.size, found.path, entry.text, entry.body_size)


def _leaks(entry: CacheFile) -> Iterator[str]:
    """Why a stored response looks as if it were one person's. Never the values themselves."""
    if entry.headers("set-cookie"):
        yield "Set-Cookie in the stored head"
    personal = PERSONAL_VARY & set(names_in(entry.vary))
    if personal:
        yield f"Vary: {', '.join(sorted(personal))}"
    control = ",".join(entry.headers("cache-control")).lower()
    for word in PERSONAL_CONTROL:
        if word in control:
            yield f"Cache-Control: {word}, and stored nevertheless"
    if entry.headers("www-authenticate"):
        yield "WWW-Authenticate: it answers who is not logged in"
