"""What is recommended, what never is, and what is said about it."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nearcache.lab.advice.admission import Needs
from nearcache.lab.advice.recommend import Advice, Evidence, advise
from nearcache.lab.advice.verdict import recommend
from nearcache.lab.base.messages import Phase
from nearcache.lab.experiments.drill.plan import DRILL
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.results.sample import Sample
from nearcache.lab.runner.laboratory import RunOptions, new_sample, prepare
from tests.needs import need_package

from .codecs_made_up import (
    BASE,
    EXACT,
    FACTS,
    HERE,
    JSON,
    MSGPACK,
    NAMES,
    PLAIN,
    ZLIB,
    backends_sample,
    codecs_sample,
)
from .test_cli import lab_here

FAR = "nearcache-redis-hiredis-tcp"
COSTS = {"shm": 4.0, FAR: 60.0, "django-redis-hiredis-tcp": 140.0, "pymemcache-tcp": 90.0}
NARROW = Needs(reach="network", bytes_per_s=1e6, rtt_ns=HERE.rtt_ns)

CONSTRUCT = """
import json, sys
from django.conf import settings
settings.configure(CACHES=json.loads(sys.stdin.read()))
import django
django.setup()
from django.core.cache import caches
print(type(caches["default"]).__name__)
"""


def of(
    backends: Sample | None = None, codecs: Sample | None = None, drill: Sample | None = None
) -> Evidence:
    return Evidence(
        backends=Analysis(backends) if backends else None,
        codecs=Analysis(codecs) if codecs else None,
        drill=drill,
    )


def both() -> Evidence:
    return of(backends_sample(COSTS), codecs_sample())


def drilled(outcomes: dict[str, dict[str, str]]) -> Sample:
    """A drill in which these candidates end so when their server is gone."""
    order = prepare(DRILL, RunOptions(plan="quick", candidates=list(outcomes), seed=1))
    sample = new_sample(order, "made up")
    for name, ends in outcomes.items():
        for operation, words in ends.items():
            cell = sample.cell(name, operation, "stopped")
            cell.add_phase(0, 0, Phase(operation, calls=1, outcomes={words: 1}))
    return sample


def block_of(advice: Advice) -> Any:
    match = re.search(r"^CACHES = (\{.*?^\})$", advice.block, re.DOTALL | re.MULTILINE)
    assert match
    caches = ast.literal_eval(match.group(1))
    assert caches == advice.caches
    return caches["default"]


def test_on_one_host_the_fastest_that_processes_share_is_taken() -> None:
    advice = advise(both(), Needs())
    assert advice.chosen == ["shm"]
    assert block_of(advice) == {
        "BACKEND": "nearcache.backends.SharedMemoryCache", "LOCATION": "mysite",
    }  # fmt: skip
    assert advice.refused["locmem"] == "each process has its own"
    assert any("--reach network" in change and FAR in change for change in advice.changes)


def test_over_a_network_the_backend_gets_the_codec_for_its_link() -> None:
    assert advise(both(), Needs(reach="network")).chosen == [FAR, PLAIN]
    narrow = advise(both(), NARROW)
    assert narrow.chosen == [FAR, ZLIB]
    assert block_of(narrow)["OPTIONS"] == {"compressor": "zlib"}
    assert narrow.refused["shm"] == "only one host sees it"
    assert "8 Mbit/s (as you said)" in " ".join(narrow.reasons)


def test_it_says_at_which_link_it_would_change_its_mind() -> None:
    changes = " ".join(advise(both(), Needs(reach="network")).changes)
    rate = re.search(r"On a link below ([0-9.]+) ([MG])bit/s: nearcache-auto-zlib", changes)
    assert rate
    # Just there the other one is taken, and not before.
    edge = float(rate[1]) * {"M": 1e6, "G": 1e9}[rate[2]] / 8
    assert advise(both(), replace(NARROW, bytes_per_s=edge * 0.99)).chosen[-1] == ZLIB
    assert advise(both(), replace(NARROW, bytes_per_s=edge * 1.3)).chosen[-1] == PLAIN


@pytest.mark.parametrize("needs", [Needs(reach="network"), NARROW, Needs(json=True)])
def test_a_codec_that_changes_types_is_never_recommended(needs: Needs) -> None:
    advice = advise(both(), needs)
    assert JSON not in advice.chosen
    assert advice.refused[JSON] == "it changes types: tuple"


def test_needs_that_only_a_changing_codec_fits_get_no_block_but_a_way_on() -> None:
    advice = advise(both(), Needs(json=True))
    assert advice.block == ""
    assert advice.caches == {}
    assert any("lab run codecs --data" in c and JSON in c for c in advice.changes)


def test_refusing_types_is_a_price_only_for_who_asked_for_more() -> None:
    assert MSGPACK not in advise(both(), Needs(reach="network")).chosen
    portable = advise(both(), Needs(reach="network", portable=True))
    assert portable.chosen == [FAR, MSGPACK]
    assert "for enum it raises an error" in " ".join(portable.reasons)
    safe = advise(both(), Needs(reach="network", no_pickle=True))
    assert safe.chosen == [FAR, EXACT]
    assert block_of(safe)["OPTIONS"] == {"serializer": "exact"}
    assert safe.refused[PLAIN] == "a pickle planted in the store runs its code"


def test_shared_memory_without_pickle_needs_no_codec_that_was_measured() -> None:
    assert block_of(advise(both(), Needs(no_pickle=True)))["OPTIONS"] == {"serializer": "exact"}
    assert "shm" not in advise(both(), Needs(portable=True)).chosen


def own_values(fate: str) -> Sample:
    """A run on the user's own values, of which JSON does this."""
    facts = {
        name: {
            **FACTS[name],
            "stored own": "as ever",
            "tried own": "9 of 9 values",
            "types in own": "dict, str",
        }
        for name in NAMES
    }
    if fate:
        facts[JSON]["stored own"] = f"not: {fate}"
    sample = codecs_sample(facts=facts)
    sample.about |= {"own_data": "a directory", "payloads": {"own": "your values"}}
    for (name, operation, payload), cell in list(sample.cells.items()):
        if payload == "D" and not (name == JSON and fate):
            cell.payload = "own"
            sample.cells[name, operation, "own"] = cell
    return sample


