"""Codecs on a real Redis: the treatment shows in the bytes, and faults are caught."""

from __future__ import annotations

import gzip
import json
import lzma
import pickle
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from nearcache.lab.arms.candidates import choose
from nearcache.lab.base.model import Candidate, Requirement
from nearcache.lab.checks.rules import voided
from nearcache.lab.experiments.codecs.arm import alone_ns
from nearcache.lab.experiments.codecs.findings import views
from nearcache.lab.experiments.codecs.plan import CANDIDATES, CODECS, QUICK
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.proofs.stored_form import StoredForm, UnknownForm, form_of
from nearcache.lab.results.sample import Sample
from nearcache.lab.runner.driver import measure
from nearcache.lab.runner.laboratory import RunOptions, new_sample, prepare
from nearcache.lab.timers.traffic import Counters
from nearcache.lab.workloads.fidelity import fates_in
from nearcache.lab.workloads.growing import HITS, WRITERS, grow
from nearcache.report.model import Table
from tests.needs import need_package

from .codecs_made_up import codecs_sample
from .conftest import TINY, Silent, calm, need

BASE = "django-redis-pickle"


def named(original: str, **changes: Any) -> Candidate:
    (candidate,) = choose(CANDIDATES, [original])
    return replace(candidate, **changes)


def run(candidates: Sequence[Candidate], payloads: Sequence[str]) -> Sample:
    known = [named(BASE), *candidates]
    experiment = replace(CODECS, candidates=known, plans={"tiny": replace(TINY, rounds=1)})
    order = prepare(experiment, RunOptions(plan="tiny", payloads=payloads, seed=7))
    sample = new_sample(order, "a test")
    measure(order, sample, Silent(), lambda sample: None)
    return sample


def options(name: str, **given: Any) -> dict[str, Any]:
    """The settings of a candidate with other OPTIONS than its name says."""
    settings = dict(named(name).settings)
    settings["OPTIONS"] = {**settings.get("OPTIONS", {}), **given}
    return settings


def own(name: str, backend: str, **changes: Any) -> Candidate:
    """As an alias of a user's: nothing is known of what it should be."""
    settings = {"BACKEND": backend, "LOCATION": named(BASE).settings["LOCATION"], **changes}
    return replace(named(BASE), name=name, settings=settings, options={}, parser=None)


@pytest.fixture(scope="module")
def sample() -> Sample:
    """A few that are what they say, and four that are not."""
    need("redis-server")
    need_package("redis", "hiredis", "django_redis", "msgpack", "zstandard", "orjson")
    good = ["django-redis-json", "django-redis-pickle-zlib", "django-redis-pickle-python",
            "nearcache-json", "nearcache-orjson", "nearcache-msgpack-zlib",
            "nearcache-auto-dict"]  # fmt: skip
    planted = [
        # Each runs another's configuration.
        named("nearcache-msgpack", name="is-pickle", settings=options("nearcache-pickle")),
        named("nearcache-auto-zlib", name="is-lzma", settings=options("nearcache-auto-lzma")),
        named("django-redis-pickle-zlib", name="is-plain", settings=options(BASE)),
        named("nearcache-json", name="no-ujson", options={"library": "ujson"}),
        own("own", "django.core.cache.backends.redis.RedisCache"),
        replace(
            own("own-local", "django.core.cache.backends.locmem.LocMemCache", LOCATION="x"),
            reach="process",
            socket=None,
            servers=(),
        ),
        named("nearcache-json", name="absent", needs=(Requirement(module="no_such", install="x"),)),
    ]
    return run([*(named(name) for name in good), *planted], ("S", "T", "D"))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("is-pickle", "stored bytes have serializer pickle, not msgpack"),
        ("is-lzma", "stored bytes have compressor lzma, not zlib"),
        ("is-plain", "stored bytes have compressor none, not zlib"),
        ("no-ujson", "ujson was to be used and was not imported"),
    ],
)
def test_who_runs_anothers_configuration_is_out(sample: Sample, name: str, reason: str) -> None:
    assert sample.candidates[name].state == "failed"
    assert sample.candidates[name].reason == reason
    assert not [key for key in sample.cells if key[0] == name]


def test_an_alias_of_which_nothing_is_known_shows_what_it_is(sample: Sample) -> None:
    assert sample.candidates["own"].state == "measured"
    assert sample.candidates["own"].proof["stored as"] == "pickle"
    assert sample.cells["own", "get", "D"].parts["decode"].median > 0


def test_what_is_no_redis_is_told_so(sample: Sample) -> None:
    assert sample.candidates["own-local"].state == "failed"
    assert "this alias has no LOCATION that is one" in sample.candidates["own-local"].reason


def test_what_is_not_installed_is_named(sample: Sample) -> None:
    assert sample.candidates["absent"].state == "missing"
    assert sample.candidates["absent"].install == "x"


