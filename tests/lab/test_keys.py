"""The ``keys`` experiment: proves its functions, shows its loop, and says what it found."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import pytest

from nearcache.lab.base.messages import Phase, Setup
from nearcache.lab.base.model import Candidate, Experiment, Plan
from nearcache.lab.experiments.keys.arm import KeysArm, implementation_of, keys_of
from nearcache.lab.experiments.keys.findings import odds, views
from nearcache.lab.experiments.keys.plan import KEYS, URLS
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.results.sample import Sample
from nearcache.lab.runner.driver import measure
from nearcache.lab.runner.laboratory import RunOptions, new_sample, prepare
from nearcache.report.model import Chart, Table

from .conftest import Silent
from .made import Quiet

TINY = Plan(repetitions=1, rounds=2, phase_ms=0.1, time_limit_s=30)


def run_tiny(
    names: Sequence[str], payloads: Sequence[str], more: Sequence[Candidate] = ()
) -> Sample:
    experiment = replace(KEYS, candidates=[*KEYS.candidates, *more], plans={"tiny": TINY})
    names = [*names, *(candidate.name for candidate in more)]
    order = prepare(
        experiment, RunOptions(plan="tiny", candidates=names, payloads=payloads, seed=7)
    )
    sample = new_sample(order, "a test")
    measure(order, sample, Silent(), lambda sample: None)
    return sample


def faulty(name: str, **options: object) -> Candidate:
    sha256 = next(c for c in KEYS.candidates if c.name == "sha256")
    return replace(sha256, name=name, options={**sha256.options, **options})


@pytest.fixture(scope="module")
def sample() -> Sample:
    wrong = [
        faulty("md5-builtin", call="hashlib.sha1(key)"),
        faulty("too-short", bits=512),
        faulty("absent", call="no_such_module.md5(key)"),
    ]
    return run_tiny(["none", "blake2s", "xxh3-64", "shm"], [URLS, "64", "65"], wrong)


def test_hashes_and_a_real_get_are_measured_in_one_run(sample: Sample) -> None:
    for name in ("none", "md5", "blake2s", "xxh3-64"):
        for payload in (URLS, "64", "65"):
            for operation in ("hexdigest", "digest", "make_key"):
                assert sample.cells[name, operation, payload].count > 0
    assert sample.cells["shm", "get", "-"].hits > 0
    assert ("shm", "hexdigest", URLS) not in sample.cells
    assert ("md5", "get", "-") not in sample.cells


def test_the_empty_loop_is_shown_beside_what_was_timed(sample: Sample) -> None:
    cell = sample.cells["md5", "hexdigest", URLS]
    loop, net = cell.measures["empty loop"].median, cell.measures["without the loop"].median
    gross = [value for rounds in cell.points.values() for value in rounds.values()]
    assert 0 < loop < net
    assert min(gross) <= loop + net <= max(gross) * 1.01


def test_the_proof_names_whose_code_it_is(sample: Sample) -> None:
    proof = sample.candidates["blake2s"].proof
    assert proof["implementation"].startswith("CPython")
    assert proof["statement"] == "made = hashlib.blake2s(key, usedforsecurity=False).hexdigest()"
    assert "OpenSSL" in implementation_of(hashlib.new("sha256"))


def test_a_function_that_is_not_what_its_name_says_gets_no_numbers(sample: Sample) -> None:
    entry = sample.candidates["md5-builtin"]
    assert (entry.state, "not its published digest" in entry.reason) == ("failed", True)
    assert "256 bits, not 512" in sample.candidates["too-short"].reason


def test_a_module_that_is_not_there_is_missing_and_not_an_error(sample: Sample) -> None:
    entry = sample.candidates["absent"]
    assert entry.state == "missing"
    assert "no_such_module" in entry.reason


def test_the_views_of_a_real_run_hold_what_was_measured(sample: Sample) -> None:
    shown = views(Quiet(sample))
    titles = [part.title for part in shown.parts]
    assert any(title.startswith("ns per key, URL paths") for title in titles)
    assert "A get by shm takes" in " ".join(shown.sentences)
    costs = shown.parts[0]
    assert isinstance(costs, Table)
    assert {row[0] for row in costs.rows} == {"none", "md5", "blake2s", "xxh3-64"}
    assert costs.rows[0][0] == "none"


def test_keys_have_the_length_they_claim_and_the_urls_look_like_the_seeds() -> None:
    assert {len(key) for key in keys_of("129", 1)} == {129}
    assert keys_of("64", 1) == keys_of("64", 1) != keys_of("64", 2)
    paths = keys_of(URLS, 1)
    assert 40 < sum(map(len, paths)) / len(paths) < 60
    assert all(path.startswith(b"/updates/") for path in paths)


def test_two_keys_with_one_digest_fail_the_function() -> None:
    constant = replace(KEYS.candidates[1], name="constant", options={"call": "x", "bits": 8})
    arm = KeysArm(Setup(constant, "", {}, "/nonexistent", "n", seed=1, server_version="", cpu=0))

    class Constant:
        def __init__(self, key: bytes) -> None: ...
        def update(self, more: bytes) -> None: ...
        def digest(self) -> bytes:
            return b"c"

        def hexdigest(self) -> str:
            return "63"

    arm.inner._object = Constant  # type: ignore[method-assign, union-attr]
    with pytest.raises(Exception, match="two keys have one digest"):
        arm.inner._check([b"first", b"second"])  # type: ignore[union-attr]


def test_odds_of_a_collision_are_those_of_the_birthday_problem() -> None:
    assert odds(10**9, 64) == "1e-2"  # 0.027
    assert odds(10**6, 128) == "1e-27"
    assert odds(10**12, 64) == "100%"


NET_NS = {  # length -> what it takes: a block of BLAKE2s is half of one of BLAKE2b
    "blake2s": {64: 100, 65: 200, 1024: 1600},
    "blake2b": {64: 150, 65: 150, 1024: 1200},
    "md5": {64: 140, 65: 220, 1024: 2000},
}


def made_up(costs: dict[str, dict[int, float]]) -> Sample:
    experiment: Experiment = replace(KEYS, plans={"tiny": TINY})
    wanted = RunOptions(plan="tiny", candidates=list(costs), payloads=["64", "65", "1024"], seed=1)
    sample = new_sample(prepare(experiment, wanted), "made up")
    for name, entry in sample.candidates.items():
        entry.state = "measured"
        for length, net in costs[entry.twin_of or name].items():
            for repetition in range(3):
                for number in range(4):
                    phase = Phase("hexdigest", point=net + 10 + number / 10, calls=1)
                    phase.measures = {"empty loop": (10, "ns"), "without the loop": (net, "ns")}
                    sample.cell(name, "hexdigest", str(length)).add_phase(repetition, number, phase)
    return sample


def test_the_sentences_answer_the_seeds_question_from_the_sweep() -> None:
    shown = views(Analysis(made_up(NET_NS)))
    text = " ".join(shown.sentences)
    assert (
        "of the functions that are not broken blake2s takes least, 100 ns a key; next is blake2b"
        in text
    )
    assert "BLAKE2s is faster than BLAKE2b for keys of 64 bytes" in text
    assert "it is slower for 65, 1,024 bytes" in text
    assert "the 65th byte, which begins a second block, costs it 100 ns" in text
    (sweep,) = [part for part in shown.parts if isinstance(part, Chart)]
    lines = {line.name: line.points for line in sweep.lines}
    assert list(lines["blake2s"]) == [(64.0, 100), (65.0, 200), (1024.0, 1600)]


def test_without_a_difference_the_sentences_do_not_claim_one() -> None:
    same = {name: {64: 100.0, 65: 100.0, 1024: 1000.0} for name in NET_NS}
    text = " ".join(views(Analysis(made_up(same))).sentences)
    assert "this run cannot tell it from" in text
    assert "BLAKE2s is faster" not in text
    assert "costs it" not in text
