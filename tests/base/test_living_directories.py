"""Directories of a process: there while it lives, gone when the next one of its kind is made."""

from __future__ import annotations

import errno
import fcntl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nearcache.base.living_directories import living_directory

MAKES = """
import os, sys, time
from pathlib import Path
from nearcache.base.living_directories import living_directory
print(living_directory("kind-", Path(sys.argv[1]), "name-"), flush=True)
if sys.argv[2:] == ["forks"] and os.fork():
    os._exit(0)
sys.stdin.read()
"""


@pytest.mark.parametrize("forks", [False, True])
def test_it_is_there_as_long_as_its_maker_or_a_child_of_it(
    tmp_path: Path, forks: bool, eventually: Callable[..., None]
) -> None:
    command = [sys.executable, "-c", MAKES, str(tmp_path), *(["forks"] if forks else [])]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        made = Path(process.stdout.readline().strip())
        (made / "file").write_text("")
        if forks:
            process.wait()
        assert made.name.startswith("kind-name-")
        assert made.stat().st_mode & 0o777 == 0o700
        for _ in range(2):
            living_directory("kind-", tmp_path)
            assert made.is_dir()
        if not forks:
            process.kill()
    # The child reads the end of its input, too.
    eventually(lambda: living_directory("kind-", tmp_path) and not made.exists())


def test_what_is_no_directory_of_ours_stays(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "kind-link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "kind-file").write_text("")
    (tmp_path / "other-directory").mkdir()
    living_directory("kind-", tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert {"elsewhere", "kind-link", "kind-file", "other-directory"} <= left


def test_on_a_file_system_without_locks_one_is_made_and_none_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(descriptor: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    made = [living_directory("kind-", tmp_path) for _ in range(2)]
    assert all(each.is_dir() for each in made)


def test_one_that_another_process_takes_for_dead_while_it_is_made_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers of xdist begin at once, and each removes what no living process has."""
    lock, others = fcntl.flock, [lambda: living_directory("kind-", tmp_path)]

    def flock(descriptor: int, kind: int) -> None:
        if kind == fcntl.LOCK_SH and others:
            others.pop()()  # in the moment between making the directory and locking it
        lock(descriptor, kind)

    monkeypatch.setattr(fcntl, "flock", flock)
    made = living_directory("kind-", tmp_path)
    assert not others
    assert made.is_dir()
    living_directory("kind-", tmp_path)
    assert made.is_dir()
    assert len(list(tmp_path.iterdir())) == 3
