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
from fnmatch import fnmatch
from pathlib import Path

from tests.site.scenarios import SCENARIOS, SHORT
from tests.site.trial import Report, Trial

SHOWN = 5


def main() -> int:
    asked = arguments()
    asked.minutes += 60 * asked.hours
    names = [name for name in SCENARIOS if fnmatch(name, asked.only)]
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
    print(f"{len(reports)} scenarios, {asked_total:,} requests, {len(broken)} broken")
    return bool(broken)


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
    parser.add_argument("--only", default="*", help="names with * and ?, as --list shows them")
    parser.add_argument("--short", action="store_true", help="the few that run with the tests")
    parser.add_argument("--list", action="store_true", help="names, and what they do")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--evidence", type=Path, default=Path("results/site"))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
