"""fio: one job file per visit, and its histograms read back.

Each operation is a job of its own, one after the other (``stonewall``). fio's ``json+``
output holds every latency it saw, in bins of 1.6 %; they become an HdrHistogram, so that
percentiles of several runs are merged and not averaged.

The metadata engines time one system call per file: filecreate open(O_CREAT), filestat
stat(), filedelete unlink(). The others are pread and pwrite of one thread, one at a time.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearcache.lab.base.arm import Unavailable
from nearcache.lab.base.messages import Phase
from nearcache.lab.experiments.disks.files import GET, LARGE, OTHERS, SYNCED
from nearcache.lab.servers import child_setup, end_process

LEAST_VERSION = (3, 33)
INSTALL = "apt install fio"
TIMEOUT_S = 50.0  # the driver gives a visit 60
METADATA_FILES = 200
BLOCK_BYTES = 4096
SEQUENTIAL_BLOCK_BYTES = 1 << 20
SAID_CHARS = 200  # of a complaint of fio's
DIRECTIONS = ("read", "write", "trim")
OPERATIONS = (
    "create",
    "stat",
    "delete",
    "read_cached",
    "read_uncached",
    "fsync",
    "sequential_cached",
    "sequential_uncached",
)
Options = dict[str, object]


class FioFailed(Exception):
    """fio ended with an error; the message is what it said."""


@dataclass(frozen=True)
class Place:
    """Where fio works, and what that place can do."""

    directory: Path
    files: Sequence[str]  # of the cache directory, relative to its subdirectory GET
    direct: bool  # O_DIRECT is possible: reads that no cache answers


def find_fio() -> tuple[str, str]:
    """(path, version). Raises Unavailable if there is none, or none that is new enough."""
    binary = shutil.which("fio")
    if binary is None:
        raise Unavailable("fio is not installed", INSTALL)
    said = subprocess.run([binary, "--version"], check=False, capture_output=True, text=True)
    version = said.stdout.strip().removeprefix("fio-")
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if numbers < LEAST_VERSION:
        raise Unavailable(f"fio {version} is older than 3.33", INSTALL)
    return binary, version


def job_file(place: Place, operations: Sequence[str], runtime_ms: int, seed: int) -> str:
    """One section for each operation, in this order."""
    sections = [f"[global]\ndirectory={place.directory}\nrandseed={seed}\nthread=1\n"]
    all_jobs = jobs(place, runtime_ms)
    for name in operations:
        lines = [f"{key}={value}" for key, value in all_jobs[name].items()]
        sections.append("\n".join([f"[{name}]", "stonewall", *lines, ""]))
    return "\n".join(sections)


class Runner:
    """Runs fio, and can be told to stop it."""

    def __init__(self, binary: str, cpu: int) -> None:
        self.binary = binary
        self.cpu = cpu
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, text: str, directory: Path) -> list[dict[str, Any]]:
        """The ``jobs`` of fio's answer. ``directory`` is where its own files may go."""
        job, answer = directory / "lab.fio", directory / "lab.json"
        job.write_text(text)
        command = [self.binary, "--output-format=json+", f"--output={answer}", str(job)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=directory,
            preexec_fn=child_setup(self.cpu),  # noqa: PLW1509 - the worker has one thread
        )
        try:
            _, complaints = self._process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise FioFailed(f"fio did not end within {TIMEOUT_S:.0f} s") from None
        finally:
            self.stop()
        return parse(answer, complaints.decode(errors="replace"))

    def stop(self) -> None:
        if self._process is not None:
            end_process(self._process)


def parse(answer: Path, complaints: str) -> list[dict[str, Any]]:
    """The jobs of an answer of fio's, none of which failed."""
    said = (complaints.strip().splitlines() or ["it said nothing"])[0][:SAID_CHARS]
    try:
        # What fio prints before the JSON are warnings.
        text = answer.read_text()
        found: list[dict[str, Any]] = json.loads(text[text.index("{") :])["jobs"]
    except (OSError, ValueError, KeyError) as error:
        raise FioFailed(f"fio gave no JSON: {said}") from error
    for job in found:
        if job["error"]:
            raise FioFailed(f"fio's job {job['jobname']} failed ({job['error']}): {said}")
    return found


