"""Logs are found, put in order, unpacked and followed; what cannot be read is told."""

from __future__ import annotations

import gzip
import lzma
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard

from nearcache.errors import NginxError
from nearcache.nginx.logs.files import Logs
from nearcache.nginx.logs.follow import PAUSE_S, Follower, follow
from nearcache.nginx.logs.rotated import in_order_of_time, is_access_log
from nearcache.nginx.logs.unpack import CHUNK_BYTES

from .conftest import Nginx, wait_for

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda text: text,
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "xz": lambda text: lzma.compress(text, preset=0),
}


def everything(logs: Logs) -> bytes:
    return b"".join(logs.chunks())


def some_lines(count: int) -> bytes:
    chance = random.Random(1)
    return b"".join(b"%d /song/%d\n" % (n, chance.randrange(10**9)) for n in range(count))


@pytest.mark.parametrize("packing", PACKERS)
def test_a_log_is_unpacked_by_what_it_is_and_not_by_its_name(packing: str, tmp_path: Path) -> None:
    text = some_lines(60_000)
    path = tmp_path / "access.log.gz"  # whatever it is
    path.write_bytes(PACKERS[packing](text))
    logs = Logs([str(path)])
    chunks = list(logs.chunks())
    assert b"".join(chunks) == text
    assert max(map(len, chunks)) < 2 * CHUNK_BYTES
    assert logs.troubles == []
    assert logs.read_bytes == logs.total_bytes == path.stat().st_size


