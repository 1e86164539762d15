"""What the numbers were measured on. A number without its machine is a rumour."""

from __future__ import annotations

import os
import platform
import time
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

LIBRARIES = (
    "nearcache",
    "django",
    "redis",
    "hiredis",
    "django-redis",
    "pymemcache",
    "pylibmc",
    "python-memcached",
    "diskcache",
)
# What must be equal before two samples may be put together.
IDENTITY = ("cpu_model", "cpus", "kernel", "python", "memory_bytes")


def describe_machine() -> dict[str, Any]:
    return {
        "cpu_model": _cpu_model(),
        "cpus": os.cpu_count(),
        "cpus_usable": len(os.sched_getaffinity(0)),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "not shown",
        "virtual": "hypervisor" in _read("/proc/cpuinfo"),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "kernel": platform.release(),
        "system": platform.system(),
        "architecture": platform.machine(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "clock_overhead_ns": clock_overhead_ns(),
    }


def describe_versions() -> dict[str, str]:
    versions: dict[str, str] = {}
    for name in LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def pressure() -> dict[str, float]:
    """How busy the machine is with other things; taken before and after runs and rounds."""
    return {
        "load": os.getloadavg()[0],
        "swapped_pages": _swapped_pages(),
        **_ticks("cpu", ""),
        **_ticks(f"cpu{measuring_cpu()}", "cpu_"),
    }


def _ticks(line: str, prefix: str) -> dict[str, float]:
    """How often the clock ticked for somebody else, of all CPUs or of one; 0 if nobody says."""
    words = [words.split() for words in _read("/proc/stat").splitlines()]
    ticks = next(([int(word) for word in rest] for name, *rest in words if name == line), [0] * 8)
    return {f"{prefix}steal_ticks": sum(ticks[7:8]), f"{prefix}all_ticks": sum(ticks[:8])}


def _swapped_pages() -> int:
    """In and out, since the machine was started."""
    lines = (line.split() for line in _read("/proc/vmstat").splitlines())
    return sum(int(words[1]) for words in lines if words[0] in ("pswpin", "pswpout"))


def measuring_cpu() -> int:
    """The CPU that servers and workers share: the last one, interrupts prefer the first."""
    return max(os.sched_getaffinity(0))


def clock_overhead_ns() -> int:
    """What two timestamps in a row cost. Shown, never subtracted."""
    clock = time.perf_counter_ns
    return int(median(-(clock() - clock()) for _ in range(1000)))


def _cpu_model() -> str:
    for line in _read("/proc/cpuinfo").splitlines():
        if line.lower().startswith(("model name", "cpu model", "hardware")):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