def phase_of(job: Mapping[str, Any]) -> Phase:
    """What one job measured: its histogram, and what its round counts as."""
    name = job["jobname"]
    bins = job["sync"]["lat_ns"]["bins"] if name == "fsync" else _bins(job)
    counts = {int(latency): int(times) for latency, times in bins.items()}
    calls = sum(counts.values())
    if not calls:
        raise FioFailed(f"fio's job {name} did nothing in its time")
    phase = Phase(name, calls=calls, histogram=_encoded(counts), point=_middle(counts))
    moved = sum(job[direction]["io_bytes"] for direction in DIRECTIONS)
    if moved and name.startswith("sequential"):
        runtime_ms = max(job[direction]["runtime"] for direction in DIRECTIONS)
        phase.measures["bandwidth"] = (1000 * moved / max(1, runtime_ms), "bytes/s")
    return phase


def _bins(job: Mapping[str, Any]) -> Mapping[str, int]:
    for direction in DIRECTIONS:
        found: Mapping[str, int] = job[direction]["clat_ns"].get("bins", {})
        if found:
            return found
    return {}


def _middle(counts: Mapping[int, int]) -> float:
    """The median, of the bins."""
    left = sum(counts.values()) / 2
    for latency in sorted(counts):
        left -= counts[latency]
        if left <= 0:
            return float(latency)
    raise AssertionError("no bins")


def _encoded(counts: Mapping[int, int]) -> str:
    from nearcache.lab.results.histogram import new_hdr

    histogram = new_hdr()
    for latency, times in counts.items():
        histogram.record_value(max(1, latency), times)
    return str(histogram.encode().decode())


def jobs(place: Place, runtime_ms: int) -> dict[str, Options]:
    """What fio is told for each operation."""
    timed = {"time_based": 1, "runtime": f"{runtime_ms}ms"}
    cached = {"invalidate": 0, "pre_read": 1}
    # Past the page cache; where that cannot be, it is told to forget before the job begins.
    uncached = {"direct": 1} if place.direct else {"direct": 0, "invalidate": 1}
    return {
        **_metadata(place),
        "read_cached": {**_small_reads(place), **timed, **cached},
        "read_uncached": {**_small_reads(place), **timed, **uncached},
        "fsync": {**SYNCED_WRITES, **timed},
        "sequential_cached": {**SEQUENTIAL_READS, **timed, **cached},
        "sequential_uncached": {**SEQUENTIAL_READS, **timed, **uncached},
    }


def _metadata(place: Place) -> dict[str, Options]:
    new = {"nrfiles": METADATA_FILES, "filesize": "4k"}
    return {
        "create": {
            "ioengine": "filecreate",
            "create_on_open": 1,
            "fallocate": "none",
            "openfiles": 1,
            "filename_format": "created.$filenum",
            "unlink": 1,
            **new,
        },
        "stat": {"ioengine": "filestat", "openfiles": 1, **_files_of(place)},
        "delete": {
            "ioengine": "filedelete",
            "filename_format": "deleted.$filenum",
            "unlink": 0,  # that is what is measured
            **new,
        },
    }


def _small_reads(place: Place) -> Options:
    return {
        "ioengine": "psync",
        "rw": "randread",
        "bs": BLOCK_BYTES,
        "file_service_type": "random",
        "openfiles": len(place.files),
        **_files_of(place),
    }


def _files_of(place: Place) -> Options:
    return {"directory": place.directory / GET, "filename": ":".join(place.files)}


SYNCED_WRITES: Options = {
    "ioengine": "psync",
    "rw": "randwrite",
    "bs": BLOCK_BYTES,
    "filename": SYNCED,
    "size": OTHERS[SYNCED],
    "fsync": 1,
}
SEQUENTIAL_READS: Options = {
    "ioengine": "psync",
    "rw": "read",
    "bs": SEQUENTIAL_BLOCK_BYTES,
    "filename": LARGE,
    "size": OTHERS[LARGE],
}