@pytest.mark.parametrize("packing", ["gzip", "zstd", "xz"])
def test_packed_logs_put_behind_each_other_are_one_log(packing: str, tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_bytes(PACKERS[packing](b"one\n") + PACKERS[packing](b"two\n"))
    assert everything(Logs([str(path)])) == b"one\ntwo\n"


def test_a_zstd_file_that_unpacks_to_very_much_is_read_in_bounded_pieces(tmp_path: Path) -> None:
    path = tmp_path / "access.log.zst"
    packed = zstandard.ZstdCompressor().compress(b"x" * 64 * CHUNK_BYTES)
    path.write_bytes(packed)
    assert len(packed) < CHUNK_BYTES / 10
    sizes = [len(chunk) for chunk in Logs([str(path)]).chunks()]
    assert sum(sizes) == 64 * CHUNK_BYTES + 1  # and a newline
    assert max(sizes) <= 18 * CHUNK_BYTES


@pytest.mark.parametrize("packing", ["gzip", "zstd", "xz"])
@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_log_is_told_and_the_others_are_read(
    packing: str, damage: str, tmp_path: Path
) -> None:
    packed = bytearray(PACKERS[packing](some_lines(20_000)))
    if damage == "cut":
        del packed[len(packed) // 2 :]
    else:
        for place in range(len(packed) // 2, len(packed) // 2 + 64):
            packed[place] ^= 0x55
    (tmp_path / "access.log.1").write_bytes(packed)
    (tmp_path / "access.log").write_bytes(b"the last\n")
    logs = Logs([str(tmp_path)])
    text = everything(logs)
    assert text.endswith(b"\nthe last\n"), "no line runs into the next file"
    (trouble,) = logs.troubles
    assert "access.log.1 is damaged" in trouble
    assert "what comes before is counted" in trouble
    if damage == "cut":
        assert text.startswith(b"0 /song/"), "what came before the damage is read"
        assert "breaks off" in trouble


def test_rotated_logs_are_read_from_the_oldest_to_the_newest_whatever_was_given_first(
    tmp_path: Path,
) -> None:
    for number in (1, 2, 10):
        text = b"rotated %d\n" % number
        (tmp_path / f"access.log.{number}.gz").write_bytes(gzip.compress(text))
    (tmp_path / "access.log").write_bytes(b"newest, unfinished")
    (tmp_path / "error.log").write_bytes(b"not this\n")
    (tmp_path / "deeper").mkdir()
    expected = b"rotated 10\nrotated 2\nrotated 1\nnewest, unfinished\n"
    logs = Logs([str(tmp_path)])
    assert everything(logs) == expected
    assert "error.log" in logs.notes[0]
    by_a_shell = sorted(str(path) for path in tmp_path.glob("access.log*"))
    assert everything(Logs(by_a_shell)) == expected
    twice = Logs([*by_a_shell, str(tmp_path / "access.log")])
    assert everything(twice) == expected
    assert "read once" in twice.notes[0]


def test_names_of_rotated_logs_tell_their_order() -> None:
    dated = ["a.log-20260102.gz", "a.log-20260101", "a.log"]
    assert in_order_of_time(dated) == ["a.log-20260101", "a.log-20260102.gz", "a.log"]
    two = ["a.log", "b.log.1", "a.log.1", "b.log"]
    assert in_order_of_time(two) == ["a.log.1", "a.log", "b.log.1", "b.log"]
    kept = ["a-2026-01-03.log", "a-2026-01-02.log.gz"]
    assert in_order_of_time(kept) == kept[::-1]
    for name in ("access.log", "access.log.2.gz", "site_access.log-20260101", "access_log.1"):
        assert is_access_log(name), name
    for name in ("error.log", "nginx.pid", "site.error.log.1", "notes.txt"):
        assert not is_access_log(name), name


def test_what_cannot_be_read_is_told_and_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "good.log").write_bytes(b"good\n")
    (tmp_path / "empty").mkdir()
    given = [tmp_path / "pipe.log", tmp_path / "gone.log", tmp_path / "empty", Path("/dev/null")]
    logs = Logs([*map(str, given), str(tmp_path / "good.log")])
    assert everything(logs) == b"good\n"
    told = dict(zip(given, logs.troubles, strict=False))
    assert {each.split(" ", 1)[1] for each in told.values()} == {
        "is a named pipe; give it on standard input: nearcache ... - <PIPE",
        "does not exist",
        "holds no access logs; name the files",
        "is no file",
    }
    with pytest.raises(NginxError, match="does not exist"):
        everything(Logs([str(tmp_path / "gone.log")]))


def test_a_log_that_vanishes_between_listing_and_reading_is_told(tmp_path: Path) -> None:
    for name in ("access.log", "access.log.1"):
        (tmp_path / name).write_bytes(name.encode())
    logs = Logs([str(tmp_path)])
    (tmp_path / "access.log.1").unlink()
    assert everything(logs) == b"access.log\n"
    assert logs.troubles == [f"{tmp_path}/access.log.1 does not exist"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file that others cannot read")
def test_a_log_that_may_not_be_read_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_bytes(b"x\n")
    path.chmod(0)
    script = (
        "import os, sys\nfrom nearcache.nginx.logs.files import Logs\n"
        "os.chdir(sys.argv[1])\nos.setresuid(65534, 65534, 65534)\n"
        "logs = Logs(['access.log', 'other.log'])\n"
        "print([*logs.chunks()], logs.troubles)\n"
    )
    (tmp_path / "other.log").write_bytes(b"other\n")
    tmp_path.chmod(0o755)
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True)
    assert b"access.log may not be read by this user; try sudo" in done.stdout, done.stderr
    assert b"other" in done.stdout


def test_the_beginning_can_be_looked_at_and_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "access.log.1").write_bytes(b"")
    (tmp_path / "access.log").write_bytes(b"first\nsecond\n")
    logs = Logs([str(tmp_path)])
    assert b"first\nsecond\n".startswith(logs.peek())
    assert logs.peek()
    assert everything(logs) == b"first\nsecond\n"


def piped(text: bytes, *names: str) -> str:
    """What a process reads that has ``text`` in standard input."""
    script = (
        "import sys\nfrom nearcache.nginx.logs.files import Logs\n"
        "sys.stdout.buffer.write(b''.join(Logs(sys.argv[1:]).chunks()))"
    )
    done = subprocess.run([sys.executable, "-c", script, *names], input=text, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.mark.parametrize("packing", PACKERS)
def test_standard_input_is_read_packed_or_not(packing: str) -> None:
    text = some_lines(20_000)
    assert piped(PACKERS[packing](text), "-") == text.decode()
    assert piped(PACKERS[packing](text), "/dev/fd/0") == text.decode()  # what <(command) becomes


# -- following


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[tuple[Path, Follower]]:
    path = tmp_path / "access.log"
    path.write_bytes(b"one\ntw")
    follower = Follower(str(path), os.open(path, os.O_RDONLY))
    yield path, follower
    follower.close()


def looks(follower: Follower, times: int = 3) -> bytes:
    return b"".join(follower.read() for _ in range(times))


def test_only_whole_lines_are_given_out(followed: tuple[Path, Follower]) -> None:
    path, follower = followed
    assert looks(follower) == b"one\n"
    with path.open("ab") as log:
        log.write(b"o\nthr")
    assert looks(follower) == b"two\n"


def test_lines_written_to_the_old_file_after_its_rotation_are_not_lost(
    followed: tuple[Path, Follower],
) -> None:
    path, follower = followed
    assert looks(follower) == b"one\n"
    with path.open("ab") as old:
        path.rename(path.with_suffix(".log.1"))
        assert looks(follower) == b"", "nothing is there yet"
        path.write_bytes(b"")  # logrotate's create, before nginx is told
        old.write(b"o\n")
        old.flush()
        assert looks(follower) == b"two\n"
        path.write_bytes(b"three\n")
        assert follower.read() == b"", "the new one has lines: look at the old once more"
        old.write(b"last\n")
        old.flush()
        assert looks(follower, 5) == b"last\nthree\n"
    assert follower.rotations == 1


def test_a_truncated_log_is_read_from_its_start(followed: tuple[Path, Follower]) -> None:
    path, follower = followed
    assert looks(follower) == b"one\n"
    with path.open("r+b") as log:
        log.truncate(0)
        log.write(b"new\n")
    assert looks(follower, 4) == b"tw\nnew\n", "what was begun will never end"
    assert follower.truncations == 1


COPIES: dict[str, Callable[[Path], Path]] = {
    "plain": lambda log: Path(shutil.copy(log, f"{log}.1")),
    "dated": lambda log: Path(shutil.copy(log, f"{log}-20261123")),
    "packed": lambda log: packed_copy(log),
}


def packed_copy(log: Path) -> Path:
    copy = log.with_name(log.name + ".1.gz")
    copy.write_bytes(gzip.compress(log.read_bytes()))
    return copy


def cut(path: Path, lines: bytes, copy: Callable[[Path], object] | None) -> None:
    """As copytruncate: what was written since the last look is in the copy only."""
    with path.open("ab") as log:
        log.write(lines)
        log.flush()
        if copy:
            copy(path)
        os.truncate(path, 0)


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("grown", [False, True], ids=["shorter", "longer than it was"])
def test_what_was_not_read_yet_of_a_log_that_is_cut_is_read_from_its_copy(
    followed: tuple[Path, Follower], how: str, grown: bool
) -> None:
    path, follower = followed
    assert looks(follower) == b"one\n"
    path.with_name("access.log.7").write_bytes(b"another old one, and longer than that\n" * 9)
    missed = b"o\n" + b"".join(b"line %d\n" % number for number in range(400))
    cut(path, missed, COPIES[how])
    news = b"new\n" * (2000 if grown else 1)
    with path.open("ab") as log:
        log.write(news)
    assert looks(follower, 9) == b"tw" + missed + news
    assert (follower.truncations, follower.without_copy, follower.rotations) == (1, 0, 0)


def test_that_no_copy_is_beside_a_log_that_was_cut_is_told(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_bytes(b"one\n")
    logs = Logs([str(path)], following=True)
    stream = logs.chunks()
    assert next(stream) == b"one\n"
    path.with_name("access.log.1").write_bytes(b"two\nthree\n")
    cut(path, b"lost\n", None)
    path.write_bytes(b"longer than it was before\n")
    logs.pause = lambda seconds: None
    assert next(chunk for chunk in stream if chunk) == b"longer than it was before\n"
    assert (logs.truncations, logs.without_copy) == (1, 1)
    assert "no copy of what was cut lies beside it" in logs.changes()[0]
    stream.close()


def test_lines_of_a_real_nginx_are_counted_once_through_copytruncate(
    proxy: Callable[[str], Nginx],
) -> None:
    nginx = proxy("")
    nginx.get("/before")
    assert wait_for(lambda: b"/before" in nginx.log.read_bytes())
    logs = Logs([str(nginx.log)], following=True)
    stream = logs.chunks()
    assert b"/before" in next(stream)
    for number in range(20):
        nginx.get(f"/between/{number}")
    assert wait_for(lambda: nginx.log.read_bytes().count(b"\n") == 21)
    cut(nginx.log, b"", COPIES["plain"])
    nginx.get("/after")
    assert wait_for(lambda: b"/after" in nginx.log.read_bytes())
    seen = b""
    while b"/after" not in seen:
        seen += next(stream)
    assert [seen.count(b"/between/%d " % number) for number in range(20)] == [1] * 20
    assert seen.count(b"\n") == 21
    assert (logs.rotations, logs.truncations, logs.without_copy) == (0, 1, 0)
    stream.close()


def test_a_file_that_was_replaced_twice_while_empty_is_found(
    followed: tuple[Path, Follower],
) -> None:
    path, follower = followed
    looks(follower)
    for number in (1, 2):
        path.rename(path.with_suffix(f".log.{number}"))
        path.write_bytes(b"")
        assert looks(follower) == b""
    path.write_bytes(b"now\n")
    assert looks(follower, 4) == b"tw\nnow\n"


def test_a_deleted_log_is_waited_for(followed: tuple[Path, Follower]) -> None:
    path, follower = followed
    looks(follower)
    path.unlink()
    assert looks(follower) == b""
    path.write_bytes(b"again\n")
    assert looks(follower, 4) == b"tw\nagain\n"


def test_following_pauses_when_nothing_is_new_and_never_otherwise(tmp_path: Path) -> None:
    paths = [tmp_path / "a.log", tmp_path / "b.log"]
    for path in paths:
        path.write_bytes(b"")
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        for path in paths:
            with path.open("ab") as log:
                log.write(path.name.encode() + b"\n")

    stream = follow([Follower(str(p), os.open(p, os.O_RDONLY)) for p in paths], pause)
    assert [next(stream) for _ in range(5)] == [b"", b"a.log\n", b"b.log\n", b"", b"a.log\n"]
    assert pauses == [PAUSE_S, PAUSE_S]
    stream.close()


def test_a_real_rotation_by_nginx_loses_no_line(proxy: Callable[[str], Nginx]) -> None:
    nginx = proxy("")
    nginx.get("/before")
    assert wait_for(lambda: b"/before" in nginx.log.read_bytes())
    old = nginx.log.with_suffix(".log.1")
    logs = Logs([str(nginx.log)], following=True)
    stream = logs.chunks()
    assert b"/before" in next(stream)
    nginx.log.rename(old)
    nginx.get("/between")  # goes to the old file: nginx still has it open
    nginx.reopen(nginx.log)
    nginx.get("/after")
    assert wait_for(lambda: b"/after" in nginx.log.read_bytes())
    seen = b""
    while b"/after" not in seen:
        seen += next(stream)
    assert seen.count(b"\n") == 2
    assert b"/between" in seen
    assert (logs.rotations, logs.truncations) == (1, 0)
    assert "was rotated 1 time" in logs.changes()[0]
    stream.close()
