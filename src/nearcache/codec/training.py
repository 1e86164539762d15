"""Trains zstd dictionaries, and says what one saves.

One sample in five is kept out of the training and measured afterwards: a dictionary knows the
samples it was made of by heart, and numbers from those would promise too much.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nearcache.base.options import KIB, human_bytes
from nearcache.codec.errors import library
from nearcache.codec.zstd import Zstd
from nearcache.errors import NearcacheError

MIN_SAMPLES = 100
MIN_DICTIONARY_BYTES = KIB
SAMPLE_BYTES_PER_DICTIONARY_BYTE = 8  # a larger one would only repeat the samples
MAX_SAMPLE_BYTES = 64 * KIB  # of a larger one zstd can use little more
HELD_OUT = 5  # one in so many
SIZE_CLASSES = (256, KIB, 4 * KIB, 16 * KIB, 2**63)


class TrainingError(NearcacheError):
    """These samples make no dictionary."""


@dataclass(frozen=True, slots=True)
class SizeClass:
    """What became of the samples of about one size, none of which the dictionary knew."""

    below_bytes: int
    samples: int
    raw_bytes: int
    plain_bytes: int  # by zstd alone
    trained_bytes: int  # by zstd with the dictionary

    @property
    def name(self) -> str:
        if self.below_bytes == SIZE_CLASSES[-1]:
            return f"{human_bytes(SIZE_CLASSES[-2])} and more"
        return f"below {human_bytes(self.below_bytes)}"


@dataclass(frozen=True, slots=True)
class Trained:
    dictionary: bytes
    dictionary_id: int
    classes: list[SizeClass]  # those with samples

    @property
    def total(self) -> SizeClass:
        sums = (
            sum(getattr(each, name) for each in self.classes)
            for name in ("samples", "raw_bytes", "plain_bytes", "trained_bytes")
        )
        return SizeClass(0, *sums)


def train(samples: Sequence[bytes], size_bytes: int, level: int) -> Trained:
    """A dictionary of at most that size; raises TrainingError. Takes seconds for megabytes."""
    shuffled = random.Random(0).sample(samples, len(samples))
    training, held_out = shuffled[len(samples) // HELD_OUT :], shuffled[: len(samples) // HELD_OUT]
    dictionary = _trained(training, _fitting_bytes(samples, training, size_bytes))
    with_it, without = Zstd(level, dictionary), Zstd(level)
    return Trained(
        dictionary.as_bytes(), dictionary.dict_id(), _by_size(held_out, without, with_it)
    )


def _fitting_bytes(samples: Sequence[bytes], training: Sequence[bytes], wanted: int) -> int:
    if len(samples) < MIN_SAMPLES:
        raise TrainingError(
            f"{len(samples)} samples are too few to train a dictionary: {MIN_SAMPLES} are needed,"
            " and thousands are better"
        )
    total_bytes = sum(min(len(each), MAX_SAMPLE_BYTES) for each in training)
    fitting = total_bytes // SAMPLE_BYTES_PER_DICTIONARY_BYTE
    if fitting < MIN_DICTIONARY_BYTES:
        needed = MIN_DICTIONARY_BYTES * SAMPLE_BYTES_PER_DICTIONARY_BYTE
        raise TrainingError(
            f"the samples hold {human_bytes(total_bytes)} to train with: {human_bytes(needed)} are"
            " needed, and megabytes are better"
        )
    return min(wanted, fitting)


def _trained(training: Sequence[bytes], size_bytes: int) -> Any:
    zstandard = library("zstandard")
    cut = [each[:MAX_SAMPLE_BYTES] for each in training]
    try:
        return zstandard.train_dictionary(size_bytes, cut)
    except zstandard.ZstdError as error:
        raise TrainingError(
            f"zstd finds nothing to learn in these samples ({error}): are they all alike, or noise?"
        ) from error


def _by_size(samples: Sequence[bytes], without: Zstd, with_it: Zstd) -> list[SizeClass]:
    classes = []
    at_least = 0
    for below in SIZE_CLASSES:
        chosen = [each for each in samples if at_least <= len(each) < below]
        at_least = below
        if chosen:
            classes.append(
                SizeClass(
                    below,
                    len(chosen),
                    sum(map(len, chosen)),
                    # A value that does not get smaller is stored as it is.
                    sum(min(len(each), len(without.pack(each))) for each in chosen),
                    sum(min(len(each), len(with_it.pack(each))) for each in chosen),
                )
            )
    return classes