def test_the_users_own_values_decide_which_types_count() -> None:
    assert advise(of(codecs=own_values("")), Needs(json=True)).chosen == [JSON]
    refused = advise(of(codecs=own_values("becomes list, was tuple")), Needs(json=True))
    assert refused.chosen == []
    assert "your values do not come back" in refused.refused[JSON]
    reasons = " ".join(advise(of(codecs=own_values("")), Needs()).reasons)
    assert "Your own values come back as what they were (9 of 9 values)" in reasons
    assert "They hold: dict, str." in reasons


def test_values_that_were_not_decoded_do_not_decide_who_keeps_types() -> None:
    sample = own_values("")
    sample.about["undecoded"] = 3
    advice = advise(of(codecs=sample), Needs(json=True))
    assert advice.chosen == []
    assert "changes types: tuple" in advice.refused[JSON]
    assert "3 of your values were not decoded" in " ".join(
        advise(of(codecs=sample), Needs()).reasons
    )


def test_an_alias_of_the_users_is_kept_only_where_nothing_is_asked_of_how_it_writes() -> None:
    backends = backends_sample(COSTS)
    backends.candidates["shm"].recommended = {}  # as that of a user's own alias
    kept = advise(of(backends, codecs_sample()), Needs())
    assert kept.chosen == ["shm"]
    assert "Keep the entry 'shm'" in kept.block
    assert "writes the values" not in " ".join(kept.reasons)
    assert any("lab recommend FILE of codecs" in change for change in kept.changes)
    for needs in (Needs(json=True), Needs(portable=True), Needs(no_pickle=True)):
        assert "shm" not in advise(of(backends, codecs_sample()), needs).chosen


def test_a_backend_is_not_recommended_if_the_users_values_do_not_survive_its_own_codec() -> None:
    sample = own_values("refused: TypeError")
    for name in NAMES:
        sample.candidates[name].facts["stored own"] = "not: becomes str"
    advice = advise(of(backends_sample(COSTS), sample), Needs(reach="network"))
    assert advice.chosen == []
    assert advice.block == ""


def test_types_that_nobody_tried_are_not_taken_on_trust() -> None:
    facts = {name: {} for name in NAMES}
    advice = advise(of(codecs=codecs_sample(facts=facts)), Needs())
    assert advice.chosen == []
    assert advice.refused[PLAIN] == "what becomes of types was not tried"


