"""Where the file of a run is kept, so that no two runs collide and no run is lost.

The name is reserved by creating the file; a second lab in the same second gets another.
What cannot be written where it was asked for, because the disk is full by now or the
directory is gone, goes to a private directory for temporary files, and the path says so.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

from nearcache.errors import LabError
from nearcache.lab.results.sample import Sample

RESCUE = "nearcache-lab-rescued-"
MOST_NAMES = 1000


class RunFile:
    """The file of one run."""

    def __init__(self, directory: Path, stem: str) -> None:
        self.path = _reserved(directory, stem)
        self.problem = ""  # why a checkpoint could not be written

    def checkpoint(self, sample: Sample) -> None:
        """Write what there is so far. A failure is tried again at the end."""
        if not sample.has_numbers:
            return
        try:
            self._write(sample, self.path)
        except OSError as error:
            self.problem = _said(error)

    def keep(self, sample: Sample) -> Path:
        """Write the whole run, here or where there is room. Raises LabError if nowhere."""
        try:
            self._write(sample, self.path)
            return self.path
        except OSError as error:
            self.problem = _said(error)
        try:
            rescue = Path(tempfile.mkdtemp(prefix=RESCUE)) / self.path.name
            self._write(sample, rescue)
            return rescue
        except OSError as error:
            raise LabError(
                f"the run could not be kept: {self.path.parent} ({self.problem}), "
                f"{tempfile.gettempdir()} ({_said(error)}); free some space and measure again"
            ) from error

    def release(self) -> None:
        """Give the name back if nothing was written under it."""
        with suppress(OSError):
            if self.path.stat().st_size == 0:
                self.path.unlink()

    def _write(self, sample: Sample, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            sample.write(path)
        except OSError:
            with suppress(OSError):
                path.with_suffix(".tmp").unlink()
            raise


def _reserved(directory: Path, stem: str) -> Path:
    """A new, empty file. Raises LabError if there can be none."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for number in range(1, MOST_NAMES):
            path = directory / (f"{stem}.json" if number == 1 else f"{stem}-{number}.json")
            with suppress(FileExistsError):
                path.touch(exist_ok=False)
                return path
    except OSError as error:
        raise LabError(f"cannot write to {directory} ({_said(error)}); give --out DIR") from error
    raise LabError(f"{directory} has {MOST_NAMES} runs named {stem}; give another --out DIR")


def _said(error: OSError) -> str:
    return error.strerror or type(error).__name__
