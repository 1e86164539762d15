"""Who is taken of those that a run cannot tell apart: the one with the fewest surprises.

In this order: it fails better, where a drill has seen that; it needs no server; it needs
fewer packages than the others. Else the fastest. What this run could not show to bring
anything is nothing to install, run and look after. ``lab report`` and ``lab recommend`` ask
here, so they do not contradict each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nearcache.lab.judging.analysis import Analysis, Rank
from nearcache.lab.results.sample import Entry

# Noise can tie anybody with anybody. Who looks slower than this is not taken for it.
NEAR = 1.25
PIP = "pip install "
Badness = Callable[[Entry], int]


def untried(_entry: Entry) -> int:
    """Without a drill nobody is known to fail better than another."""
    return 0


def least_surprising(
    analysis: Analysis, field: Sequence[Rank], badness: Badness = untried
) -> tuple[Rank, str]:
    """Who to take of ``field``, the fastest first, and why it is not that one; empty if it is."""
    first = field[0]
    tied = [first, *analysis.tied_with(first, list(field))]
    near = [rank for rank in tied if rank.cost_ns <= NEAR * first.cost_ns]
    winner = min(near, key=lambda rank: _surprises(rank.entry, badness))
    return winner, _why(winner.entry, first.entry, badness)


def _surprises(entry: Entry, badness: Badness) -> tuple[int, bool, int]:
    return badness(entry), entry.server is not None, len(_packages(entry))


def _packages(entry: Entry) -> list[str]:
    """What is to be installed beside the package that measures this."""
    said = (need.removeprefix(PIP).partition(" (")[0] for need in entry.needs)
    return [name for names in said for name in names.split() if name != "nearcache"]


def _why(winner: Entry, first: Entry, badness: Badness) -> str:
    ours, theirs = _surprises(winner, badness), _surprises(first, badness)
    if ours == theirs:
        return ""
    if ours[0] != theirs[0]:
        return "it fails better"
    if ours[1] != theirs[1]:
        return "it needs no server"
    more = [name for name in _packages(first) if name not in _packages(winner)]
    return f"it does without {', '.join(more)}"
