"""The results as a Markdown page: docs/benchmarks.md is made by `python -m bench --page`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench import nginx_page

HEAD = """# Benchmarks

Made by `python -m bench --page docs/benchmarks.md`; do not edit. These are ratios on one machine;
`make bench` measures yours.

Method: one process on one core, ours and the peer in turns in random order, 31 rounds of 15 ms
each; the median of the ratios of rounds, with its 95 % bootstrap interval. S is the small dict of
five entries of the project's first experiments, F a list of 1,000 floats. LocMemCache has room for
all keys, DiskCache's directory is on tmpfs. "Decoded anew" is a read with no kept objects
(`near_items=0`): what the first read after another process's write costs.

Rows with Redis and Memcached: servers and client share that one core and a unix socket, all peers
the same server. Two rows say what a bare socket with hiredis and no client at all gains over the
peers: where it misses a promise, so must every client that asks the server. In a crowd each of ours
is a whole `cache.get` of S through Django, each of the peer's a bare GET of the same bytes by
redis-py.
"""


CROWDS = {
    "greenlets": "5,000 greenlets, 1 s timeout, against a pool of 100",
    "pings": "5,000 greenlets, PING without Django, against a pool of 100",
    "tasks": "1,000 asyncio tasks, against a pool of 50",
    "threads": "32 threads, against a pool of 50",
}


def page(machine: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> str:
    """The page: machine, ratios, the rows of several processes; then the doctor of nginx."""
    of_nginx = [row for row in results if "table" in row]
    of_caches = [row for row in results if "table" not in row]
    parts = []
    if of_caches:
        parts = [HEAD, *_machine(machine), *_ratios(of_caches), *_others(of_caches), ""]
    if of_nginx:
        parts += [nginx_page.section(of_nginx, "\n".join(_machine(machine)))]
    return "\n".join(parts)


def _machine(machine: Mapping[str, Any]) -> Iterator[str]:
    names = ("cpu_model", "cpus", "kernel", "python", "django", "diskcache", "nearcache")
    yield ", ".join(f"{name.replace('_', ' ')} {machine[name]}" for name in names) + "."
    yield ""


def _ratios(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "| operation | against | ours, ns | peer, ns | times faster (95 %) | promised |"
    yield "|---|---|---:|---:|---|---:|"
    for row in results:
        if found := row.get("comparison"):
            effect = found["effect"]
            promised = f"{row['at_least']:.3g}" if row["at_least"] else ""
            yield (
                f"| {row['operation']} | {row['against']} | {found['ours_ns']:.0f}"
                f" | {found['peer_ns']:.0f} | **{effect['ratio']:.2f}**"
                f" ({effect['low']:.2f}\u2013{effect['high']:.2f})"
                f" | {promised} |"
            )
    yield ""


def _others(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for row in results:
        match row:
            case {"bytes": taken}:
                yield (
                    f"- Bytes beyond key and value, 1,000,000 values of 100 bytes, the whole file"
                    f" counted (`mean_item=150`): **{taken:.0f}** (promised: at most 64)."
                )
            case {"bare_loop": bare, "ours": ours}:
                yield (
                    f"- Two processes reading, over one: **{ours:.2f}** (promised 1.8; a loop that"
                    f" shares nothing gets {bare:.2f} on this machine)."
                )
            case {"shared": shared, "separate": separate, "entries_each": entries}:
                yield (
                    f"- Hit ratio of 4 workers with 64 MB together, Zipf over 200,000 keys, values"
                    f" of 1,000 bytes: **{shared:.3f}** shared, {separate:.3f} with four"
                    f" LocMemCaches of 16 MB ({entries:,} entries each)."
                )
            case {"longest_command_ms": longest, "ours_s": ours, "peer_s": peer}:
                yield (
                    f"- `delete_pattern` of 100,000 of 1,000,000 keys: {ours:.2f} s, django-redis"
                    f" {peer:.2f} s: **{peer / ours:.1f}** times (promised 5); the longest command"
                    f" took {longest:.1f} ms (promised: below 10)."
                )
            case {"outage_us": taken}:
                yield (
                    f"- `get` while the server is away and the breaker open:"
                    f" **{taken:.1f} \u00b5s** (promised: below 20)."
                )
            case {"crowd": name, "ours": ours, "peer": peer, "one_core": one}:
                yield (
                    f"- {CROWDS[name]}, {'all on one core' if one else 'nobody pinned'}:"
                    f" {ours:,.0f} a second, {row['ours_answered']:.1%} answered; redis-py"
                    f" {peer:,.0f} a second, {row['peer_answered']:.1%} answered:"
                    f" **{ours / peer:.1f}** times (promised {row['at_least']:g})."
                )
            case {"pause_ms": pause, "ours_p99_ms": ours_ms, "peer_p99_ms": peer_ms}:
                ours, peer = row["ours_per_s"], row["peer_per_s"]
                yield (
                    f"- A lock contended by 8 processes, held for 0.5 ms, wanted again after"
                    f" {pause:g} ms: {ours:,.0f} a second, P99 wait {ours_ms:.1f} ms; django-redis"
                    f" {peer:,.0f} a second, {peer_ms:.1f} ms: **{ours / peer:.1f}** times"
                    f" (promised 3)."
                )