@pytest.mark.parametrize(
    ("name", "stored", "parser"),
    [
        (BASE, "pickle", "hiredis"),
        ("django-redis-json", "json", "hiredis"),
        ("django-redis-pickle-zlib", "pickle, zlib", "hiredis"),
        ("django-redis-pickle-python", "pickle", "_resp"),
        ("nearcache-msgpack-zlib", "msgpack, zlib", "hiredis"),
        ("nearcache-auto-dict", "exact, dict", "hiredis"),
    ],
)
def test_the_treatment_is_proven_by_stored_bytes_and_the_live_parser(
    sample: Sample, name: str, stored: str, parser: str
) -> None:
    proof = sample.candidates[name].proof
    assert proof["stored as"] == stored
    assert parser in proof["parser"].lower()


def test_the_same_option_is_orjson_or_not_by_what_is_there(sample: Sample) -> None:
    assert sample.candidates["nearcache-orjson"].proof["library"] == "orjson"
    assert "library" not in sample.candidates["nearcache-json"].proof


def test_level_and_threshold_of_compressors_are_recorded(sample: Sample) -> None:
    assert "preset 6" in sample.candidates["django-redis-pickle-zlib"].proof["compressor"]
    assert "from 1024 bytes" in sample.candidates["nearcache-msgpack-zlib"].proof["compressor"]


def test_a_payload_that_json_cannot_hold_is_an_outcome_without_a_time(sample: Sample) -> None:
    cell = sample.cells["django-redis-json", "get", "T"]
    assert cell.outcomes == {"refused: TypeError": 1}
    assert not cell.points
    assert sample.candidates["django-redis-json"].state == "measured"
    assert sample.cells["django-redis-json", "get", "D"].hits > 0
    analysis = Analysis(sample)
    assert analysis.mix_points(BASE)
    assert not analysis.mix_points("django-redis-json"), "it has no place in the overall order"


def test_types_were_tried_on_the_live_cache(sample: Sample) -> None:
    fates = {name: fates_in(entry.facts) for name, entry in sample.candidates.items()}
    assert fates["django-redis-json"]["tuple"] == "becomes list"
    assert fates["nearcache-auto-dict"]["tuple"] == "exact"
    assert fates[BASE]["model instance"] == "exact"
    assert fates["nearcache-msgpack-zlib"]["dataclass"].startswith("refused")


def test_a_planted_pickle_runs_where_pickles_are_read_and_nowhere_else(sample: Sample) -> None:
    ran = {
        name: entry.facts["planted pickle"] == "its code ran"
        for name, entry in sample.candidates.items()
        if entry.state == "measured"
    }
    assert ran[BASE]
    assert ran["nearcache-auto-dict"]
    assert not ran["django-redis-json"]
    assert not ran["nearcache-msgpack-zlib"]


def test_bytes_are_counted_by_the_server(sample: Sample) -> None:
    for name in (BASE, "nearcache-msgpack-zlib"):
        size = sample.cells[name, "size", "D"].min
        wire = sample.cells[name, "get", "D"].measures["wire"].median
        # Request, key, length of the reply: a hundred bytes or so.
        assert size + 40 < wire < size + 300
    assert sample.cells["django-redis-pickle-zlib", "size", "D"].max < (
        sample.cells[BASE, "size", "D"].min / 2
    )
    assert sample.candidates[BASE].stored["D"][1] == "MEMORY USAGE"


def test_encoding_and_decoding_are_timed_alone(sample: Sample) -> None:
    cell = sample.cells["nearcache-msgpack-zlib", "get", "D"]
    assert cell.parts["decode"].median > 0
    assert cell.parts["server"].median > 0
    assert sample.cells["nearcache-msgpack-zlib", "set", "D"].parts["encode"].median > 0


def test_the_growing_list_counts_what_it_loses_and_has_no_time(sample: Sample) -> None:
    cell = sample.cells[BASE, "grow", "-"]
    assert cell.calls == WRITERS * HITS
    assert cell.outcomes["update lost"] + cell.measures["entries"].median == cell.calls
    assert not cell.points
    table = next(p for p in views(calm(sample)).parts if p.title.startswith("G, "))
    assert isinstance(table, Table)
    assert {row[0] for row in table.rows} >= {BASE, f"{BASE} (twin)"}


def test_a_run_without_faults_breaks_no_rule_that_voids() -> None:
    assert list(voided(codecs_sample())) == []


def test_the_views_say_what_the_numbers_say() -> None:
    found = views(Analysis(codecs_sample()))
    said = " ".join(found.sentences)
    assert "get of 20 kB JSON document (D): nearcache-orjson is first with" in said
    assert "D nearcache-auto-zlib (25%)" in said
    assert "half of its answers are within 0%" in said
    tables = {part.title: part for part in found.parts if isinstance(part, Table)}
    sizes = next(t for title, t in tables.items() if title.startswith("Bytes of"))
    assert next(row for row in sizes.rows if row[0] == "nearcache-auto-zlib")[3] == "25%"
    types = next(t for title, t in tables.items() if title.startswith("What comes back"))
    assert {row[0] for row in types.rows} == {"tuple", "Decimal", "enum"}


