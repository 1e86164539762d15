"""``python -m tests.lab.tiny_lab run one two``: the command line with small experiments.

The real ones start dozens of processes; what is tested is what happens between them.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from nearcache.cli import main
from nearcache.lab.arms.candidates import choose
from nearcache.lab.base.model import Plan
from nearcache.lab.experiments import registry as experiments
from nearcache.lab.experiments.backends.plan import BACKENDS

PLAN = Plan(repetitions=1, rounds=2, phase_ms=1, time_limit_s=5)


LONG = replace(PLAN, rounds=10_000, time_limit_s=600)


def tiny(name: str, *candidates: str, plan: Plan = PLAN) -> None:
    experiments.EXPERIMENTS[name] = replace(
        BACKENDS,
        name=name,
        candidates=choose(BACKENDS.candidates, ["locmem", *candidates]),
        operations=BACKENDS.operations[:1],
        default_payloads=("S",),
        plans={"quick": plan, "full": plan},
    )


if __name__ == "__main__":
    experiments.EXPERIMENTS.clear()
    tiny("one")
    tiny("two", "filebased")
    if "long" in sys.argv:  # until somebody ends it: not for --all
        tiny("long", plan=LONG)
    tiny("broken", "redis-python-unix")  # where --redis-server is no server
    main(["lab", *sys.argv[1:]])
