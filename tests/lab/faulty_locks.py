"""Locks with one fault each. The lab must void every one of them."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from nearcache.lab.experiments.locks.arm import LockArm
from nearcache.lab.experiments.locks.lockers import LOCKERS, FileLock, Function, WithBlock


class RecordLock(WithBlock):
    """``lockf``: excludes other processes, and lets in every thread of this one."""

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        path = Path(self.options["directory"]) / name.replace(":", "_")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def proof(self) -> dict[str, str]:
        return {"lock": "lockf"}


class CheckThenSet(WithBlock):
    """Looks whether the file is there, then makes it: two may look before either makes it."""

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        path = Path(self.options["directory"]) / name.replace(":", "_")
        while path.exists():
            time.sleep(0.0005)
        time.sleep(0.0005)  # the gap, made wide enough to be met in a short test
        path.touch()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)

    def proof(self) -> dict[str, str]:
        return {"lock": "a file that is there"}


class DropsCalls(FileLock):
    """Excludes, but returns what it was given without calling the function."""

    def decorate(self, function: Function, name: str) -> Function:
        locked = super().decorate(function, name)
        return lambda *arguments: arguments[0] if arguments else locked()


FAULTY = {"lockf": RecordLock, "check-then-set": CheckThenSet, "drops-calls": DropsCalls}


class WithFaults(LockArm):
    """In a worker of its own: the real arm, with these among its lockers."""

    def begin(self) -> Mapping[str, str]:
        LOCKERS.update(FAULTY)
        return super().begin()
