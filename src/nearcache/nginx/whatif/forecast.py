"""What would other rules bring? Forecasts by replaying a log, and whether to believe them.

First today's rules are replayed, and what they give is compared with what nginx logged, request
by request: the back-test. Its error stands beside every forecast, and if it is too large there
are no forecasts. The cache's state when the log begins is not known: the model begins empty, so
what counts is the *settled* part of the log, after the longest time to live (at most half of
it) and without answers of copies from before the log. The figures of all are given beside it.

How long responses live the configuration or their headers say. If neither does, it is learned
from copies of known age that nginx called fresh or too old; how far the hit ratio goes apart
over all lives that fit counts as error, like that of the model.

No two runs of one load are the same: nginx counts lifetimes by whole seconds of its clock, and
a request that comes a little later meets another second. So rules are replayed at several parts
of a second, too. How far these differ (at least so far as real runs were measured to), and how
many requests the back-test has wrong both ways, is the noise of a replay: without it a model
without a fault would promise more than nginx can keep.

Not here: the rules (``rules.py``), nginx itself (the native model), how often the origin
changes (``origin.py``), which points make a curve (``curves.py``), words
(``page.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import stdev
from typing import TYPE_CHECKING, Any

from nearcache.nginx.config.read.units import format_time
from nearcache.nginx.logs.served import SERVED
from nearcache.nginx.whatif.curves import MOST_REPLAYS, Curve, Scope, curves
from nearcache.nginx.whatif.origin import change_rate, outdated_share
from nearcache.nginx.whatif.rules import Change, Frame, Subject, Today, replay_rules
from nearcache.report.words import ratio

if TYPE_CHECKING:
    from nearcache._core import NginxAnswered, NginxOutcome, NginxTrace, NginxTraceFacts

MOST_ERROR = 0.03  # of the hit ratio in the back-test
LEAST_AGREEMENT = 0.85  # of requests
FEW_REQUESTS = 200  # a back-test on fewer says nothing
NORMAL_95 = 1.96
PHASES = 5  # of a second, at which a log may begin by nginx's clock
STUDENT_95 = 2.776  # of so many, less one
# Between real runs of one load, for each fetch of what had expired: docs/design-decisions.md.
VARIANCE_OF_REFETCHES = 0.09
MOST_PHASED = 1_000_000  # requests; of more, each forecast has the noise of today's rules


@dataclass(frozen=True)
class Backtest:
    """Today's rules replayed, against what was logged. Ratios of requests."""

    requests: int
    logged: float
    modelled: float
    error: float
    """Of the settled part."""
    wrong: float
    """What the requests that it has wrong in either direction add to that, at 95 %."""
    noise: float
    """Half of the 95 % interval in which two runs of one load differ."""
    logged_all: float
    modelled_all: float
    agreement: float
    """The share of requests whose status is right."""
    disagreements: list[tuple[str, str, int]]
    """(logged, modelled, requests): the commonest first."""

    @property
    def is_good(self) -> bool:
        return (
            self.requests >= FEW_REQUESTS
            and self.error <= MOST_ERROR
            and self.agreement >= LEAST_AGREEMENT
        )


@dataclass(frozen=True)
class Forecast:
    """What one set of rules gives. Settled unless it says otherwise; scaled up if sampled."""

    change: Change
    name: str
    hit_ratio: float
    hit_ratio_all: float
    """From the beginning of the log, with an empty cache."""
    byte_hit_ratio: float
    error: float | None
    """Of the hit ratio: of the back-test, its noise, and of sampling at 95 %; None: not tested."""
    sampling_error: float
    saved_s: float | None
    """Upstream time that answers from the cache would have taken; None: the log has no times."""
    upstream_s: float | None
    fetches: float
    peak_bytes: float
    keys: float
    one_hit_keys: float
    merged_keys: float
    removed_inactive: float
    removed_for_room: float
    lock_waits: float
    lock_wait_s: float
    mean_age_s: float | None
    oldest_s: float
    outdated_seen: float | None
    """The share of answers from the cache known to be outdated: another fetch had brought
    something else. A lower bound."""
    outdated: float | None
    """The estimated share; None if there were too few fetches to learn from."""
    statuses: dict[str, int]


