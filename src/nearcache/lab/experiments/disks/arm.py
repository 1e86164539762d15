"""A directory on some disk, under the load of a file cache: one fio run is one round.

Works in a new private directory inside the path that was given, never on files that are
there, and refuses a path that looks like a cache in use. It takes at most ``MOST_BYTES``, and
nothing if the disk has less than ``ROOM`` times that to spare. All of it goes when the run
ends, also when it is interrupted; what an outright kill leaves goes with the next run.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from nearcache.lab.base.arm import Arm
from nearcache.lab.base.directories import (
    Mount,
    disk_parent,
    memory_parent,
    mount_of,
    private_directory,
)
from nearcache.lab.base.messages import Phase, Setup, Visit, Visited
from nearcache.lab.experiments.disks import fio
from nearcache.lab.experiments.disks.files import get_files, lay_out, looks_live, put_files
from nearcache.lab.experiments.disks.fio import Place, Runner, find_fio, job_file, phase_of

MOST_BYTES = 100 << 20
ROOM = 3
MIB = 1 << 20


class UnfitPath(Exception):
    """This path cannot or must not be measured; the message says why, and what could be."""


class DisksArm(Arm):
    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rng = random.Random(f"{setup.seed}:{setup.namespace}")
        self.directory: Path | None = None
        self.names: list[str] = []
        self.place: Any = None
        self.runner: Any = None
        self.facts: dict[str, str] = {}

    def begin(self) -> Mapping[str, str]:
        binary, version = find_fio()
        parent = path_of(self.candidate.options)
        demand_fit(parent)
        signal.signal(signal.SIGTERM, self._leave)
        self.runner = Runner(binary, self.setup.cpu)
        self.directory = private_directory(parent)
        self.names = lay_out(self.directory, self.setup.seed)
        mount = mount_of(self.directory)
        self.place = Place(self.directory, self.names, can_be_direct(self.directory))
        self.facts = describe(mount, self.place.direct)
        os.sched_setaffinity(0, {self.setup.cpu})
        return {"fio": version, "path": str(parent), "mount": str(mount)}

    def visit(self, visit: Visit) -> Visited:
        assert self.directory is not None
        asked = [name for name in fio.OPERATIONS if name in visit.operations]
        if visit.learning:
            asked = []  # all is laid out, and every run of fio is a new process: nothing warms up
        # In another order every time: what one leaves in the disk's own cache meets another.
        self.rng.shuffle(asked)
        phases: list[Phase] = []
        if asked:
            seed = self.rng.randrange(2**31)
            text = job_file(self.place, asked, visit.phase_ns // 1_000_000, seed)
            phases += [phase_of(job) for job in self.runner.run(text, self.directory)]
        loops = {"get_file": get_files, "put_file": put_files}
        for name, loop in loops.items():
            if name in visit.operations:
                phases.append(loop(self.directory, self.names, self.rng, visit.phase_ns))
        return Visited(phases=phases, facts=self.facts)

    def end(self) -> None:
        if self.runner is not None:
            self.runner.stop()
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _leave(self, number: int, frame: FrameType | None) -> None:
        self.end()
        sys.stderr.write(f"ended by signal {number}\n")
        os._exit(128 + number)


def path_of(options: Mapping[str, Any]) -> Path:
    """The directory a candidate stands for: one that was named, or one of the usual two."""
    if options["path"] == "memory":
        return memory_parent()
    return disk_parent() if options["path"] == "disk" else Path(options["path"])


def demand_fit(parent: Path) -> None:
    """Raises UnfitPath for what is no directory, is full, or is in use as a cache."""
    if not parent.is_dir():
        raise UnfitPath(f"{parent} is not a directory")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise UnfitPath(f"{parent} cannot be written to")
    if live := looks_live(parent):
        raise UnfitPath(
            f"{parent} looks like a cache in use ({live}); give an empty directory beside it"
        )
    free = shutil.disk_usage(parent).free
    if free < ROOM * MOST_BYTES:
        wanted = ROOM * MOST_BYTES // MIB
        raise UnfitPath(f"{parent} has {free // MIB} MiB free, and {wanted} MiB are wanted")


def can_be_direct(directory: Path) -> bool:
    """Does this file system take O_DIRECT, and is there a disk behind it that could answer?"""
    if mount_of(directory).in_memory:
        return False
    probe = directory / "direct"
    try:
        probe.write_bytes(b"\0" * fio.BLOCK_BYTES)
        os.close(os.open(probe, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        return False
    finally:
        probe.unlink(missing_ok=True)
    return True


def describe(mount: Mount, direct: bool) -> dict[str, str]:
    """Where these numbers come from."""
    if mount.in_memory:
        uncached = "not possible: the file system is memory"
    elif direct:
        uncached = "O_DIRECT"
    else:
        uncached = "the page cache is told to forget (fadvise); O_DIRECT is not possible here"
    device = f"{os.major(mount.device)}:{os.minor(mount.device)}"
    return {
        "file system": mount.filesystem,
        "mounted": f"{mount.source} at {mount.point} ({mount.options})",
        "device": f"{device}{_about_device(device)}",
        "uncached reads": uncached,
    }


def _about_device(device: str) -> str:
    """Its model and whether it turns, as far as the kernel knows."""
    block = Path("/sys/dev/block") / device
    if (block / "partition").exists():
        block = block.resolve().parent
    said = []
    for file, words in (("device/model", "{}"), ("queue/rotational", "rotational={}")):
        try:
            said.append(words.format((block / file).read_text().strip()))
        except OSError:
            continue  # virtual devices have neither
    return f", {', '.join(said)}" if said else ""
