"""A recording, made ready to be played: cut to what is played, with its speed, for the workers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from nearcache.errors import LabError
from nearcache.lab.own.script import calls_of
from nearcache.recording.trace import Recording, block

MOST_RECORDS = 100_000  # of one file; slices are drawn from them
FEWEST_CALLS = 20
LONGEST_ROUND_S = 5.0  # of FEWEST_CALLS; a run has dozens of rounds for each candidate


@dataclass(frozen=True)
class Replay:
    """``order`` is the file that workers read; ``description`` is for people."""

    order: str
    description: str


def speed_of(text: str) -> float | None:
    """``max`` is None. Raises LabError for what is no speed."""
    if text == "max":
        return None
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        raise LabError(f"--speed is {text!r}; give max, or a number above 0")
    return speed


def make_ready(recording: Recording, speed: float | None, directory: Path) -> Replay:
    """Write what workers need into this directory. Raises LabError if there is too little."""
    if len(recording) == 0:
        raise LabError("this recording has no calls in it")
    rows = recording.rows[:MOST_RECORDS]
    calls, left_out = calls_of(_only(recording, rows))
    if len(calls) < FEWEST_CALLS:
        raise LabError(f"this recording has {len(calls)} calls to play; {FEWEST_CALLS} are few")
    span_s = max((calls[-1][0].time_ns - calls[0][0].time_ns) / 1e9, 1e-9)
    rate = len(calls) / span_s
    if speed is not None and FEWEST_CALLS / (rate * speed) > LONGEST_ROUND_S:
        least = FEWEST_CALLS / (rate * LONGEST_ROUND_S)
        raise LabError(
            f"at --speed {speed:g} the {rate:.3g} recorded calls a second take too long to wait "
            f"for; give {least:.3g} or more, or max"
        )
    file, order = directory / "recording", directory / "replay.json"
    _write(recording, rows, file)
    order.write_text(json.dumps({"recording": str(file), "speed": speed}))
    hits = sum(record.hit for call in calls for record in call)
    misses = sum(record.miss for call in calls for record in call)
    text = (
        f"Slices of {len(calls):,} recorded calls, {hits / max(1, hits + misses):.1%} of whose "
        f"reads hit; recorded at {rate:,.3g} calls a second, played "
        + ("as fast as it goes." if speed is None else f"{speed:g} times as fast.")
    )
    if left_out:
        said = ", ".join(f"{count:,} {what}" for what, count in left_out.most_common())
        text += f" Not played: {said}."
    return Replay(str(order), text)


def _only(recording: Recording, rows: list[bytes]) -> Recording:
    return Recording(
        share=recording.share, prefixes=recording.prefixes, types=recording.types, rows=rows
    )


def _write(recording: Recording, rows: list[bytes], path: Path) -> None:
    head = {
        "process": "-",
        "share": recording.share,
        "backend": "",
        "prefixes": list(recording.prefixes.texts),
        "types": list(recording.types.texts),
        "lost": 0,
        "errors": 0,
    }
    path.touch(mode=0o600)
    path.write_bytes(block(head, rows))
