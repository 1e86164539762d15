"""The user's own values as payloads: what is taken, what is left out, and how they are checked."""

from __future__ import annotations

import json
import math
import os
import pickle
import time
from collections import Counter
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nearcache.errors import LabError
from nearcache.lab.arms.candidates import LOCMEM
from nearcache.lab.base.messages import Visit
from nearcache.lab.experiments.codecs.arm import CodecArm
from nearcache.lab.own.data import MOST_VALUE_BYTES, OwnData, read_directory
from nearcache.lab.proofs.stored import Meter
from nearcache.lab.results.sample import read_sample
from nearcache.lab.timers.operations import Visitor, VisitTools
from nearcache.lab.workloads import make_payload
from nearcache.lab.workloads.fidelity import EXACT
from nearcache.lab.workloads.own import OwnValues

from .calm_lab import calm_lab
from .conftest import report_if_calm
from .test_cli import lab


def fill(directory: Path, count: int = 60) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        value = {"id": number, "text": "y" * (number * 50)}
        (directory / f"{number}.json").write_text(json.dumps(value))
    return directory


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return fill(tmp_path / "values")


def payload_of(found: OwnData, letter: str, path: Path) -> OwnValues:
    found.write(path)
    made = make_payload(letter, 3, str(path))
    assert isinstance(made, OwnValues)
    return made


def test_three_classes_of_equal_count_hold_all_values(directory: Path) -> None:
    classes = read_directory(directory, pickles=False).classes
    assert list(classes) == ["own-small", "own-medium", "own-large"]
    assert [len(values) for values in classes.values()] == [20, 20, 20]
    sizes = [len(value) for values in classes.values() for value in values]
    assert sizes == sorted(sizes)


def test_few_values_are_one_class(tmp_path: Path) -> None:
    found = read_directory(fill(tmp_path / "few", 5), pickles=False)
    assert {name: len(values) for name, values in found.classes.items()} == {"own": 5}


def test_files_are_json_text_bytes_and_pickles_if_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[1, "é"]')
    (tmp_path / "b.html").write_text("<p>é</p>")
    (tmp_path / "c.bin").write_bytes(b"\xff\xfe")
    (tmp_path / "d.bytes").write_bytes(b"text, yet bytes")
    (tmp_path / "e.pickle").write_bytes(pickle.dumps({Decimal("1.10"), 2}))
    found = read_directory(tmp_path, pickles=True)
    values = [pickle.loads(each) for each in found.values]
    for value in ([1, "é"], "<p>é</p>", b"\xff\xfe", b"text, yet bytes", {Decimal("1.10"), 2}):
        assert value in values


