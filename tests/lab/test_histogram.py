"""Histograms that keep only what is in them say the same as an HdrHistogram, and take no room."""

from __future__ import annotations

import tracemalloc

import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcache.lab.results.histogram import GREATEST, Histogram, new_hdr

VALUES = st.lists(st.integers(0, 10**6) | st.integers(0, 2 * GREATEST), max_size=50)


@settings(max_examples=50)
@given(VALUES, VALUES)
def test_they_are_written_as_an_hdr_histogram_of_the_same_values(
    some: list[int], more: list[int]
) -> None:
    ours, others, theirs = Histogram(), Histogram(), new_hdr()
    ours.add(some)
    others.add(more)
    ours.merge(others)
    for value in (*some, *more):
        theirs.record_value(max(1, min(value, GREATEST)))
    assert Histogram.of(theirs) == ours
    assert Histogram.decode(theirs.encode().decode()) == ours
    assert Histogram.decode(ours.encode()) == ours


def test_thousands_of_them_take_megabytes() -> None:
    tracemalloc.start()
    try:
        kept = [Histogram() for _ in range(2000)]
        for number, histogram in enumerate(kept):
            histogram.add(range(1000 + number, 9000, 300))
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 20e6


def test_one_of_another_range_is_refused() -> None:
    with pytest.raises(ValueError, match="another range"):
        Histogram.of(HdrHistogram(1, 10**6, 2))
