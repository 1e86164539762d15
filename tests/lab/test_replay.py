"""A recording is played as it was: its hits hit, its misses miss, and every answer is checked."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.cache.backends.locmem import LocMemCache

from nearcache.errors import LabError
from nearcache.lab.base.arm import WrongAnswer
from nearcache.lab.checks.evidence import kinds_of_answers
from nearcache.lab.experiments.replay.arm import Stage
from nearcache.lab.own.replaying import make_ready, speed_of
from nearcache.lab.own.script import Playwright, Script, Spec, Values, calls_of
from nearcache.lab.results.sample import Cell, read_sample
from nearcache.recording.cache import RecordingCache
from nearcache.recording.trace import read
from tests.recording.test_recording import make

from .calm_lab import calm_lab
from .conftest import report_if_calm
from .test_cli import lab


def everything(cache: RecordingCache) -> None:
    """One of each call, with hits and misses of each kind."""
    cache.get("a:1")
    cache.set("a:1", "x" * 200)
    cache.get("a:1")
    cache.set("a:1", {"of": "another type", "n": list(range(50))})
    cache.get("a:1")
    cache.add("a:1", "refused")
    cache.add("b:1", b"\x00" * 500)
    cache.get("b:1")
    cache.delete("b:1")
    cache.delete("b:1")
    cache.get("b:1")
    cache.get_or_set("c:1", lambda: 7)
    cache.get_or_set("c:1", lambda: 8)
    cache.set_many({"d:1": "one", "d:2": True})
    cache.get_many(["d:1", "d:2", "d:3"])
    cache.delete_many(["d:1", "d:2"])
    cache.get_many(["d:1"])
    cache.touch("a:1")
    cache.touch("z:1")
    cache.has_key("a:1")
    cache.has_key("z:1")
    cache.set("n:1", 5)
    cache.incr("n:1")
    cache.decr("n:1")
    with pytest.raises(ValueError, match="n:2"):
        cache.incr("n:2")
    cache.clear()


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "site.trace"
    cache = make(path)
    everything(cache)
    for number in range(120):
        if cache.get(f"user:{number % 40}") is None:
            cache.set(f"user:{number % 40}", "y" * 300)
        cache.get(f"none:{number}")
    cache.recorder.flush()
    return path


def script_of(path: Path, first: int = 0) -> Script:
    calls, _ = calls_of(read([path]))
    return Playwright().write(calls[first:])


class Arm:
    """What a stage needs of one."""

    def __init__(self, cache: Any) -> None:
        self.cache, self.values = cache, Values(3)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[LocMemCache]:
    made = LocMemCache(str(tmp_path), {})
    yield made
    made.clear()


def play(cache: Any, script: Script) -> Stage:
    stage = Stage(Arm(cache), "lab:x", script)  # type: ignore[arg-type]
    stage.set_up()
    stage.play_on(None)
    stage.check()
    return stage


def test_every_kind_of_call_is_played_with_its_recorded_answer(
    trace: Path, cache: LocMemCache
) -> None:
    calls, left_out = calls_of(read([trace]))
    assert left_out == {"clear": 1}
    script = Playwright().write(calls)
    assert len({act.operation for act in script.acts}) == 12
    stage = play(cache, script)
    assert len(stage.answers) == len(calls)


@pytest.mark.parametrize("first", range(1, 27))
def test_a_slice_from_anywhere_plays_as_well(first: int, trace: Path, cache: LocMemCache) -> None:
    play(cache, script_of(trace, first))


def test_calls_of_many_keys_are_one_call_again(trace: Path) -> None:
    calls, _ = calls_of(read([trace]))
    many = {call[0].operation: len(call) for call in reversed(calls) if call[0].of > 1}
    assert many == {"set_many": 2, "get_many": 3, "delete_many": 2}


def test_nothing_is_left_behind(trace: Path, cache: LocMemCache) -> None:
    play(cache, script_of(trace)).clear_away()
    assert not cache._cache


@pytest.mark.parametrize("loses", ["get", "get_many", "delete"])
def test_a_cache_that_answers_otherwise_is_caught(
    loses: str, trace: Path, cache: LocMemCache
) -> None:
    script = script_of(trace)
    stage = Stage(Arm(cache), "lab:x", script)  # type: ignore[arg-type]
    stage.set_up()
    faulty: dict[str, Any] = {
        "get": lambda key, default=None, version=None: default,
        "get_many": lambda keys, version=None: {},
        "delete": lambda key, version=None: True,
    }
    setattr(cache, loses, faulty[loses])
    stage.doings = [stage._doing(act) for act in script.acts]
    stage.play_on(None)
    with pytest.raises(WrongAnswer, match=r"where|not"):
        stage.check()


def test_a_cache_that_keeps_nothing_is_out_before_the_clock_starts(trace: Path) -> None:
    from django.core.cache.backends.dummy import DummyCache

    stage = Stage(Arm(DummyCache("", {})), "lab:x", script_of(trace, 2))  # type: ignore[arg-type]
    with pytest.raises(WrongAnswer, match="not there right after"):
        stage.set_up()


@pytest.mark.parametrize("kind", ["str", "bytes", "dict", "list", "SafeString"])
@pytest.mark.parametrize("size", [1, 60, 3000, 200_000])
def test_values_have_their_recorded_size_and_differ_by_version(kind: str, size: int) -> None:
    values = Values(1)
    made = [values.make(Spec(kind, size, 0.4, version)) for version in (3, 4)]
    assert made[0] == values.make(Spec(kind, size, 0.4, 3))
    if size > 10:
        assert made[0] != made[1]
    raw = made[0] if kind == "bytes" else pickle.dumps(made[0], pickle.HIGHEST_PROTOCOL)
    assert size <= len(raw) + 43
    assert len(raw) <= size + 80


@pytest.mark.parametrize("squeezed", [0.05, 0.4, 0.7])
@pytest.mark.parametrize("kind", ["str", "bytes", "dict"])
def test_values_are_about_as_compressible_as_recorded(kind: str, squeezed: float) -> None:
    made = Values(1).make(Spec(kind, 50_000, squeezed, 9))
    raw = made if isinstance(made, bytes) else pickle.dumps(made, pickle.HIGHEST_PROTOCOL)
    assert abs(len(zlib.compress(raw, 1)) / len(raw) - squeezed) < 0.16


def test_speeds_are_max_or_numbers() -> None:
    assert speed_of("max") is None
    assert speed_of("100") == 100
    for text in ("fast", "0", "-1", "nan", "inf"):
        with pytest.raises(LabError, match="--speed"):
            speed_of(text)


def test_what_would_take_for_ever_is_refused(trace: Path, tmp_path: Path) -> None:
    with pytest.raises(LabError, match="or more, or max"):
        make_ready(read([trace]), 1e-6, tmp_path)


# -- the command line ----------------------------------------------------------------------


def run(trace: Path, out: Path, *words: str) -> Any:
    return calm_lab(
        "run", "replay", "--quick", "--time-limit", "4", "--replay", str(trace),
        "--candidates", "filebased", "--seed", "4", "--out", str(out), *words,
    )  # fmt: skip


def of_a_round(cell: Cell) -> tuple[float, float, float]:
    """Calls, hits and misses. A busy machine ends the time after a round more or less."""
    rounds = sum(map(len, cell.points.values()))
    assert cell.calls >= rounds > 0
    return cell.calls / rounds, cell.hits / rounds, cell.misses / rounds


def test_a_recording_is_played_as_fast_as_it_goes(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run(trace, out)
    assert result.returncode == 0, result.stderr
    (path,) = out.glob("*.json")
    sample = read_sample(path)
    assert "Not played: 1 clear" in sample.about["recording"]
    assert sample.about["recording"] in " ".join(result.stdout.split())
    # Everybody had the same calls, and the same of them hit.
    for operation in ("call", "get", "miss"):
        one = sample.cells["locmem", operation, "recording"]
        other = sample.cells["filebased", operation, "recording"]
        assert of_a_round(one) == of_a_round(other)
        assert one.points
    # A rule of evidence: a miss is fast, and is timed apart.
    assert not kinds_of_answers(sample).problems  # type: ignore[union-attr]


def test_at_a_fixed_rate_latency_counts_from_when_a_call_was_due(
    trace: Path, tmp_path: Path
) -> None:
    calls, _ = calls_of(read([trace]))
    span_s = (calls[-1][0].time_ns - calls[0][0].time_ns) / 1e9
    out = tmp_path / "out"
    result = run(trace, out, "--speed", f"{span_s / 0.5:.6f}")
    assert result.returncode == 0, result.stderr
    (path,) = out.glob("*.json")
    sample = read_sample(path)
    measures = sample.cells["locmem", "call", "recording"].measures
    assert {"offered_rate", "late_share", "service_time"} <= set(measures)
    assert "Calls when they were due" in report_if_calm(sample)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("replay", "replay needs --replay FILE"),
        ("keys --replay {trace}", "run replay with it, or backends"),
        ("replay --replay {trace} --speed fast", "--speed is 'fast'"),
        ("replay --replay {tmp}/none", "does not exist"),
        ("replay --replay {tmp}/text", "is no recording"),
    ],
)
def test_a_bad_request_is_one_clear_line(
    words: str, said: str, trace: Path, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("hello")
    out = tmp_path / "out"
    result = lab("run", *words.format(trace=trace, tmp=tmp_path).split(), "--out", str(out))
    assert result.returncode == 2
    assert said in result.stderr.strip().splitlines()[-1]
    assert "Traceback" not in result.stderr
