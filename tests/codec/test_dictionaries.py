"""Trained zstd dictionaries: made, used, rotated, missing."""

from __future__ import annotations

import json
import random
import threading
from pathlib import Path
from typing import Any

import pytest
import zstandard

from nearcache.base.options import zstd_dictionaries
from nearcache.codec import Undecodable, make_codec
from nearcache.codec.training import MIN_SAMPLES, Trained, TrainingError, train
from nearcache.codec.zstd import Dictionaries


def records(count: int, seed: int = 0) -> list[bytes]:
    pick = random.Random(seed)
    return [
        json.dumps(
            {
                "id": number,
                "name": pick.choice(["Ann", "Bob", "Cem"]),
                "mail": f"user{number}@example.com",
                "groups": pick.sample(["admins", "staff", "editors", "viewers"], 2),
                "history": [f"2026-01-{day:02d}" for day in range(pick.randint(0, 28))],
            }
        ).encode()
        for number in range(count)
    ]


@pytest.fixture(scope="module")
def trained() -> Trained:
    return train(records(1000), 8192, 3)


@pytest.fixture
def paths(tmp_path: Path, trained: Trained) -> tuple[str, str]:
    """Two dictionaries."""
    found = []
    for name, dictionary in (
        ("one", trained.dictionary),
        ("two", train(records(500, seed=1), 4096, 3).dictionary),
    ):
        path = tmp_path / name
        path.write_bytes(dictionary)
        found.append(str(path))
    return found[0], found[1]


def codec(*paths: str, **options: Any) -> Any:
    return make_codec("auto", "zstd", compress_dictionaries=paths, **options)


def test_a_dictionary_makes_values_it_does_not_know_smaller(trained: Trained) -> None:
    assert len(trained.dictionary) <= 8192
    assert trained.total.samples == 200
    assert trained.total.trained_bytes < trained.total.plain_bytes < trained.total.raw_bytes
    assert [each.below_bytes for each in trained.classes] == [256, 1024]


def test_training_twice_makes_the_same_dictionary(trained: Trained) -> None:
    assert train(records(1000), 8192, 3).dictionary == trained.dictionary


def test_small_values_are_packed_with_a_dictionary_and_read_by_number(
    paths: tuple[str, str],
) -> None:
    one, two = paths
    text = records(1, seed=5)[0].decode()
    raw = codec(one).encode(text)
    assert raw[0] == 0x80 | 6 << 4 | 1
    assert len(raw) < len(text) / 2
    assert codec(one).decode(raw) == text
    assert codec(two, one).decode(raw) == text
    assert codec(one, two).decode(codec(two, one).encode(text)) == text
    assert codec(one).encode("short") == b"\x81short"


def test_a_value_whose_dictionary_is_missing_is_undecodable(paths: tuple[str, str]) -> None:
    one, two = paths
    raw = codec(one).encode(records(1)[0])
    for reader in (codec(two), make_codec(), make_codec("auto", "zstd")):
        with pytest.raises(Undecodable):
            reader.decode(raw)


def test_a_dictionary_reads_what_was_packed_without_one(paths: tuple[str, str]) -> None:
    value = records(20)
    assert codec(*paths).decode(make_codec("auto", "zstd").encode(value)) == value


def test_a_bomb_with_a_dictionary_is_undecodable(paths: tuple[str, str]) -> None:
    bomb = codec(paths[0]).encode(bytes(1 << 22))
    with pytest.raises(Undecodable):
        codec(paths[0], unpacked_max_bytes=1 << 20).decode(bomb)


def test_threads_do_not_share_a_context(paths: tuple[str, str]) -> None:
    coder = Dictionaries(paths, 3)
    samples = records(200)
    wrong = []

    def work() -> None:
        wrong.extend(each for each in samples if coder.unpack(coder.pack(each), 1 << 20) != each)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (records(MIN_SAMPLES - 1), f"99 samples are too few to train a dictionary: {MIN_SAMPLES}"),
        ([b"tiny"] * 200, "the samples hold 640 B"),
        ([], "0 samples are too few"),
    ],
    ids=["few", "tiny", "none"],
)
def test_too_little_to_train_with_is_refused(samples: list[bytes], message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        train(samples, 8192, 3)


def test_samples_that_zstd_cannot_train_with_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise zstandard.ZstdError("Src size is incorrect")

    assert train([b"x" * 1000] * 200, 8192, 3).total.samples == 40
    monkeypatch.setattr("zstandard.train_dictionary", refuse)
    with pytest.raises(TrainingError, match=r"nothing to learn .* \(Src size is incorrect\)"):
        train(records(200), 8192, 3)


def test_a_path_that_is_no_dictionary_fails_at_start_up(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not one")
    with pytest.raises(ValueError, match="no zstd dictionary; `nearcache codec train`"):
        zstd_dictionaries(str(tmp_path / "text"))
    with pytest.raises(ValueError, match="cannot be read"):
        zstd_dictionaries([tmp_path / "absent"])