def test_void_numbers_are_never_recommended() -> None:
    backends = backends_sample(COSTS)
    backends.cells["shm", "get", "S"].errors = 3
    codecs = codecs_sample()
    codecs.cells[PLAIN, "get", "D"].errors = 1
    advice = advise(of(backends, codecs), Needs())
    assert "shm" not in advice.chosen
    assert "3 wrong answers" in advice.refused["shm"]
    assert PLAIN not in advise(of(backends, codecs), Needs(reach="network")).chosen
    codecs.about["steal_share"] = 0.5
    assert advise(of(codecs=codecs), Needs()).block == ""


def test_a_backend_that_changes_types_is_not_recommended_either() -> None:
    sample = backends_sample({FAR: 60.0, "pymemcache-tcp": 5.0})
    sample.candidates["pymemcache-tcp"].facts = {"keeps": "str", "changes": "bool becomes int"}
    advice = advise(of(sample), Needs(reach="network"))
    assert advice.chosen == [FAR]
    assert advice.refused["pymemcache-tcp"] == "it changes types: bool"
    assert recommend(Analysis(sample)).chosen == FAR


def test_a_cache_that_lies_about_its_server_is_put_aside() -> None:
    costs = {**COSTS, FAR: 200.0}
    drill = drilled(
        {
            "pymemcache": {"set": "lies: not stored", "get": "silent miss"},
            "nearcache-redis": {"set": "raises EngineUnavailable"},
        }
    )
    without = advise(of(backends_sample(costs)), Needs(reach="network"))
    assert without.chosen == ["pymemcache-tcp"]
    assert any("lab run drill" in change for change in without.changes)
    advice = advise(of(backends_sample(costs), drill=drill), Needs(reach="network"))
    assert "set lies: not stored" in advice.refused["pymemcache-tcp"]
    assert advice.chosen[0] != "pymemcache-tcp"
    liar = drilled({"nearcache-redis": {"get": "lies: a wrong value"}})
    only = advise(of(codecs=codecs_sample((BASE, PLAIN)), drill=liar), Needs())
    assert only.chosen == [BASE]


def test_how_the_chosen_one_fails_is_said() -> None:
    drill = drilled({"nearcache-redis": {"set": "raises EngineUnavailable", "get": "answers"}})
    advice = advise(of(backends_sample(COSTS), drill=drill), Needs(reach="network"))
    assert "set raises EngineUnavailable" in " ".join(advice.reasons)


def test_of_those_that_cannot_be_told_apart_the_one_that_fails_better_is_taken() -> None:
    costs = {FAR: 60.0, "django-redis-hiredis-tcp": 59.9}
    drill = drilled(
        {"nearcache-redis": {"get": "raises X"}, "django-redis": {"get": "blocks > 6 s"}}
    )
    assert advise(of(backends_sample(costs)), Needs(reach="network")).chosen[0] != FAR
    advice = advise(of(backends_sample(costs), drill=drill), Needs(reach="network"))
    assert advice.chosen[0] == FAR
    assert "it fails better" in " ".join(advice.reasons)


def test_a_much_smaller_one_wins_a_tie() -> None:
    # Over a second of round trip nobody is faster; fewer bytes are still fewer bytes.
    advice = advise(
        of(codecs=codecs_sample((BASE, PLAIN, ZLIB))), Needs(rtt_ns=1e9, size_bytes=2e4)
    )
    assert advice.chosen == [ZLIB]


def test_the_report_of_a_run_keeps_to_the_same_rule() -> None:
    advice = recommend(Analysis(codecs_sample()))
    assert advice.chosen == PLAIN
    assert any(JSON in sentence and "changes types" in sentence for sentence in advice.sentences)