def test_a_pickle_is_not_touched_unless_asked_for(directory: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    (directory / "evil.pickle").write_bytes(
        b"cos\nsystem\n(S'touch " + str(ran).encode() + b"'\ntR."
    )
    found = read_directory(directory, pickles=False)
    assert not ran.exists()
    assert "--pickle reads them" in found.describe()
    read_directory(directory, pickles=True)
    assert ran.exists(), "the planted pickle proves nothing"


def test_what_cannot_be_used_is_counted_with_its_reason(directory: Path) -> None:
    (directory / "bad.json").write_text("{")
    (directory / "none.json").write_text("null")
    (directory / "nan.json").write_text("[1, 2")
    (directory / "same.json").write_text((directory / "1.json").read_text())
    (directory / "bad.pickle").write_bytes(b"\x80\x05nonsense")
    with (directory / "huge.txt").open("wb") as file:
        file.truncate(MOST_VALUE_BYTES + 1)
    os.mkfifo(directory / "pipe.json")
    (directory / ".hidden.json").write_text("1")
    (directory / "_sample.json").write_text("1")
    found = read_directory(directory, pickles=True)
    assert len(found.values) == 60
    said = found.describe()
    for part in (
        "2 damaged JSON", "(first: bad.json)", "1 None", "1 the same as another",
        "1 pickles that do not load here", "1 larger than 8 MiB (first: huge.txt)",
    ):  # fmt: skip
        assert part in said
    assert sum(found.skipped.values()) == 6


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "holds no files"),
        ({"a.json": "1"}, "at least two different values"),
        ({"a.json": "{", "b.json": "{"}, "2 damaged JSON"),
        ({"a.json": "1", "b.json": "1"}, "1 the same as another"),
    ],
)
def test_too_little_to_measure_with_is_one_clear_line(
    files: dict[str, str], said: str, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(LabError, match=said):
        read_directory(tmp_path, pickles=False)


def test_an_answer_is_right_stale_foreign_damaged_or_of_another_type(
    directory: Path, tmp_path: Path
) -> None:
    payload = payload_of(read_directory(directory, pickles=False), "own-small", tmp_path / "v")
    key, other = "x:0003", "x:0011"
    assert payload.check(payload.make(key, 7), key, 7) is None
    assert "stale" in str(payload.check(payload.make(key, 6), key, 7))
    assert "foreign" in str(payload.check(payload.make(other, 7), key, 7))
    assert "damaged" in str(payload.check({"id": -1}, key, 7))
    assert "wrong type" in str(payload.check([1], key, 7))


def test_equal_but_of_another_type_inside_is_caught(tmp_path: Path) -> None:
    found = OwnData("made up", [pickle.dumps(each) for each in ([1, 2], [True, 4], [5, 6])])
    payload = payload_of(found, "own", tmp_path / "v")
    key = next(f"k:{i}" for i in range(9) if payload.make(f"k:{i}", 0) == [True, 4])
    assert payload.check([True, 4], key, 0) is None
    fresh = payload_of(found, "own", tmp_path / "w")
    assert "wrong type inside" in str(fresh.check([1, 4], key, 0))


def test_a_value_with_nan_inside_is_known_again(tmp_path: Path) -> None:
    found = OwnData("made up", [pickle.dumps(each) for each in ([math.nan, 1], [2.0, 3])])
    payload = payload_of(found, "own", tmp_path / "v")
    key = next(f"k:{i}" for i in range(9) if payload.make(f"k:{i}", 0)[1] == 1)
    assert payload.check(pickle.loads(pickle.dumps([math.nan, 1])), key, 0) is None
    assert "damaged" in str(payload.check([math.nan, 7], key, 0))


def test_values_that_were_not_decoded_are_counted(directory: Path) -> None:
    (directory / "a.stored").write_bytes(b"a pickle that nobody read")
    found = read_directory(directory, pickles=False)
    assert found.undecoded == 1
    assert "1 not decoded" in found.describe()


def test_keys_of_one_visit_hold_different_values(directory: Path, tmp_path: Path) -> None:
    payload = payload_of(read_directory(directory, pickles=False), "own-large", tmp_path / "v")
    keys = [f"n:0:1:{number:04d}" for number in range(payload.key_count)]
    values = [json.dumps(payload.make(key, 5)) for key in keys]
    assert len(set(values)) == len(keys)


def test_all_candidates_see_the_same_values_in_the_same_order(
    directory: Path, tmp_path: Path
) -> None:
    found = read_directory(directory, pickles=False)
    one = payload_of(found, "own-small", tmp_path / "v")
    other = make_payload("own-small", 3, str(tmp_path / "v"))
    assert [one.make("k:1", v) for v in range(30)] == [other.make("k:1", v) for v in range(30)]


class Pace:
    """A cache in which the calls take as long as it is told; it notes what it was asked for."""

    def __init__(self, call_ns: int) -> None:
        self.call_ns = call_ns
        self.stored: dict[str, object] = {}
        self.seen: dict[str, Counter[str]] = {"set": Counter(), "get": Counter()}

    def _note(self, what: str, value: object) -> None:
        self.seen[what][json.dumps(value)] += 1
        end = time.perf_counter_ns() + self.call_ns
        while time.perf_counter_ns() < end:
            pass

    def set(self, key: str, value: object, timeout: int) -> None:
        self.stored[key] = value
        self._note("set", value)

    def get(self, key: str) -> object:
        self._note("get", self.stored.get(key))
        return self.stored.get(key)

    def get_many(self, keys: list[str]) -> dict[str, object]:
        return {key: self.stored[key] for key in keys if key in self.stored}

    def delete(self, key: str) -> None:
        self.stored.pop(key, None)


@pytest.mark.parametrize("batch", [1, 10])
@pytest.mark.parametrize("call_us", [1, 37, 400])
def test_slow_and_fast_caches_see_each_value_equally_often(
    call_us: int, batch: int, tmp_path: Path
) -> None:
    found = read_directory(fill(tmp_path / "seven", 7), pickles=False)
    (letter,) = found.classes
    payload = payload_of(found, letter, tmp_path / "classes")
    cache: Any = Pace(1000 * call_us)
    visit = Visit(letter, ("set", "get"), "r0", 2_000_000, batch={"set": batch, "get": batch})
    Visitor(VisitTools(cache, cache, "n", None), payload, visit).run()
    for what, seen in cache.seen.items():
        assert len(seen) == 7, what
        assert len(set(seen.values())) == 1, (what, seen)


def test_the_size_is_that_of_all_values(tmp_path: Path) -> None:
    values = [b"x" * size for size in (10, 1000)]
    meter = object.__new__(Meter)
    meter._total, meter._cache = None, object()
    meter._candidate = LOCMEM
    sizes = [len(pickle.dumps(value, pickle.HIGHEST_PROTOCOL)) for value in values]
    assert meter.per_item(["a", "b"], *values) == (sum(sizes) / 2, "pickled size")


def test_few_large_values_are_stored_at_a_time(tmp_path: Path) -> None:
    values = [pickle.dumps(bytes([n]) * 3_000_000) for n in range(10)]
    payload = payload_of(OwnData("made up", values), "own", tmp_path / "v")
    assert payload.key_count == 5


class Lists:
    """A cache that gives a list for a tuple."""

    def set(self, _key: str, value: Any, _timeout: int) -> None:
        self.value = list(value)

    def get(self, _key: str, _default: Any) -> Any:
        return self.value

    def delete(self, _key: str) -> None:
        del self.value


def test_types_are_tried_of_all_values_not_only_of_those_that_the_keys_hold(tmp_path: Path) -> None:
    values: list[Any] = [[number] for number in range(330)]
    found = OwnData("made up", [pickle.dumps(each) for each in values])
    payload = payload_of(found, "own-small", tmp_path / "v")
    unused = next(each for each in values[:110] if each not in payload.values)
    found.values[unused[0]] = pickle.dumps(tuple(unused))
    payload = payload_of(found, "own-small", tmp_path / "w")
    arm = object.__new__(CodecArm)
    arm.setup = SimpleNamespace(namespace="n")
    arm.cache, arm.facts, arm.fates = Lists(), {}, {"another": EXACT}
    arm._try("own-small", payload)
    assert arm.fates["own-small"] == "becomes list"


# -- the command line ----------------------------------------------------------------------


def test_a_run_measures_with_the_values_and_says_how_they_are_checked(
    directory: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    (directory / "bad.json").write_text("{")
    result = calm_lab(
        "run", "backends", "--quick", "--time-limit", "3", "--data", str(directory),
        "--operations", "get,set,delete", "--candidates", "filebased", "--out", str(out),
        "--price-gb-month", "3", "--seed", "5",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "60 distinct values" in result.stderr
    assert "1 damaged JSON" in result.stderr
    (path,) = out.glob("*.json")
    sample = read_sample(path)
    assert list(sample.about["payloads"]) == ["own-small", "own-medium", "own-large"]
    assert "60 distinct values" in sample.about["own_data"]
    assert any("carry no key" in text for text in sample.about["cannot_answer"])
    assert set(sample.about["payload_bytes"]) == set(sample.about["payloads"])
    assert sample.about["prices"]["gb_month"] == 3
    assert sample.about["own_data"] in " ".join(result.stdout.split())
    assert "what you gave on" in report_if_calm(sample)
    for letter in sample.about["payloads"]:
        assert sample.cells["filebased", "get", letter].hits > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--data {tmp}/none", "is no directory"),
        ("--data {tmp} --sample redis://127.0.0.1:1", "not both"),
        ("--save {tmp}/x", "give --sample"),
        ("--pickle", "give one of them"),
        ("--from-alias default", "--from-alias needs --settings"),
        ("--price-gb-month -1", "a price or rate is a number from 0"),
        ("--requests-per-second 5", "--price-vcpu-hour"),
        ("--quick --plan full", "not both"),
        ("--time-limit 0", "is not in the range"),
        ("--all", "give names, or --all"),
        ("--sample redis://:secretword@127.0.0.1:1/0", "Connection refused"),
        ("--sample hello", "is no address of a Redis"),
    ],
)
def test_a_bad_request_is_one_clear_line(words: str, said: str, tmp_path: Path) -> None:
    result = lab("run", "backends", *words.format(tmp=tmp_path).split(), "--out", str(tmp_path))
    assert result.returncode == 2
    assert said in result.stderr.strip().splitlines()[-1]
    assert "Traceback" not in result.stderr
    assert "secretword" not in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", ["--data {tmp}", "--settings tests.settings"])
def test_an_experiment_that_cannot_take_what_is_given_says_which_can(
    words: str, tmp_path: Path
) -> None:
    fill(tmp_path, 3)
    result = lab("run", "keys", *words.format(tmp=tmp_path).split(), "--out", str(tmp_path))
    assert result.returncode == 2
    assert "or run backends" in result.stderr
