"""Prints the table of ratios; writes it to a page, or with the machine to a JSON file, if asked."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
from collections.abc import Iterable
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from bench import (
    crowds,
    eviction,
    nginx_accuracy,
    nginx_agent,
    nginx_doctor,
    nginx_page,
    over_redis,
    peers,
    rows,
)
from bench.page import page
from nearcache.lab.results.machine import describe_machine, describe_versions
from nearcache.lab.servers import Servers

CACHES = ["memory", "redis", "crowds"]
PARTS = [*CACHES, "nginx"]
ACCURACY = "accuracy"  # a part of "nginx" that can be had alone
EVICTION = "eviction"  # alone only: it needs libcachesim, and says nothing about time


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--page", type=Path, help="also write them as a Markdown page")
    parser.add_argument(
        "--only", choices=[*PARTS, ACCURACY, EVICTION], help="measure this part alone"
    )
    parser.add_argument("--log", type=Path, help="nginx: a combined log to repeat [made lines]")
    parser.add_argument("--quick", action="store_true", help="nginx: tiny sizes, to try the bench")
    arguments = parser.parse_args()
    if arguments.quick and arguments.only not in ("nginx", ACCURACY):
        parser.error("--quick is for --only nginx")
    parts = [arguments.only] if arguments.only else PARTS
    cores = sorted(os.sched_getaffinity(0))
    results: list[dict[str, Any]] = []
    if set(parts) & set(CACHES):
        of_caches(parts, cores, results)
    if {"nginx", ACCURACY} & set(parts):
        # On all cores: a page takes as long as it says, whoever else is busy.
        shown(nginx_accuracy.rows(*((2, 100) if arguments.quick else (30, 1500))), results)
    if "nginx" in parts:
        os.sched_setaffinity(0, {cores[-1]})
        of_nginx(arguments.log, arguments.quick, results)
        os.sched_setaffinity(0, set(cores))
    if arguments.only == EVICTION:
        of_eviction(results)
    machine = describe_machine() | describe_versions()
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine, "rows": results}, indent=1))
    if arguments.page:
        arguments.page.write_text(page(machine, results))


def of_caches(parts: list[str], cores: list[int], results: list[dict[str, Any]]) -> None:
    with (
        peers.directory() as where,
        Servers(where, cores[-1]) as pinned,
        Servers(_made(where / "free"), None) as free,
    ):
        redis_path = pinned.start("redis").places["redis_socket"]
        memcached_path = pinned.start("memcached-unix").places["memcached_socket"]
        peers.configure(where, over_redis.aliases(redis_path, memcached_path))
        os.sched_setaffinity(0, {cores[-1]})
        if "memory" in parts:
            table(rows.rows(where), results)
        if "redis" in parts:
            table(over_redis.rows(redis_path), results)
            once_over_redis(redis_path, results)
        if "crowds" in parts:
            in_crowds(redis_path, [cores[-1]], results)
            in_crowds(free.start("redis").places["redis_socket"], cores, results)
            at_one_lock(cores[-1], results)
        os.sched_setaffinity(0, set(cores))
        if "memory" in parts:
            in_several(where, cores, results)


def of_nginx(log: Path | None, quick: bool, results: list[dict[str, Any]]) -> None:
    if quick:
        print("tiny sizes: these figures mean nothing")
    sizes = nginx_doctor.Sizes.quick() if quick else nginx_doctor.Sizes()
    with peers.directory() as where:
        found = chain(nginx_doctor.rows(where, log, sizes), nginx_agent.rows(where, sizes))
        shown(found, results)


def of_eviction(results: list[dict[str, Any]]) -> None:
    if find_spec("libcachesim") is None:
        raise SystemExit("--only eviction compares with libCacheSim: pip install libcachesim")
    with peers.directory() as where:
        peers.configure(where, {})
        for row in eviction.rows(where):
            print(eviction.line(row), flush=True)
            results.append(dataclasses.asdict(row))


def shown(
    found: Iterable[nginx_doctor.Row | nginx_accuracy.Accuracy], results: list[dict[str, Any]]
) -> None:
    table = None
    for row in found:
        if row.table != table:
            print(f"\n{row.table}")
            table = row.table
        print(nginx_page.line(row), flush=True)
        results.append(dataclasses.asdict(row))


def table(measured: Iterable[rows.Row], results: list[dict[str, Any]]) -> None:
    print(f"\n{'operation':<24} {'against':<22} {'ours ns':>9} {'peer ns':>10}  faster (95 %)")
    for row in measured:
        found, effect = row.comparison, row.comparison.effect
        promised = f"promised {row.at_least:.2g}" if row.at_least else ""
        verdict = "" if effect.ratio >= row.at_least else "  BELOW"
        print(
            f"{row.operation:<24} {row.against:<22} {found.ours_ns:>9.0f} {found.peer_ns:>10.0f}"
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


def once_over_redis(redis_path: str, results: list[dict[str, Any]]) -> None:
    pattern = over_redis.delete_pattern(redis_path)
    print(
        f"\ndelete_pattern of 100,000 of 1,000,000 keys: {pattern.ours_s:.2f} s, django-redis"
        f" {pattern.peer_s:.2f} s: {pattern.peer_s / pattern.ours_s:.1f}x (promised 5); longest"
        f" command {pattern.longest_command_ms:.1f} ms (promised below 10)"
    )
    results.append({"operation": "delete_pattern", **dataclasses.asdict(pattern)})
    outage_us = over_redis.outage_get_us()
    print(f"get while the breaker is open: {outage_us:.1f} us (promised below 20)")
    results.append({"operation": "get in an outage", "outage_us": outage_us})


def in_crowds(redis_path: str, cores: list[int], results: list[dict[str, Any]]) -> None:
    from django.utils.module_loading import import_string

    cache = import_string("nearcache.backends.RedisCache")(f"unix://{redis_path}", {})
    cache.set("S", peers.SMALL, None)
    print("\nserver and callers on one core" if len(cores) == 1 else "\nnobody pinned")
    for name in crowds.SECONDS:
        found = crowds.crowd(name, redis_path, cores)
        print(
            f"  {name}: {found.ours:,.0f}/s, {found.ours_answered:.1%} answered; redis-py"
            f" {found.peer:,.0f}/s, {found.peer_answered:.1%}: {found.ratio:.1f}x"
            f" (promised {found.at_least:g})",
            flush=True,
        )
        results.append(dataclasses.asdict(found))


def at_one_lock(core: int, results: list[dict[str, Any]]) -> None:
    print()
    for pause_s in crowds.PAUSES_S:
        locks = crowds.contended(core, pause_s)
        print(
            f"lock contended by 8, {locks.pause_ms:g} ms apart: {locks.ours_per_s:,.0f}/s, P99 wait"
            f" {locks.ours_p99_ms:.1f} ms; django-redis {locks.peer_per_s:,.0f}/s,"
            f" {locks.peer_p99_ms:.1f} ms: {locks.ours_per_s / locks.peer_per_s:.1f}x (promised 3)",
            flush=True,
        )
        results.append(dataclasses.asdict(locks))


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


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
