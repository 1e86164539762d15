"""``python -m tests.torture``: rounds of torture, until the time is over or a fault is found.

Exits 1 at the first fault, with its text, the seed, and a copy of the files.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.torture.plan import MIB, Plan
from tests.torture.rig import Fault, Rig

ROUND_S = 60.0
SIZES_MIB = (1, 8, 1, 40)


def main() -> int:
    asked = arguments()
    total: Counter[str] = Counter()
    give_up_at = time.monotonic() + asked.seconds
    with tempfile.TemporaryDirectory(prefix="nearcache-torture-", dir=asked.directory) as scratch:
        number = 0
        while time.monotonic() < give_up_at:
            size_mib = asked.size or SIZES_MIB[number % len(SIZES_MIB)]
            directory = Path(scratch) / str(number)
            directory.mkdir(mode=0o700)
            plan = Plan(directory, size_mib * MIB, asked.workers, asked.seed + number)
            seconds = min(ROUND_S, give_up_at - time.monotonic())
            print(f"round {number}: {size_mib} MiB, seed {plan.seed}", flush=True)
            try:
                total += Rig(plan).run(seconds, tell).counts
            except Fault as fault:
                return report(fault, plan, asked.evidence)
            shutil.rmtree(directory)
            number += 1
    tell(", ".join(f"{name} {count:,}" for name, count in total.items() if name != "events"))
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--hours", type=float, default=0.0)
    parser.add_argument("--minutes", type=float, default=0.0, help="added to --hours")
    parser.add_argument("--seconds", type=float, default=0.0, help="added to those")
    parser.add_argument("--size", type=int, help="of a store, in MiB; else one after another")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--directory", help="for the stores; the default is memory")
    parser.add_argument("--evidence", type=Path, default=Path("results/torture"))
    asked = parser.parse_args()
    asked.seconds = asked.seconds + 60 * asked.minutes + 3600 * asked.hours or 30.0
    if asked.directory is None and Path("/dev/shm").is_dir():
        asked.directory = "/dev/shm"
    return asked


def tell(text: str) -> None:
    print(f"  {text}", flush=True)


def report(fault: Fault, plan: Plan, evidence: Path) -> int:
    kept = evidence / str(plan.seed)
    shutil.copytree(plan.directory, kept, dirs_exist_ok=True)
    print(f"FAULT in the round with seed {plan.seed}; its files are in {kept}\n{fault}", flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