@pytest.mark.parametrize(
    "needs", [Needs(), Needs(reach="network"), NARROW, Needs(no_pickle=True), Needs(portable=True)]
)
def test_django_accepts_the_block_and_it_holds_no_private_address(needs: Needs) -> None:
    advice = advise(both(), needs)
    assert "nearcache-lab" not in advice.block
    assert "{" not in str(block_of(advice)["LOCATION"])
    need_package("redis", "msgpack")
    result = subprocess.run(
        [sys.executable, "-c", CONSTRUCT],
        input=json.dumps(advice.caches),
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() in ("SharedMemoryCache", "RedisCache")


# -- the command line ---------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with runs of this machine, where the command looks for them."""
    directory = tmp_path / "results" / "lab"
    directory.mkdir(parents=True)
    backends_sample(COSTS).write(directory / "backends-1.json")
    old, new = codecs_sample(), codecs_sample()
    old.about["started"] = "2001-01-01 00:00:00 UTC"
    old.write(directory / "codecs-2.json")
    (directory / "below").mkdir()
    new.write(directory / "below" / "codecs-1.json")
    monkeypatch.chdir(tmp_path)
    return directory


def test_without_names_the_newest_samples_of_this_machine_are_taken(kept: Path) -> None:
    foreign = codecs_sample()
    foreign.about["machine"] = {**foreign.about["machine"], "cpu_model": "another"}
    foreign.about["started"] = "2999-01-01 00:00:00 UTC"
    foreign.write(kept / "codecs-9.json")
    (kept / "codecs-8.json").write_text("no sample")
    result = lab_here("recommend", "--reach", "network", "--bandwidth", "8Mbit", "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["evidence"]["codecs"].endswith("below/codecs-1.json")
    assert found["chosen"] == [FAR, ZLIB]
    assert found["caches"]["default"]["OPTIONS"] == {"compressor": "zlib"}
    assert found["needs"]["bytes_per_s"] == 1e6
    assert sum("passed over" in line for line in found["warnings"]) == 2


def test_it_prints_the_block_the_reasons_and_what_would_change_them(kept: Path) -> None:
    result = lab_here("recommend", str(kept / "backends-1.json"))
    assert result.returncode == 0, result.stderr
    for part in ("CACHES = {", "\nWhy\n", "\nWhat would change this\n", "not measured yet: codecs"):
        assert part in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_a_report_marks_on_its_maps_where_the_reader_is(kept: Path) -> None:
    result = lab_here(
        "report", str(kept / "codecs-2.json"), "--rtt", "1ms", "--bandwidth", "100Mbit"
    )
    assert result.returncode == 0, result.stderr
    assert "You are at 1.00 ms and 100 Mbit/s" in " ".join(result.stdout.split())


def test_nothing_to_recommend_exits_1(kept: Path) -> None:
    assert lab_here("recommend", "--need-json").returncode == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--rtt", "5"), "0.5ms"),
        (("--bandwidth", "fast"), "1Gbit"),
        (("--reach", "mars"), "mars"),
        (("nowhere.json",), "does not exist"),
    ],
)
def test_what_is_wrong_with_the_request_is_said_in_one_line(
    kept: Path, words: tuple[str, ...], said: str
) -> None:
    result = lab_here("recommend", *words)
    assert result.returncode == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_without_any_sample_it_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = lab_here("recommend")
    assert result.returncode == 2
    assert "recommend --quick" in result.stderr


def test_in_a_tie_the_one_that_needs_less_is_taken_by_report_and_recommendation_alike() -> None:
    less = FAR.replace("hiredis", "python")
    for first_us, other_us in ((59.9, 60.0), (60.0, 59.9)):
        sample = backends_sample({FAR: first_us, less: other_us})
        advice = advise(of(sample), Needs(reach="network"))
        assert advice.chosen == [less]
        report = recommend(Analysis(sample))
        assert report.chosen == less
        assert "hiredis" not in report.caches_block
        for said in (advice.reasons[0], report.sentences[0]):
            assert "fails better" not in said, "nobody has tried that"
            assert (f"({FAR})" in said) == (first_us < other_us), said
            assert ("it does without hiredis" in said) == (first_us < other_us), said
    # Told apart, the faster one stays first.
    sample = backends_sample({FAR: 30.0, less: 60.0})
    assert advise(of(sample), Needs(reach="network")).chosen == [FAR]
    assert recommend(Analysis(sample)).chosen == FAR


def test_where_nothing_is_recommended_nobody_is_said_to_be_first() -> None:
    advice = advise(of(backends_sample(COSTS)), Needs(reach="network", json=True))
    assert not advice.block
    assert not any("is first" in reason for reason in advice.reasons)
    assert not advice.chosen
