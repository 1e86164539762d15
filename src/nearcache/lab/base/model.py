"""The nouns of the lab, as frozen data: candidate, operation, plan, experiment.

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
ServerName = Literal[
    "redis",
    "redis-always",
    "redis-everysec",
    "redis-os",
    "memcached-unix",
    "memcached-tcp",
    "postgres",
    "s3",
    "gunicorn",  # these three are started by the arm of `http`, one set for each candidate
    "uwsgi",
    "nginx",
]
# Answers to a claim that differ from it; what else claims.Word has is no difference.
DIFFERS = ("same", "smaller", "larger", "reversed")
# What a cost is counted in. Less is better, always: a throughput is kept as time per
# operation and printed as a rate where one would rather read that.
Unit = Literal["ns", "bytes", "share", "count"]


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
    what is measured and what is recommended cannot drift apart. A candidate that is no
    Django alias has none, and ``options`` says to its arm what it is instead.
    """

    name: str
    title: str
    family: str
    reach: Reach = "host"
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    needs: Sequence[Requirement] = ()
    servers: Sequence[ServerName] = ()  # the first is the one it stores in
    socket: SocketKind | None = None
    parser: ParserKind | None = None  # asserted at run time, not only configured
    hides: Sequence[str] = ()  # modules that must not exist in its worker
    note: str = ""
    recommendable: bool = True  # False for what exists only for comparison
    twin_of: str | None = None  # set on the A/A twin: same configuration, other name
    settings_module: str | None = None  # for an alias of the user's own project
    alias: str = "default"

    @property
    def server(self) -> ServerName | None:
        return self.servers[0] if self.servers else None


@dataclass(frozen=True, kw_only=True)
class Operation:
    """Something whose cost is measured."""

    name: str
    title: str = ""  # what is timed, for the head of a table; the name if empty
    unit: Unit = "ns"
    payload_free: bool = False  # measured once a round: what is stored makes no difference
    as_rate: bool = False  # print 1e9 / cost as operations a second beside the time
    ranked: bool = True  # False: how it ended is the answer, the time is only shown


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured. A round that would end after ``time_limit_s`` is not begun.

    ``rounds`` is therefore an upper bound; on a slow machine there are fewer.
    """

    repetitions: int  # fresh processes for every candidate
    rounds: int  # at most, per repetition
    phase_ms: float  # timed work per operation, payload and round
    time_limit_s: float
    payloads: Sequence[str] = ()  # instead of the experiment's own: less data, for example
    candidates: Sequence[str] = ()  # those measured unless told otherwise; all if empty
    operations: Sequence[str] = ()  # likewise


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What an article published, and which two arms of the experiment answer it today."""

    article: str  # its number, for example "001"
    text: str  # the headline, in a few words of our own
    ratio: float  # how many times the cost of ``fast`` the article gave ``slow``
    slow: str  # candidates
    fast: str
    operation: str
    payload: str
    why: str = ""  # why it was so then or is not so now, where that is known
    explains: Sequence[str] = ()  # the answers (claims.Word) it explains; any, if empty


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One question and everything needed to answer it again."""

    name: str
    question: str
    candidates: Sequence[Candidate]
    payloads: Mapping[str, str]  # letter or short name -> title; all it knows
    operations: Sequence[Operation]
    baseline: str
    twins: Sequence[str]  # in order of preference, one is used for each kind of store
    plans: Mapping[str, Plan]  # "full" and "quick"
    arm: str = "nearcache.lab.arms.alias.AliasArm"  # who measures a candidate
    default_payloads: Sequence[str] = ()  # all, if empty
    # Weight of each operation in the overall score. Nothing is ranked overall if empty.
    mix: Mapping[str, float] = field(default_factory=dict)
    # Questions between two: title -> pairs that are compared round by round.
    contrasts: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)
    claims: Sequence[Claim] = ()
    cannot_answer: Sequence[str] = ()
    compares: Sequence[str] = ()  # families without one of which the question has no answer
    views: str = ""  # a module with what only this experiment shows; see views/__init__.py


NO_PAYLOAD = "-"
