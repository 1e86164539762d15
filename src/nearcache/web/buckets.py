"""A histogram of nanoseconds in 2048 counters: 64 to a doubling, as HdrHistogram has them.

Every value from 1 ns to 137 s lies within 0.8 % of the middle of its bucket. HdrHistogram
itself keeps its counters in memory of its own; these live in a file that is shared
(samples.py), and merging is adding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

_BITS = 7  # of a value that are kept: the first, and six that tell 64 buckets apart
_PER_DOUBLING = 1 << (_BITS - 1)
GREATEST_NS = 2**37 - 1
BUCKETS = 2048


def bucket_of(ns: int) -> int:
    """The bucket of a time; what is longer than 137 s counts as that."""
    ns = min(max(ns, 0), GREATEST_NS)
    shift = max(0, ns.bit_length() - _BITS)
    return shift * _PER_DOUBLING + (ns >> shift)


def middle_ns(bucket: int) -> float:
    """The time that a bucket stands for."""
    shift = max(0, bucket // _PER_DOUBLING - 1)
    low = (bucket - shift * _PER_DOUBLING) << shift
    return low + ((1 << shift) - 1) / 2


def filled(counts: Sequence[int]) -> Iterator[tuple[float, int]]:
    """(time, how often), rising, of the buckets that are not empty."""
    return ((middle_ns(bucket), count) for bucket, count in enumerate(counts) if count)


def percentile_ns(counts: Sequence[int], rank: float) -> float:
    """The time that ``rank`` percent do not exceed. The histogram must not be empty."""
    wanted = max(1, math.ceil(sum(counts) * rank / 100))
    seen = 0
    for ns, count in filled(counts):
        seen += count
        if seen >= wanted:
            return ns
    raise ValueError("an empty histogram has no percentiles")


def stdev_ns(counts: Sequence[int]) -> float:
    """The sample standard deviation; at least two values."""
    n = sum(counts)
    mean = sum(ns * count for ns, count in filled(counts)) / n
    return math.sqrt(sum(count * (ns - mean) ** 2 for ns, count in filled(counts)) / (n - 1))