def test_quick_is_a_part_of_what_there_is_and_full_has_every_pair() -> None:
    names = {candidate.name for candidate in CANDIDATES}
    assert len(names) == len(CANDIDATES)
    assert set(QUICK) <= names
    assert CODECS.baseline in QUICK
    for serializer in ("pickle", "json", "orjson", "ujson", "msgpack"):
        for packed in ("", "-zlib", "-gzip", "-lzma", "-lz4", "-zstd", "-dict"):
            assert f"nearcache-{serializer}{packed}" in names
    for claim in CODECS.claims:
        assert {claim.slow, claim.fast} <= set(QUICK)


# -- small parts --------------------------------------------------------------------------------

DOCUMENT = {"a": [1, 2.5, None], "b": "text" * 100}
TEXT = json.dumps(DOCUMENT).encode()


@pytest.mark.parametrize(
    ("raw", "header", "said"),
    [
        (pickle.dumps(DOCUMENT), False, "pickle"),
        (TEXT, False, "json"),
        (zlib.compress(TEXT), False, "json, zlib"),
        (gzip.compress(pickle.dumps(DOCUMENT), mtime=0), False, "pickle, gzip"),
        (lzma.compress(TEXT), False, "json, lzma"),
        (b"\x84" + TEXT, True, "json"),
        (b"\x94" + zlib.compress(TEXT), True, "json, zlib"),
        (b"\x83" + pickle.dumps(1), True, "pickle"),
    ],
)
def test_stored_bytes_are_recognised(raw: bytes, header: bool, said: str) -> None:
    assert str(form_of(raw, has_header=header)) == said


@pytest.mark.parametrize(
    ("raw", "header"),
    [
        (b"\x94" + TEXT, True),  # says zlib, and is not
        (b"\x83" + TEXT, True),  # says pickle
        (b"\x84" + pickle.dumps(DOCUMENT), True),  # says JSON
        (b"\x8d", True),  # no such serializer
        (b"\x78\x9c broken", False),
        (b"\xc1", False),  # nothing at all
    ],
)
def test_bytes_that_are_not_what_they_claim_are_no_proof(raw: bytes, header: bool) -> None:
    with pytest.raises(UnknownForm):
        form_of(raw, has_header=header)


def test_who_can_read_a_form() -> None:
    assert StoredForm("json", "zlib", b"").readers == "any language: JSON, zlib"
    assert StoredForm("pickle", "none", b"").readers == "Python only"
    assert StoredForm("exact", "none", b"", has_header=True).readers == "nearcache only"
    packed = StoredForm("msgpack", "none", b"", has_header=True)
    assert packed.readers.startswith("any language: ")


class Lossless:
    """A cache behind one lock for each call, which is no lock around both."""

    kept: dict[str, Any]

    def __init__(self) -> None:
        self.kept = {}

    def get(self, key: str, default: Any = None) -> Any:
        return list(self.kept.get(key, default))

    def set(self, key: str, value: Any, timeout: float) -> None:
        self.kept[key] = value


def test_growing_adds_up() -> None:
    cache = Lossless()
    grown = grow(lambda: cache, "k")
    assert grown.attempted == WRITERS * HITS
    assert 0 < grown.kept <= grown.attempted
    assert grown.lost == grown.attempted - grown.kept


def test_what_is_quick_is_timed_many_times_alone_and_what_is_slow_once() -> None:
    calls: list[int] = []
    assert alone_ns(calls.append, 7) > 0
    assert len(calls) > 100
    slow: list[int] = []
    alone_ns(lambda value: slow.append(sum(range(10**6))), 7)
    assert len(slow) == 1


class Teller:
    """A server that counts its own answers to INFO, as Redis does."""

    def __init__(self) -> None:
        self.bytes = self.calls = 0

    def info(self, _section: str) -> dict[str, Any]:
        self.bytes += 5000
        stats = {"calls": self.calls, "usec": 3 * self.calls}
        return {
            "total_net_input_bytes": self.bytes, "total_net_output_bytes": 0, "cmdstat_get": stats,
        }  # fmt: skip


def test_asking_for_the_traffic_is_not_counted_as_traffic() -> None:
    teller = Teller()
    counters = Counters(teller)
    teller.calls += 10
    teller.bytes += 1230
    traffic = counters.since("get")
    assert traffic
    assert (traffic.calls, traffic.bytes, traffic.server_ns) == (10, 123.0, 3000.0)
    assert counters.since("set") is None