@dataclass(frozen=True)
class Learned:
    """How long responses live today, from the log alone: see the native ``lifetime.rs``."""

    ttl_s: int
    least_s: int
    most_s: int | None
    """All from ``least_s`` to here fit the log as well; None: nothing was ever too old."""
    evidence: int
    """Hits, and copies that were too old, of known age."""
    contradicting: int
    """Of these, those that say otherwise: there is more than one time to live."""
    error: float
    """How far the model's hit ratio of today goes apart over all that fits."""


@dataclass(frozen=True)
class WhatIf:
    requests: int
    span_s: float
    warm_up_s: float
    rate: float
    """The share of keys that was followed."""
    today: Forecast
    backtest: Backtest | None
    """None: the log has no cache status."""
    ttl_s: float | None
    """Of most responses today."""
    learned: Learned | None
    """None: responses or rules say how long they live, or nothing does."""
    forecasts: list[Forecast]
    curves: list[Curve]
    refusal: str
    """Why there are no forecasts; empty if there are."""
    assumed: list[str]
    notes: list[str]
    changes_per_hour: float | None
    refetches: int
    changed: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Question:
    today: Today
    changes: Sequence[Change]
    subject: Subject
    anyway: bool = False
    """Forecast even if the back-test is bad, or there is none."""
    curves: bool = False


Progress = Callable[[int, int], None]


def whatif(trace: NginxTrace, question: Question, progress: Progress | None = None) -> WhatIf:
    """Replays today's rules, judges the model, and forecasts if it may; of a log read to its end.

    ``progress`` is called with (replays done, of how many).
    """
    return Replays(trace, question, progress).run()


