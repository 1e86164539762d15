"""The ``drill``: liars are called liars, hangs do not hang the lab, servers come back."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nearcache.lab.base.messages import Phase, Setup
from nearcache.lab.base.model import Candidate, Plan
from nearcache.lab.experiments.drill import arm as drill
from nearcache.lab.experiments.drill.arm import Case, DrillArm, NotHealthy, Seen, outcome
from nearcache.lab.experiments.drill.findings import SEVERITY, class_of, outcomes_of, views, worst
from nearcache.lab.experiments.drill.patient import BLOCKS, NAP_S, Patience, Patient, Reply
from nearcache.lab.experiments.drill.plan import DRILL, LOCMEM, PASSWORD
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.results.sample import Sample
from nearcache.lab.runner.driver import measure
from nearcache.lab.runner.laboratory import RunOptions, new_sample, prepare
from nearcache.lab.servers.own import OwnServer
from nearcache.report.model import Grid, Table
from tests.needs import need_package

from .conftest import Silent, need
from .made import Quiet

TINY = Plan(repetitions=1, rounds=1, phase_ms=500, time_limit_s=40)
VALUE = {"drill": 1}


def planted(name: str) -> Candidate:
    (locmem,) = [each for each in DRILL.candidates if each.name == "locmem"]
    settings = {**LOCMEM, "BACKEND": f"tests.lab.faulty_drill.{name}", "LOCATION": name}
    return replace(
        locmem, name=name, settings=settings, options={**locmem.options, "small": settings}
    )


def run_tiny(names: list[str], faults: list[str], more: tuple[Candidate, ...] = ()) -> Sample:
    experiment = replace(DRILL, candidates=[*DRILL.candidates, *more], plans={"tiny": TINY})
    wanted = [*names, *(each.name for each in more)]
    order = prepare(experiment, RunOptions(plan="tiny", candidates=wanted, payloads=faults, seed=7))
    # Twins would double the time, and prove nothing here.
    order = replace(order, candidates=[c for c in order.candidates if not c.twin_of])
    sample = new_sample(order, "a test")
    measure(order, sample, Silent(), lambda sample: None)
    return sample


def words_of(sample: Sample, name: str, operation: str, fault: str) -> str:
    (words,) = outcomes_of(sample.cells[name, operation, fault])
    return words


@pytest.fixture(scope="module")
def sample() -> Sample:
    need("redis-server", "memcached")
    need_package("django_redis", "memcache")
    faults = ["none", "stopped", "frozen", "full", "password", "2MB", "long-key", "unpicklable"]
    names = ["redis", "django-redis-ignore", "python-memcached", "locmem"]
    return run_tiny(names, faults, (planted("KeepsNothing"), planted("Sleeps")))


def test_without_a_fault_everything_works(sample: Sample) -> None:
    for name in ("redis", "django-redis-ignore", "python-memcached", "locmem"):
        assert sample.candidates[name].state == "measured", sample.candidates[name].reason
        for operation in ("get", "set", "add", "delete", "incr"):
            assert words_of(sample, name, operation, "none") == "works"


def test_a_stopped_server_is_told_by_one_client_and_hidden_by_others(sample: Sample) -> None:
    for operation in ("get", "set", "add", "delete", "incr"):
        assert words_of(sample, "redis", operation, "stopped") == "raises ConnectionError"
    assert words_of(sample, "django-redis-ignore", "set", "stopped") == "lies: not stored"
    assert words_of(sample, "python-memcached", "get", "stopped") == "silent miss"
    assert words_of(sample, "python-memcached", "set", "stopped") == "lies: not stored"
    assert words_of(sample, "python-memcached", "incr", "stopped").endswith("no such key")


def test_a_frozen_server_blocks_and_what_was_sent_is_done_later(sample: Sample) -> None:
    assert words_of(sample, "redis", "get", "frozen") == "blocks > 0.5 s"
    assert words_of(sample, "redis", "set", "frozen") == "blocks > 0.5 s, and does it"
    assert not sample.cells["redis", "set", "frozen"].points, "there is no time to give"


def test_a_full_store_refuses_or_evicts(sample: Sample) -> None:
    assert words_of(sample, "redis", "get", "full") == "works"
    assert words_of(sample, "redis", "set", "full") == "raises OutOfMemoryError"
    assert words_of(sample, "django-redis-ignore", "set", "full") == "lies: not stored"
    assert words_of(sample, "python-memcached", "get", "full") == "evicted"
    assert words_of(sample, "locmem", "get", "full") == "evicted"


def test_a_password_that_was_changed_is_told_or_hidden(sample: Sample) -> None:
    assert words_of(sample, "redis", "set", "password") == "raises AuthenticationError"
    deleted = words_of(sample, "django-redis-ignore", "delete", "password")
    assert deleted == "lies: False, still there"
    assert ("locmem", "set", "password") not in sample.cells


def test_values_and_keys_that_cannot_be_kept(sample: Sample) -> None:
    assert words_of(sample, "python-memcached", "set", "2MB") == "lies: not stored"
    assert words_of(sample, "redis", "set", "2MB") == "works"
    assert words_of(sample, "locmem", "set", "unpicklable") == "raises TypeError"
    assert words_of(sample, "locmem", "set", "long-key") == "stored, warns"


def test_who_met_the_fault_gets_through_when_the_server_is_back(sample: Sample) -> None:
    for fault in ("stopped", "frozen", "full", "password"):
        assert words_of(sample, "redis", "recovery", fault) == "works"
    assert words_of(sample, "python-memcached", "recovery", "stopped") == "not within 1.5 s"


def test_the_proof_names_the_class_that_was_drilled(sample: Sample) -> None:
    proof = sample.candidates["redis"].proof
    assert proof["backend"] == "django.core.cache.backends.redis.RedisCache"
    assert proof["server"].endswith("its own")


def test_a_fault_that_has_no_effect_is_noticed(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("redis-server")
    setup = Setup(DRILL.candidates[0], "", {}, str(short_path), "n", 1, "", cpu=0)
    arm = DrillArm(setup)
    with OwnServer(setup, "redis") as server:
        arm.server = server
        arm._give_password(PASSWORD)
        with monkeypatch.context() as patched:
            patched.setattr(drill, "PROOF_TIMEOUT_S", 60)  # slow is not frozen
            with pytest.raises(NotHealthy, match="the server is as before"):
                arm._prove_broken("frozen")
        server.freeze()
        arm._prove_broken("frozen")
        server.thaw()
    with pytest.raises(NotHealthy):
        arm._prove_broken("frozen")  # it is gone, which is another fault
    arm._prove_broken("stopped")


def test_a_backend_that_keeps_nothing_is_no_candidate_at_all(sample: Sample) -> None:
    entry = sample.candidates["KeepsNothing"]
    assert entry.state == "failed"
    assert "without any fault" in entry.reason


def test_a_backend_that_hangs_does_not_hang_the_lab(sample: Sample) -> None:
    assert words_of(sample, "Sleeps", "delete", "long-key") == "blocks > 0.5 s"
    assert words_of(sample, "Sleeps", "incr", "long-key") == "counted, warns", "it goes on"
    assert sample.about["state"] == "complete"


def test_the_views_of_the_run_name_the_liars(sample: Sample) -> None:
    shown = views(Quiet(sample))
    text = " ".join(shown.sentences)
    assert "django-redis-ignore lies" in text
    assert "redis lies" not in text.replace("django-redis-ignore lies", "")
    grid = shown.parts[0]
    assert isinstance(grid, Grid)
    row = dict(zip(grid.columns, grid.words[list(grid.rows).index("redis")], strict=True))
    assert (row["stopped"], row["frozen"], row["2MB"]) == ("raises", "blocks", "works")
    tables = {part.title.partition(":")[0]: part for part in shown.parts if isinstance(part, Table)}
    (redis,) = [row for row in tables["stopped"].rows if row[0] == "redis"]
    assert redis[1:3] == ["get, set, add, delete, incr", "raises ConnectionError"]


def test_no_process_is_left(sample: Sample) -> None:
    # Children of this process would be workers; patients and servers are theirs.
    assert "nearcache-lab" not in " ".join(_own_processes())


def _own_processes() -> Iterator[str]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                if int(parent) == os.getpid():
                    yield (entry / "cmdline").read_text()
            except OSError:
                pass


class Hangs:
    def get(self, key: str) -> None:
        time.sleep(60)

    def set(self, key: str, *more: Any) -> None:
        raise ConnectionError("away\nand more")


def test_a_patient_is_killed_when_it_does_not_answer() -> None:
    patient = Patient(Hangs)
    try:
        assert patient.call("set", "a", 1, 2, limit_s=10).error == "ConnectionError"
        assert patient.call("set", "a", 1, 2, limit_s=10).said == "away"
        assert patient.call("get", "a", limit_s=0.05) is BLOCKS
        assert patient.is_busy
    finally:
        patient.end()
    assert patient._process.exitcode == -signal.SIGKILL, "it would have slept for a minute"


class Late:
    """A pipe on which something arrives after so many naps, however long the host makes them."""

    def __init__(self, naps: int) -> None:
        self.naps = naps

    def poll(self, nap_s: float) -> bool:
        self.naps -= nap_s > 0
        return self.naps < 0


def test_only_naps_are_waited_for_and_not_how_long_a_host_makes_them() -> None:
    naps = round(1 / NAP_S)
    assert Patience(1).waits_for(Late(naps - 1))  # type: ignore[arg-type]
    assert not Patience(1).waits_for(Late(naps + 1))  # type: ignore[arg-type]
    together = Patience(1)
    assert together.waits_for(Late(naps // 2))  # type: ignore[arg-type]
    assert not together.waits_for(Late(naps))  # type: ignore[arg-type]
    assert together.waits_for(Late(-1)), "what has arrived is taken"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("operation", "reply", "found", "words"),
    [
        ("get", Reply(value=VALUE), VALUE, "answers"),
        ("get", Reply(value={"drill": 2}), VALUE, "lies: a wrong value"),
        ("get", Reply(), VALUE, "silent miss"),
        ("get", Reply(is_logged=True), VALUE, "misses, logs"),
        ("get", Reply(), None, "evicted"),
        ("set", Reply(), VALUE, "stored"),
        ("set", Reply(is_warned=True), VALUE, "stored, warns"),
        ("set", Reply(), None, "lies: not stored"),
        ("set", Reply(is_logged=True), None, "drops, logs"),
        ("set", Reply(error="Timeout"), VALUE, "raises Timeout, and does it"),
        ("set", Reply(error="Timeout"), None, "raises Timeout"),
        ("add", Reply(value=True), None, "lies: True, not stored"),
        ("add", Reply(value=False), None, "says False"),
        ("delete", Reply(value=True), VALUE, "lies: True, still there"),
        ("delete", Reply(value=True), None, "deleted"),
        ("incr", Reply(error="ValueError"), 41, "raises ValueError: no such key"),
        ("incr", Reply(error="ValueError"), None, "raises ValueError"),
        ("incr", Reply(value=42), 41, "lies: 42, not counted"),
        ("incr", BLOCKS, 42, "blocks > 3 s, and does it"),
    ],
)
def test_a_reply_and_what_is_stored_make_the_words(
    operation: str, reply: Reply, found: Any, words: str
) -> None:
    assert outcome(Seen(Case(operation, "k", VALUE), reply, found), 3) == words


def test_what_a_restart_has_emptied_proves_nothing() -> None:
    gone = Seen(Case("delete", "k", VALUE), Reply(value=False), None, has_lost=True)
    assert outcome(gone, 3) == "says False"
    raised = Seen(Case("delete", "k", VALUE), Reply(error="X"), None, has_lost=True)
    assert outcome(raised, 3) == "raises X"


def test_outcomes_are_ordered_with_lies_as_the_worst() -> None:
    words = [
        "lies: not stored", "blocks > 1 s, and does it", "silent miss",
        "raises ValueError: no such key", "drops, logs", "raises X", "evicted", "stored, warns",
    ]  # fmt: skip
    assert [class_of(each) for each in words] == list(SEVERITY)
    assert worst(reversed(words)) == "lies: not stored"
    assert class_of("says False") == "silent"
    assert class_of("says False, logs") == "told"
    assert class_of("says False, gone") == "evicts"
    assert class_of("lies: not stored (1 of 2)") == "lies"


def made_up(outcomes: dict[str, str]) -> Sample:
    experiment = replace(DRILL, plans={"tiny": TINY})
    wanted = RunOptions(
        plan="tiny", candidates=list(outcomes), payloads=["none", "stopped"], seed=1
    )
    sample = new_sample(prepare(experiment, wanted), "made up")
    for name, entry in sample.candidates.items():
        entry.state = "measured"
        words = outcomes[entry.twin_of or name]
        for fault, said in (("none", "works"), ("stopped", words)):
            phase = Phase("set", point=1e6, calls=1)
            if said == "works":
                phase.hits = 1
            else:
                phase.outcomes[said] = 1
            sample.cell(name, "set", fault).add_phase(0, 0, phase)
    return sample


def test_who_never_lied_is_praised_and_nobody_is_accused_without_cause() -> None:
    text = " ".join(views(Analysis(made_up({"redis": "raises X", "locmem": "works"}))).sentences)
    assert "No backend lied under these faults: the server is gone." in text
    assert "Always told the truth, in time: redis, locmem." in text
