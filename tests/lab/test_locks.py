"""Locks: what they cost, whom they let in, and what the dead leave behind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nearcache.lab.arms.candidates import choose
from nearcache.lab.arms.forked import Forked, ForkFailed, Silent, Teller
from nearcache.lab.base.messages import Setup
from nearcache.lab.base.model import NO_PAYLOAD, Candidate, Plan
from nearcache.lab.experiments.locks.arm import (
    ATTEMPTS,
    LockArm,
    TwoInside,
    covered,
    most_at_once,
    phases_of,
    shape,
)
from nearcache.lab.experiments.locks.findings import views
from nearcache.lab.experiments.locks.lockers import prove_redis_lock
from nearcache.lab.experiments.locks.plan import LOCKS, TIMEOUT_S
from nearcache.lab.experiments.locks.rules import (
    AFTER_CLEAR,
    AFTER_FLUSH,
    ONE_LOCK,
    SAME_ARGUMENTS,
    SAME_CALL,
    STILL_HELD,
    TWO_LOCKS,
    UNTOLD,
)
from nearcache.lab.experiments.locks.tasks import MOST_KEPT_OUT_S, PARTS, comes_in
from nearcache.lab.proofs.proof import TreatmentNotApplied
from nearcache.lab.results.sample import Sample
from nearcache.lab.runner.driver import measure
from nearcache.lab.runner.laboratory import RunOptions, new_sample, prepare
from nearcache.report.model import Table
from tests.needs import need_package

from . import faulty_locks
from .conftest import Silent as NoProgress
from .conftest import need
from .made import Quiet
from .private_servers import need_server

TINY = Plan(repetitions=1, rounds=1, phase_ms=120, time_limit_s=60)
PAYLOADS = ("4x1", "1x8")


def run(candidates: list[Candidate], payloads: tuple[str, ...] = PAYLOADS) -> Sample:
    known = [*choose(LOCKS.candidates, [LOCKS.baseline]), *candidates]
    # Long enough that a host that stops this machine as turns begin leaves time for some.
    plan = replace(TINY, phase_ms=400)
    experiment = replace(LOCKS, candidates=known, plans={"tiny": plan}, twins=())
    order = prepare(experiment, RunOptions(plan="tiny", payloads=payloads, seed=7))
    sample = new_sample(order, "a test")
    measure(order, sample, NoProgress(), lambda sample: None)
    return sample


@pytest.fixture(scope="module")
def sample() -> Sample:
    need("redis-server")
    need_package("redis", "hiredis", "django_redis")
    names = ["seed-decorator", "nearcache-redis", "nearcache-shm", "add-spin", "flock"]
    return run(choose(LOCKS.candidates, names))


def test_all_of_them_are_measured_in_processes_and_in_threads(sample: Sample) -> None:
    for name, entry in sample.candidates.items():
        assert entry.state == "measured", (name, entry.reason)
        for payload in PAYLOADS:
            # On a busy machine a turn may end after the round; it has been waited for.
            assert sample.cells[name, "wait", payload].count > 0


def test_with_a_lock_one_is_inside_and_without_one_the_counting_sees_more(sample: Sample) -> None:
    for name in sample.candidates:
        for payload in PAYLOADS:
            most = sample.cells[name, "turn", payload].measures["inside at once"].median
            assert (most > 1) == name.startswith("no-lock"), (name, payload)


def test_the_dead_holder_of_the_seeds_lock_keeps_it_and_others_do_not(sample: Sample) -> None:
    seed = sample.cells["seed-decorator", "recover", NO_PAYLOAD]
    assert seed.outcomes == {"never within 3 s": 1}
    for name in ("nearcache-redis", "nearcache-shm", "add-spin", "flock"):
        assert sample.cells[name, "recover", NO_PAYLOAD].hits == 1, name


def test_the_seeds_lock_is_proven_to_have_the_defaults(sample: Sample) -> None:
    proof = sample.candidates["seed-decorator"].proof
    assert proof["asks again every"] == "0.1 s"
    assert proof["timeout"].startswith("none")
    assert proof["exclusion"] == "a second one is kept out"
    assert sample.candidates["no-lock"].proof["exclusion"].startswith("a second one gets in")


def test_which_calls_share_a_lock_is_tried(sample: Sample) -> None:
    seed, ours = (sample.candidates[n].facts for n in ("seed-decorator", "nearcache-redis"))
    assert (seed[SAME_ARGUMENTS], seed[SAME_CALL]) == (ONE_LOCK, TWO_LOCKS)
    assert (ours[SAME_ARGUMENTS], ours[SAME_CALL]) == (TWO_LOCKS, ONE_LOCK)


def test_what_an_emptied_cache_does_to_a_lock_is_tried(sample: Sample) -> None:
    facts = {name: entry.facts for name, entry in sample.candidates.items()}
    assert facts["seed-decorator"][AFTER_CLEAR].startswith("lost: LockNotOwnedError")
    assert facts["nearcache-redis"][AFTER_CLEAR] == STILL_HELD
    assert facts["nearcache-redis"][AFTER_FLUSH].startswith("lost: LockLost")
    assert facts["nearcache-shm"][AFTER_CLEAR] == STILL_HELD
    assert facts["add-spin"][AFTER_FLUSH] == UNTOLD
    assert facts["flock"] == {}


def test_views_say_what_was_tried_and_found(sample: Sample) -> None:
    shown = views(Quiet(sample))
    said = " ".join(shown.sentences)
    assert "nobody got the lock of seed-decorator (" in said
    assert "seed-decorator: two functions with equal arguments wait for each other" in said
    assert "After FLUSHALL a second one comes in" in said
    assert "the holder of add-spin is never told" in said
    assert "Without a lock up to" in said
    for part in shown.parts:
        if isinstance(part, Table):
            assert part.rows, part.title
            assert all(len(row) == len(part.head) for row in part.rows), part.title


def test_postgres_locks_are_let_go_when_their_holder_dies() -> None:
    need_server("postgres")
    need_package("psycopg")
    sample = run(choose(LOCKS.candidates, ["pg-advisory"]), ("4x1",))
    entry = sample.candidates["pg-advisory"]
    assert entry.state == "measured", entry.reason
    assert sample.cells["pg-advisory", "recover", NO_PAYLOAD].hits == 1


def faulty(name: str) -> Candidate:
    (flock,) = choose(LOCKS.candidates, ["flock"])
    return replace(flock, name=name, options={"locker": name})


def test_locks_that_let_two_in_are_void_with_the_reason() -> None:
    known = [*choose(LOCKS.candidates, [LOCKS.baseline]), *map(faulty, faulty_locks.FAULTY)]
    experiment = replace(
        LOCKS,
        candidates=known,
        plans={"tiny": TINY},
        twins=(),
        arm="tests.lab.faulty_locks.WithFaults",
    )
    sample = new_sample(order := prepare(experiment, RunOptions(plan="tiny", seed=7)), "a test")
    measure(order, sample, NoProgress(), lambda sample: None)
    reasons = {
        "lockf": "two were inside at once",
        "check-then-set": "two were inside at once",
        "drops-calls": "the function ran 0 times",
    }
    for name, reason in reasons.items():
        entry = sample.candidates[name]
        assert entry.state == "failed", name
        assert reason in entry.reason
        assert not [key for key in sample.cells if key[0] == name], "its numbers are void"
    assert sample.candidates["no-lock"].state == "measured"


def test_a_lock_that_is_set_otherwise_than_ordered_is_no_proof() -> None:
    class Lock:
        sleep, timeout, blocking_timeout = 0.01, 5, None

    with pytest.raises(TreatmentNotApplied, match=r"polls every 0\.01 s with a timeout of 5"):
        prove_redis_lock(Lock(), sleep_s=0.1, timeout_s=None)
    assert prove_redis_lock(Lock(), 0.01, 5)["timeout"] == "5 s"


class Follower:
    """Says what going in takes, and is not heard for so many parts of the time it is given."""

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.waits: list[float] = []

    def hear(self, timeout_s: float) -> int:
        self.waits.append(timeout_s)
        if 1 < len(self.waits) <= 1 + self.parts:
            raise Silent("nothing heard")
        return 10**9  # it took a second: its machine stood still


def test_who_comes_in_when_the_machine_goes_on_has_come_in_and_nobody_waits_for_ever() -> None:
    late, never = Follower(PARTS - 1), Follower(PARTS)
    assert comes_in(late)  # type: ignore[arg-type]
    assert not comes_in(never)  # type: ignore[arg-type]
    for follower in (late, never):
        assert sum(follower.waits[1:]) == pytest.approx(MOST_KEPT_OUT_S)
        assert len(follower.waits) == 1 + PARTS


@pytest.mark.parametrize(
    ("timeout_s", "times", "is_broken"),
    [
        (TIMEOUT_S, 0, False),
        (TIMEOUT_S, 1, True),
        (None, 1, True),
        (1e-9, ATTEMPTS - 1, False),
        (1e-9, ATTEMPTS, True),
    ],
)
def test_a_lock_that_lets_a_second_one_in_is_broken_unless_its_timeout_was_over(
    monkeypatch: pytest.MonkeyPatch, timeout_s: float | None, times: int, is_broken: bool
) -> None:
    arm = LockArm(Setup(faulty("flock"), "", {}, "/nonexistent", "n", 1, "", cpu=0))
    arm.options["timeout_s"] = timeout_s
    broken = iter(["a second one came in"] * times + [""])
    monkeypatch.setattr(arm, "_broken_exclusion", lambda _name: next(broken))
    if not is_broken:
        arm._prove_exclusion()
        return
    with pytest.raises(TwoInside, match="a second one came in"):
        arm._prove_exclusion()


def test_turns_are_counted_by_when_they_ended() -> None:
    turns = {
        0: {"entered": [10, 50], "exited": [20, 60], "waited": [1, 2], "crowded": 0},
        1: {"entered": [30, 95], "exited": [40, 105], "waited": [3, 4], "crowded": 0},
    }
    turn, wait = phases_of(turns, begins_ns=0, ends_ns=100, cpu_ns=400)
    assert turn.calls == 3, "the last ended too late"
    assert turn.point == pytest.approx(100 / 3)
    assert turn.measures["nobody inside"] == (0.7, "share")
    assert turn.measures["CPU of a turn"] == (100, "ns")
    assert list(wait.samples) == [1, 3, 2, 4], "in the order in which they began to wait"


def test_entries_and_exits_in_order_tell_how_many_were_inside() -> None:
    apart = {0: {"entered": [1, 5], "exited": [3, 7]}, 1: {"entered": [3], "exited": [5]}}
    assert most_at_once(apart) == 1
    assert most_at_once({**apart, 2: {"entered": [6], "exited": [9]}}) == 2
    assert covered([(0, 10), (5, 20), (30, 40)]) == 30


def test_a_payload_is_processes_times_threads() -> None:
    assert shape("2x4") == (2, 4)


def test_a_forked_child_answers_fails_or_is_silent_and_never_stays() -> None:
    def answers(teller: Teller) -> int:
        return int(teller.hear()) + 1

    def fails(_teller: Teller) -> None:
        raise ValueError("no such luck")

    with Forked(answers, cpu=0) as child:
        with pytest.raises(Silent):
            child.hear(0.05)
        child.say(41)
        assert child.hear(60) == 42
    assert not child.process.is_alive()
    with Forked(fails, cpu=0) as child, pytest.raises(ForkFailed, match="ValueError: no such luck"):
        child.hear(60)
    with Forked(answers, cpu=0) as child:
        child.kill()
        with pytest.raises(ForkFailed, match="died before it could answer"):
            child.hear(60)


def test_every_lock_of_the_registry_names_a_locker() -> None:
    from nearcache.lab.experiments.locks.lockers import LOCKERS

    assert {candidate.options["locker"] for candidate in LOCKS.candidates} == set(LOCKERS)
