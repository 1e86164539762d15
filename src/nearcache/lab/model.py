"""The nouns of the lab, as frozen data: candidate, plan, experiment.

No behaviour lives here, so that workers, driver and reports can share it freely.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

# Who else sees a value once it is stored. It decides which candidates may be
# recommended for which kind of site.
Reach = Literal["process", "host", "network"]

SocketKind = Literal["unix", "tcp"]
ParserKind = Literal["hiredis", "python"]
ServerName = Literal["redis", "memcached-unix", "memcached-tcp"]


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """A module that must import, and what to type when it does not."""

    module: str
    install: str


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One configuration under measurement.

    ``settings`` is an entry of ``CACHES`` whose strings may hold ``{placeholders}``.
    The driver fills them with private addresses, the verdict with ordinary ones, so
    what is measured and what is recommended cannot drift apart.
    """

    name: str
    title: str
    family: str
    reach: Reach
    settings: Mapping[str, Any]
    needs: Sequence[Requirement] = ()
    server: ServerName | None = None
    socket: SocketKind | None = None
    parser: ParserKind | None = None  # asserted at run time, not only configured
    hides: Sequence[str] = ()  # modules that must not exist in its worker
    note: str = ""
    recommendable: bool = True  # False for what exists only for comparison
    twin_of: str | None = None  # set on the A/A twin: same configuration, other name
    settings_module: str | None = None  # for an alias of the user's own project
    alias: str = "default"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured. A round that would end after ``time_limit_s`` is not begun.

    ``rounds`` is therefore an upper bound; on a slow machine there are fewer.
    """

    repetitions: int  # fresh processes for every candidate
    rounds: int  # at most, per repetition
    phase_ms: float  # timed work per operation, payload and round
    time_limit_s: float
    resamples: int  # of the bootstrap


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One question and everything needed to answer it again."""

    name: str
    question: str
    candidates: Sequence[Candidate]
    payloads: Sequence[str]
    operations: Sequence[str]
    baseline: str
    twins: Sequence[str]  # in order of preference, one is used for each kind of store
    mix: Mapping[str, float]  # weight of each operation in the overall score
    plans: Mapping[str, Plan]
    # Questions between two: title -> pairs that are compared round by round.
    contrasts: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)
    cannot_answer: Sequence[str] = ()


# Operations whose cost does not depend on what is stored: measured once per round.
PAYLOAD_FREE = ("incr", "miss")
NO_PAYLOAD = "-"
