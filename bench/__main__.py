"""Prints the table of ratios; writes it to a page, or with the machine to a JSON file, if asked."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from bench import peers
from bench.page import page
from nearcache.lab.machine import describe_machine, describe_versions


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--page", type=Path, help="also write them as a Markdown page")
    arguments = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    results: list[dict[str, Any]] = []
    with peers.directory() as where:
        os.sched_setaffinity(0, {cores[-1]})
        peers.configure(where)
        in_one_process(where, results)
        os.sched_setaffinity(0, set(cores))
        in_several(where, cores, results)
    machine = describe_machine() | describe_versions()
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine, "rows": results}, indent=1))
    if arguments.page:
        arguments.page.write_text(page(machine, results))


def in_one_process(where: Path, results: list[dict[str, Any]]) -> None:
    from bench.rows import rows

    print(f"{'operation':<24} {'against':<12} {'ours ns':>9} {'peer ns':>10}  faster (95 %)")
    for row in rows(where):
        found, effect = row.comparison, row.comparison.effect
        promised = f"promised {row.at_least:g}" if row.at_least else ""
        verdict = "" if effect.ratio >= row.at_least else "  BELOW"
        print(
            f"{row.operation:<24} {row.against:<12} {found.ours_ns:>9.0f} {found.peer_ns:>10.0f}"
            f"  {effect.ratio:.2f}x ({effect.low:.2f}-{effect.high:.2f})  {promised}{verdict}",
            flush=True,
        )
        facts = dataclasses.asdict(row)
        facts["comparison"]["effect"] |= {
            "ratio": effect.ratio,
            "low": effect.low,
            "high": effect.high,
        }
        results.append(facts)


def in_several(where: Path, cores: list[int], results: list[dict[str, Any]]) -> None:
    from django.core.cache import caches

    from bench.processes import hit_ratios, scaling
    from bench.space import overhead_per_item

    space = overhead_per_item(where)
    print(f"\nbytes beyond key and value, 1,000,000 x 100 bytes: {space:.0f} (promised at most 64)")
    results.append({"operation": "overhead per item", "bytes": space})
    if len(cores) > 1:
        scaled = scaling(caches["default"], cores[:2])
        print(
            f"2 processes reading, over one: {scaled.ours:.2f}x (promised 1.8;"
            f" a loop that shares nothing: {scaled.bare_loop:.2f}x)"
        )
        results.append({"operation": "2 processes reading", **dataclasses.asdict(scaled)})
    hits = hit_ratios(where, cores)
    print(
        f"hit ratio of 4 workers, 64 MB together, Zipf over 200,000 keys: shared memory"
        f" {hits.shared:.3f}, four LocMemCaches {hits.separate:.3f}"
        f" ({hits.entries_each} entries each)"
    )
    results.append({"operation": "hit ratio of 4 workers", **dataclasses.asdict(hits)})


if __name__ == "__main__":
    main()
