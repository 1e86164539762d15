"""``python -m tests.site``: scenarios, one after the other, until the time is over.

Exits 1 if an invariant was broken, with its text, the seed, and where the log is.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

from tests.site.scenarios import SCENARIOS, SHORT
from tests.site.trial import Report, Trial

SHOWN = 5
INJECTED = (
    *("faults", "killed", "frozen", "limited", "interrupted", "disconnected", "hung"),
    "connections cut",
)
"""What is done to a site, as the judge counts it."""


def main() -> int:
    asked = arguments()
    asked.minutes += 60 * asked.hours
    names = [name for name in SCENARIOS if any(fnmatch(name, glob) for glob in asked.only)]
    names = [name for name in names if not any(fnmatch(name, glob) for glob in asked.but)]
    if asked.short:
        names = [name for name in SHORT if name in names]
    if asked.list:
        print("\n".join(f"{name:45} {SCENARIOS[name].fault.says}" for name in names))
        return 0
    reports = run(names, asked)
    print()
    for report in reports:
        print(f"{report.scenario.name:45} {report.seconds:5.0f} s  {report.line()}")
    broken = [report for report in reports if report.violations]
    asked_total = sum(report.counts["asked"] for report in reports)
    print("\n".join(by_store(reports)))
    print(f"{len(reports)} scenarios, {asked_total:,} requests, {len(broken)} broken")
    return bool(broken)


def by_store(reports: list[Report]) -> list[str]:
    """What each kind of store has been through."""
    lines = []
    for store in sorted({report.scenario.store_name for report in reports}):
        runs = [report for report in reports if report.scenario.store_name == store]
        counts = sum((report.counts for report in runs), Counter[str]())
        injected = sum(counts[name] for name in INJECTED)
        lines.append(
            f"{store:8} {len(runs):4} runs, {counts['asked']:9,} requests, {injected:6,} faults,"
            f" {counts['violations']:4,} violations"
        )
    return lines


def run(names: list[str], asked: argparse.Namespace) -> list[Report]:
    """Each in turn, in another order each time, while there is time."""
    order, reports = random.Random(asked.seed), []
    give_up_at = time.monotonic() + 60 * asked.minutes
    seed = asked.seed
    while True:
        for name in order.sample(names, len(names)) if asked.minutes else names:
            reports.append(one(name, seed, asked))
            seed += 1
            if asked.minutes and time.monotonic() > give_up_at:
                return reports
        if not asked.minutes:
            return reports


def one(name: str, seed: int, asked: argparse.Namespace) -> Report:
    print(f"{name}: {SCENARIOS[name].fault.says} (seed {seed})", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="nc-site-"))
    report = Trial(SCENARIOS[name], seed, directory).run(asked.seconds, tell)
    tell(report.line())
    for violation in report.violations[:SHOWN]:
        tell(f"BROKEN {violation[:600]}")
    if report.violations:
        kept = asked.evidence / f"{name.replace('/', '-')}-{seed}"
        kept.mkdir(parents=True, exist_ok=True)
        shutil.copy(directory / "log", kept)
        tell(f"the server's log is in {kept}")
    shutil.rmtree(directory)
    return report


def tell(text: str) -> None:
    print(f"  {text}", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.site", description=__doc__)
    parser.add_argument("--minutes", type=float, default=0.0, help="in all; else each once")
    parser.add_argument("--hours", type=float, default=0.0, help="added to --minutes")
    parser.add_argument("--seconds", type=float, default=0.0, help="of each scenario, at least")
    parser.add_argument("--only", nargs="+", default=["*"], help="names with * and ?, of --list")
    parser.add_argument("--but", nargs="+", default=[], help="not these")
    parser.add_argument("--short", action="store_true", help="the few that run with the tests")
    parser.add_argument("--list", action="store_true", help="names, and what they do")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--evidence", type=Path, default=Path("results/site"))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
