"""``python -m tests.torture``: rounds of torture, until the time is over or a fault is found.

In turn over shared memory, over a Redis that is restarted, and over one that fails over.

Exits 1 at the first fault, with its text, the seed, and a copy of the files.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.torture.over_redis.rig import failed_over, restarted
from tests.torture.plan import MIB, Plan
from tests.torture.rig import Fault, Rig

ROUND_S = 60.0
SIZES_MIB = (1, 8, 1, 40)


def main() -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    asked = arguments()
    total: Counter[str] = Counter()
    give_up_at = time.monotonic() + asked.seconds
    with tempfile.TemporaryDirectory(prefix="nearcache-torture-", dir=asked.directory) as scratch:
        number = 0
        while time.monotonic() < give_up_at:
            directory = Path(scratch) / str(number)
            directory.mkdir(mode=0o700)
            over = asked.over[number % len(asked.over)]
            seed = asked.seed + number
            with OVER[over](directory, asked, number) as rig:
                seconds = min(ROUND_S, give_up_at - time.monotonic())
                print(f"round {number}: {over}, seed {seed}", flush=True)
                try:
                    total += rig.run(seconds, tell).counts
                except Fault as fault:
                    return report(fault, rig.plan, asked.evidence)
            shutil.rmtree(directory)
            number += 1
    tell(", ".join(f"{name} {count:,}" for name, count in total.items() if name != "events"))
    return 0


@contextlib.contextmanager
def shared_memory(directory: Path, asked: argparse.Namespace, number: int) -> Iterator[Rig]:
    size_mib = asked.size or SIZES_MIB[number // len(asked.over) % len(SIZES_MIB)]
    tell(f"{size_mib} MiB")
    yield Rig(Plan(directory, size_mib * MIB, asked.workers, asked.seed + number))


def over_redis(server: Any) -> Any:
    return lambda directory, asked, number: server(directory, asked.workers, asked.seed + number)


OVER: dict[str, Any] = {
    "shm": shared_memory,
    "redis": over_redis(restarted),
    "sentinel": over_redis(failed_over),
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--hours", type=float, default=0.0)
    parser.add_argument("--minutes", type=float, default=0.0, help="added to --hours")
    parser.add_argument("--seconds", type=float, default=0.0, help="added to those")
    parser.add_argument("--over", nargs="+", choices=OVER, default=list(OVER), help="all in turn")
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


def report(fault: Fault, plan: Any, evidence: Path) -> int:
    kept = evidence / str(plan.seed)
    shutil.copytree(
        plan.directory, kept, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.sock")
    )
    print(f"FAULT in the round with seed {plan.seed}; its files are in {kept}\n{fault}", flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
