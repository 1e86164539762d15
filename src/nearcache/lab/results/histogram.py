"""Histograms by the thousand: those buckets of an HdrHistogram that have something in them.

An HdrHistogram of the lab's range is an array of forty thousand counters, 300 kB whether one
sample is in it or a million; a run has one for each cell and process, so the parent of
``lab run`` would hold gigabytes. Files and workers speak HdrHistogram (V2, compressed, base64),
as other tools do.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

GREATEST = 2**47  # 39 hours in ns, 128 TB in bytes
DIGITS = 3


def new_hdr() -> Any:
    """An empty HdrHistogram of the lab's range, for who records millions."""
    from hdrh.histogram import HdrHistogram

    return HdrHistogram(1, GREATEST, DIGITS)


@dataclass
class Histogram:
    """``counts[i]`` samples are in bucket i, which begins at ``starts()[i]``."""

    counts: dict[int, int] = field(default_factory=dict)

    def add(self, values: Iterable[int]) -> None:
        """Count these; what is outside of 1 to ``GREATEST`` counts as the end it is beyond."""
        edges = starts()
        for value in values:
            bucket = bisect_right(edges, max(1, min(value, GREATEST))) - 1
            self.counts[bucket] = self.counts.get(bucket, 0) + 1

    def merge(self, other: Histogram) -> None:
        for bucket, count in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count

    def encode(self) -> str:
        """As an HdrHistogram: V2, compressed, base64."""
        hdr, edges = new_hdr(), starts()
        for bucket, count in self.counts.items():
            hdr.record_value(edges[bucket], count)
        return str(hdr.encode().decode())

    @classmethod
    def decode(cls, text: str) -> Histogram:
        """Raises ValueError if it is damaged, or of another range than the lab's."""
        return cls.of(decoded(text))

    @classmethod
    def of(cls, hdr: Any) -> Histogram:
        """What is recorded in an HdrHistogram. Raises ValueError if its range is another."""
        if (hdr.highest_trackable_value, hdr.significant_figures) != (GREATEST, DIGITS):
            raise ValueError("a histogram has another range")
        if not hdr.total_count:
            return cls()
        edges = starts()
        first = max(0, bisect_right(edges, hdr.min_value) - 1)
        end = bisect_right(edges, hdr.max_value)
        found = enumerate(hdr.counts[first:end], first)
        return cls({bucket: count for bucket, count in found if count})


def decoded(text: str) -> Any:
    """An HdrHistogram. Raises ValueError if the text is damaged."""
    from hdrh.codec import HdrCookieException, HdrLengthException
    from hdrh.histogram import HdrHistogram

    try:
        return HdrHistogram.decode(text)
    except (HdrCookieException, HdrLengthException, zlib.error) as error:
        raise ValueError("a histogram is damaged") from error


@cache
def starts() -> list[int]:
    """Where each bucket begins, and where the last one ends."""
    hdr = new_hdr()
    return [hdr.get_value_from_index(i) for i in range(hdr.counts_len + 1)]
