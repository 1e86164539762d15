"""Which of two disks is the better place for a cache directory, and at what?

Seed 004 (2013) compared EBS with an instance store: 9.9 times by ``hdparm -t``, "not much" by one
run of IOzone, whose comparator printed "SAME" wherever a t-test over pooled block sizes did
not object. Neither is what a cache does. hdparm reads one large file from end to end; IOzone's
small files come from the page cache, which is memory on every disk; and a cache directory is
many small files that are created, looked up, opened, replaced and deleted.

Here fio (3.33 or newer) does each of these by itself, on files of a cache's sizes: create, stat and
delete, random reads of 4 kB with and without the page cache, writes with fsync. ``get_file`` and
``put_file`` are what a file cache does around its reads and writes. Sequential reads are there
too, cached and not, so that one sees what they would have promised. One fio run is one round;
paths are compared round by round with intervals, operation by operation, and nothing is pooled.

The two places are shared memory and a disk of this host, or those given with ``--path``, each
in a new private directory of at most 100 MiB, beside and never among files in use. What
they lie on (file system, device, options) is read from the kernel: two paths on one device are
called that.
"""

from __future__ import annotations

from nearcache.lab.base.model import DIFFERS, Candidate, Claim, Experiment, Operation, Plan

ON_ANOTHER_DEVICE = (
    "these are other devices: the article compared EBS with an instance store; "
    "give yours with --path"
)


def _place(name: str, title: str) -> Candidate:
    return Candidate(
        name=name,
        title=title,
        family="disk",
        reach="host",
        options={"path": name},
        recommendable=False,
    )


DISKS = Experiment(
    name="disks",
    question="Which of these directories is the better place for files of a cache, and at what?",
    candidates=(
        _place("memory", "shared memory"),
        _place("disk", "a directory on a disk (TMPDIR chooses it)"),
    ),
    payloads={"files": "256 files of 4 to 128 kB, most of them small"},
    operations=(
        Operation(name="get_file", title="open, read whole, close"),
        Operation(name="put_file", title="write beside, rename over the old one, no fsync"),
        Operation(name="create", title="create an empty file"),
        Operation(name="stat", title="stat a file"),
        Operation(name="delete", title="delete a file"),
        Operation(name="read_cached", title="read 4 kB at random, page cache warm"),
        Operation(name="read_uncached", title="read 4 kB at random, past the page cache"),
        Operation(name="fsync", title="fsync after a write of 4 kB"),
        Operation(name="sequential_cached", title="read the next MiB, cached (hdparm -T)"),
        Operation(name="sequential_uncached", title="read the next MiB, uncached (hdparm -t)"),
    ),
    baseline="memory",
    twins=("disk", "memory"),
    arm="nearcache.lab.experiments.disks.arm.DisksArm",
    plans={
        "full": Plan(repetitions=3, rounds=8, phase_ms=200, time_limit_s=200),
        # fio takes a third of a second for a job that lasts a tenth, so quick has fewer.
        "quick": Plan(
            repetitions=1,  # every fio run is a fresh process anyway
            rounds=7,
            phase_ms=80,
            time_limit_s=42,
            operations=(
                "get_file",
                "put_file",
                "create",
                "read_cached",
                "read_uncached",
                "fsync",
                "sequential_uncached",
            ),
        ),
    },
    claims=(
        Claim(
            article="004",
            text="one disk of a rented server reads 9.9 times as fast as the other, in sequence",
            ratio=638.0 / 64.7,
            slow="disk",
            fast="memory",
            operation="sequential_uncached",
            payload="files",
            why=ON_ANOTHER_DEVICE,
            explains=DIFFERS,
        ),
        Claim(
            article="004",
            text="a memory file system is fastest, but not twice as fast at reads (IOzone)",
            ratio=2.0,
            slow="disk",
            fast="memory",
            operation="read_cached",
            payload="files",
            why="what fits into the page cache is read from memory, on whatever disk it lies",
            explains=("same", "smaller"),
        ),
    ),
    cannot_answer=(
        "Longer than this run: burst credits of cloud disks and caches in a disk run out later.",
        "More than fits into memory: a cache directory of hundreds of gigabytes misses more often.",
        "Deep queues: one request at a time is measured, as one worker of a web server makes them.",
        "What your application gains: it gains what it waits for files, and no more.",
    ),
    views="nearcache.lab.experiments.disks.findings",
)