class Replays:
    """Replays of one trace: that of today's rules first, which tells whether to believe others."""

    def __init__(
        self, trace: NginxTrace, question: Question, progress: Progress | None = None
    ) -> None:
        self.trace = trace
        self.question = question
        self.progress = progress
        self.facts = trace.facts()
        self.learned_ttl = self.facts["learned_ttl"]
        self.span_s = _span_s(self.facts)
        self.warm_up_s = min(self.span_s / 2, self._longest_ttl_s())
        self.tells_status = self.facts["says"]["cache_status"]
        self.assumed = list(question.today.assumed)
        self.frame = self._frame()
        self.change_rate = change_rate(self.facts["refetches"])
        self.error: float | None = None
        self.noise = self.wrong = 0.0  # of today's rules: between phases, and of the back-test
        self.done = 0
        outcome = self._replay(Change())
        if self.tells_status:
            self.noise = self._noise(outcome, Change())
        self.backtest = backtest(outcome, self.noise) if self.tells_status else None
        self.learned = self._learned()
        if self.backtest:
            self.error = self.backtest.error + (self.learned.error if self.learned else 0.0)
            self.wrong = self.backtest.wrong
        self.today = self._judged(outcome, Change(), self.noise)

    def run(self) -> WhatIf:
        refusal = self._refusal(self.backtest)
        forecasts = [] if refusal else [self._forecast(each) for each in self.question.changes]
        drawn = [] if refusal or not self.question.curves else curves(self.point, self._scope())
        refetches = self.facts["refetches"]
        return WhatIf(
            requests=self.facts["requests"],
            span_s=self.span_s,
            warm_up_s=self.warm_up_s,
            rate=self.facts["rate"],
            today=self.today,
            backtest=self.backtest,
            ttl_s=self._usual_ttl_s(),
            learned=self.learned,
            forecasts=forecasts,
            curves=drawn,
            refusal=refusal,
            assumed=self.assumed,
            notes=self._notes() if forecasts else [],
            changes_per_hour=None if self.change_rate is None else self.change_rate * 3600,
            refetches=sum(count for _, count, _ in refetches),
            changed=sum(changed for _, _, changed in refetches),
        )

    def _frame(self) -> Frame:
        """What the log does not say is decided here, and told."""
        first_us = self.facts["first_us"] or 0
        says_headers = self.facts["says"]["cache_control"]
        bounded = any(zone.max_size for zone in self.question.today.zones)
        never = self.facts["never_stored_keys"]
        trust = self.tells_status and not says_headers and not bounded
        if trust and never:
            self.assumed.append(
                f"{never:,} URLs were missed again while they should have been fresh; the "
                "log has no Cache-Control, so they are taken for responses that may not be stored"
            )
        if not self.tells_status:
            self.assumed.append(
                "the log has no $upstream_cache_status: every GET and HEAD is taken to go through "
                "the cache, and every 200, 301 and 302 to be stored"
            )
        return Frame(
            rate=self.facts["rate"],
            settled_us=first_us + round(self.warm_up_s * 1e6),
            subject=self.question.subject,
            trust_evidence=trust,
            assume_stored=not self.tells_status,
            unsaid_ttl_s=self.learned_ttl["ttl_s"] if self.learned_ttl else None,
        )

    def _noise(self, outcome: NginxOutcome, change: Change) -> float:
        """Half of the 95 % interval of the difference between two runs under these rules."""
        ratios = [modelled_ratio(outcome["settled"])]
        for phase in range(1, PHASES):
            frame = replace(self.frame, later_us=phase * 1_000_000 // PHASES)
            ratios.append(modelled_ratio(self._replay(change, frame)["settled"]))
        return max(STUDENT_95 * math.sqrt(2) * stdev(ratios), _noise_of_refetches(outcome))

    def _usual_ttl_s(self) -> float | None:
        """What is said counts; what is learned is only of those that do not say."""
        if self.facts["usual_ttl_s"] is not None:
            return float(self.facts["usual_ttl_s"])
        return float(self.learned_ttl["ttl_s"]) if self.learned_ttl else None

    def _learned(self) -> Learned | None:
        found = self.learned_ttl
        if not found:
            return None
        # Beyond the log's own length all lives are alike to it.
        ends = {max(1, found["least_s"]), found["most_s"] or max(1, round(self.span_s))}
        ratios = [
            modelled_ratio(self._replay(Change(), replace(self.frame, unsaid_ttl_s=end))["settled"])
            for end in sorted(ends)
        ]
        return Learned(
            ttl_s=found["ttl_s"],
            least_s=found["least_s"],
            most_s=found["most_s"],
            evidence=found["fresh"] + found["expired"],
            contradicting=found["contradicting"],
            error=max(ratios) - min(ratios),
        )

    def _scope(self) -> Scope:
        # A change is for all caches, so several sizes are no point of its curve.
        sizes = {zone.max_size for zone in self.question.today.zones}
        return Scope(
            ttl_s=self._usual_ttl_s(),
            max_size=sizes.pop() if len(sizes) == 1 else None,
            span_s=self.span_s,
        )

    def _longest_ttl_s(self) -> float:
        ttls = [each.ttl_s for each in self.question.changes if each.ttl_s is not None]
        return max([*ttls, self._usual_ttl_s() or 0.0])

    def _replay(self, change: Change, frame: Frame | None = None) -> NginxOutcome:
        rules = replay_rules(self.question.today, change, frame or self.frame)
        outcome = self.trace.replay(rules)
        self.done += 1
        if self.progress:
            self.progress(self.done, max(self.done, self._replays()))
        return outcome

    def _replays(self) -> int:
        """At most so many."""
        learning = 2 if self.learned_ttl else 0
        drawing = MOST_REPLAYS if self.question.curves else 0
        phases = PHASES if self.tells_status else 1
        each = phases if self._is_phased else 1
        return phases + learning + each * len(self.question.changes) + drawing

    def _refusal(self, found: Backtest | None) -> str:
        if self.question.anyway:
            return ""
        if found is None:
            return (
                "the log has no cache status, so nothing says whether the model is right. Add "
                "$upstream_cache_status to the log_format (`nearcache nginx config` prints one), "
                "or give --anyway for forecasts that nobody has tested"
            )
        if self._usual_ttl_s() is None and "MISS" in self.facts["logged"]:
            return (
                "nothing says how long responses live today, neither --config nor the headers in "
                "the log, and it has too few hits to learn it from; give --ttl-now, the "
                "*_cache_valid in force"
            )
        if found.requests < FEW_REQUESTS:
            return (
                f"{found.requests} settled requests are too few to test the model (it takes "
                f"{FEW_REQUESTS}); give a longer log"
            )
        if not found.is_good:
            short = (
                f"The log is short for lifetimes of {format_time(self.warm_up_s)} and more: give "
                "older logs, too. "
                if self.warm_up_s == self.span_s / 2
                else ""
            )
            return (
                f"the model does not reproduce this log: off by {100 * found.error:.1f} points, "
                f"and right for {found.agreement:.0%} of requests. Most likely a rule is "
                "other than it was told (--config, --ttl-now, --inactive-now, --max-size-now), or "
                f"the log lacks what decides (Cache-Control, Vary). {short}"
                "--anyway forecasts nevertheless"
            )
        return ""

    @property
    def _is_phased(self) -> bool:
        """Has each forecast its own noise?"""
        return self.tells_status and self.facts["kept_requests"] <= MOST_PHASED

    def _forecast(self, change: Change) -> Forecast:
        outcome = self._replay(change)
        noise = self._noise(outcome, change) if self._is_phased else self.noise
        return self._judged(outcome, change, noise)

    def point(self, change: Change) -> Forecast:
        """Of a curve, or of a row of changes: there are many, and one noise will do."""
        return self._judged(self._replay(change), change, self.noise)

    def _judged(self, outcome: NginxOutcome, change: Change, noise: float) -> Forecast:
        sampling = sampling_error(outcome, self.facts["rate"])
        error = None if self.error is None else self.error + math.hypot(noise, self.wrong)
        return forecast(outcome, change, self.facts, self.change_rate, error, sampling)

    def _notes(self) -> list[str]:
        """What holds a forecast back, and is easily overlooked."""
        notes = []
        ttl_s = max((each.ttl_s or 0.0 for each in self.question.changes), default=0.0)
        asked = [each.inactive_s for each in self.question.changes if each.inactive_s is not None]
        inactive_s = max([*asked, *(zone.inactive_s for zone in self.question.today.zones)])
        if ttl_s > inactive_s:
            notes.append(
                f"inactive={format_time(inactive_s)} removes what nobody asks for that long, "
                f"whatever its time to live; --inactive {format_time(ttl_s)} shows what it costs"
            )
        if ttl_s > self.span_s / 2:
            notes.append(
                f"the log is shorter than twice {format_time(ttl_s)}: forecasts for it are low"
            )
        return notes


def backtest(outcome: NginxOutcome, noise: float = 0.0) -> Backtest:
    """Of today's rules. ``noise``: between phases of a second."""
    settled, everything = outcome["settled"], outcome["all"]
    pairs = _pairs(settled)
    requests = sum(pairs.values())
    right = sum(many for (logged, modelled), many in pairs.items() if logged == modelled)
    wrong = [(*pair, many) for pair, many in pairs.items() if pair[0] != pair[1]]
    astray = sum(many for *pair, many in wrong if (pair[0] in SERVED) != (pair[1] in SERVED))
    return Backtest(
        requests=requests,
        logged=logged_ratio(settled),
        modelled=modelled_ratio(settled),
        error=abs(modelled_ratio(settled) - logged_ratio(settled)),
        wrong=NORMAL_95 * (ratio(math.sqrt(astray), requests) or 0.0),
        noise=noise,
        logged_all=logged_ratio(everything),
        modelled_all=modelled_ratio(everything),
        agreement=ratio(right, requests) or 0.0,
        disagreements=sorted(wrong, key=lambda each: -each[2])[:5],
    )


def _noise_of_refetches(outcome: NginxOutcome) -> float:
    """A request that comes a little sooner finds a copy fresh, and the next fetch is later."""
    counts = outcome["settled"]["requests"]
    variance = 2 * VARIANCE_OF_REFETCHES * counts.get("EXPIRED", 0)
    return NORMAL_95 * (ratio(math.sqrt(variance), sum(counts.values())) or 0.0)


def _pairs(answered: NginxAnswered) -> dict[tuple[str, str], int]:
    """(logged, modelled) -> requests. Whether the origin says 304 is not the cache's doing."""
    found: dict[tuple[str, str], int] = {}
    for logged, row in answered["logged"].items():
        name = "EXPIRED" if logged == "REVALIDATED" else logged
        for modelled, many in row.items():
            found[name, modelled] = found.get((name, modelled), 0) + many
    return found


def modelled_ratio(answered: NginxAnswered) -> float:
    return _served_share(answered["requests"])


def logged_ratio(answered: NginxAnswered) -> float:
    return _served_share({name: sum(row.values()) for name, row in answered["logged"].items()})


def _served_share(counts: Mapping[str, int]) -> float:
    return ratio(sum(counts.get(name, 0) for name in SERVED), sum(counts.values())) or 0.0


def sampling_error(outcome: NginxOutcome, rate: float) -> float:
    """Half of the 95 % interval of the hit ratio: keys are clusters, the ratio is of sums
    (Cochran, Sampling Techniques, 1977, 6.3 and 9A.1)."""
    requests = sum(outcome["all"]["requests"].values())
    if rate >= 1 or not requests:
        return 0.0
    return NORMAL_95 * math.sqrt((1 - rate) * outcome["residuals"]) / requests


def forecast(
    outcome: NginxOutcome,
    change: Change,
    facts: NginxTraceFacts,
    changes_per_s: float | None,
    model_error: float | None,
    sampling: float,
) -> Forecast:
    """One replay in figures of the whole log."""
    of_keys = 1 / facts["rate"]
    of_requests = ratio(facts["requests"], facts["kept_requests"]) or 1.0
    ages = outcome["ages"]
    served = sum(count for _, count in ages)
    timed = facts["says"]["upstream_time"] or facts["says"]["request_time"]
    return Forecast(
        change=change,
        name=change.name,
        hit_ratio=modelled_ratio(outcome["settled"]),
        hit_ratio_all=modelled_ratio(outcome["all"]),
        byte_hit_ratio=_served_share(outcome["settled"]["bytes"]),
        error=None if model_error is None else model_error + sampling,
        sampling_error=sampling,
        saved_s=outcome["saved_us"] / 1e6 * of_requests if timed else None,
        upstream_s=outcome["upstream_us"] / 1e6 * of_requests if timed else None,
        fetches=outcome["fetches"] * of_requests,
        peak_bytes=outcome["peak_bytes"] * of_keys,
        keys=outcome["keys"] * of_keys,
        one_hit_keys=outcome["one_hit"] * of_keys,
        merged_keys=outcome["merged"] * of_keys,
        removed_inactive=outcome["removed_inactive"] * of_keys,
        removed_for_room=outcome["removed_for_room"] * of_keys,
        lock_waits=outcome["lock_waits"] * of_requests,
        lock_wait_s=outcome["lock_wait_us"] / 1e6 * of_requests,
        mean_age_s=ratio(sum(age * count for age, count in ages), served),
        oldest_s=outcome["oldest_us"] / 1e6,
        outdated_seen=ratio(outcome["outdated"], served),
        outdated=None if changes_per_s is None else outdated_share(ages, changes_per_s),
        statuses=dict(outcome["settled"]["requests"]),
    )


def _span_s(facts: NginxTraceFacts) -> float:
    first, last = facts["first_us"], facts["last_us"]
    return 0.0 if first is None or last is None else (last - first) / 1e6
