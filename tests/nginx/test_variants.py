"""The table of variants knows every file that was in its place before it was asked."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from nearcache.errors import NginxError
from nearcache.nginx.cachedir import inotify, variants
from nearcache.nginx.cachedir.directory import CacheDir
from nearcache.nginx.cachedir.inotify import Inotify
from nearcache.nginx.cachedir.layout import LAYOUTS
from nearcache.nginx.cachedir.variants import Place, VariantTable
from nearcache.nginx.keys.paths import name_of, path_of, variant_of

from .conftest import PATIENCE_S, Answer, Nginx, StartNginx, Upstream, every_nginx, wait_for
from .entries import made, made_variant

KEY = b"http://127.0.0.1:1/a"
LEVELS = (1, 2)
VARY = b"Accept-Encoding"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "cache"
    path.mkdir()
    return path


@pytest.fixture
def table(root: Path) -> Iterator[VariantTable]:
    """Warm."""
    with opened(root) as made:
        yield made


@contextmanager
def opened(root: Path) -> Iterator[VariantTable]:
    made = VariantTable(root)
    try:
        assert wait_for(lambda: made.is_warm)
        yield made
    finally:
        made.close()


def store(root: Path, key: bytes = KEY, levels: Sequence[int] = LEVELS, sent: str = "gzip") -> str:
    """A variant, put there as nginx does; its name."""
    name = variant_of(key, VARY, {"Accept-Encoding": sent})
    path = root / path_of(name, levels)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{name}.0000000001")
    temporary.write_bytes(made_variant(LAYOUTS[0], key, name, VARY))
    temporary.rename(path)
    return name


def ask(table: VariantTable, key: bytes = KEY, timeout_s: float = PATIENCE_S) -> list[Place] | None:
    with CacheDir(table.path) as directory:
        return table.variants_of([key], directory, time.monotonic() + timeout_s)


def names(table: VariantTable, key: bytes = KEY) -> set[str]:
    found = ask(table, key)
    assert found is not None
    return {name for _, name in found}


# -- beside a real nginx


CACHES = (
    "levels=1:2",
    "levels=2:2:1",
    "",
    "levels=1:2 use_temp_path=off",
)


@every_nginx
@pytest.mark.parametrize("options", CACHES)
def test_what_nginx_has_stored_is_known_at_once(
    start_nginx: StartNginx, upstream: Upstream, options: str
) -> None:
    upstream.script = lambda path, headers: Answer(b"x", headers={"Vary": "Accept-Encoding"})
    nginx = with_cache(start_nginx, upstream, options)
    with opened(nginx.cache) as table:
        for number in range(20):
            key = f"http://127.0.0.1:{upstream.port}/{number}".encode()
            for sent in ("gzip", "br", "zstd"):
                nginx.fill(f"/{number}", {"Accept-Encoding": sent})
            # The first is the main file.
            assert len(names(table, key)) == 2, number
        assert names(table, b"another") == set()


def with_cache(start_nginx: StartNginx, upstream: Upstream, options: str) -> Nginx:
    return start_nginx(
        http=f"proxy_cache_path {{cache}} {options} keys_zone=z:1m inactive=1h;",
        server=f"""
            location / {{
                proxy_pass http://127.0.0.1:{upstream.port};
                proxy_cache z;
                proxy_cache_valid 200 1h;
                add_header X-Cache $upstream_cache_status always;
            }}""",
    )


def test_temporary_files_may_lie_on_another_file_system(
    start_nginx: StartNginx, upstream: Upstream, tmp_path: Path
) -> None:
    elsewhere = Path("/dev/shm")
    if elsewhere.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is only one file system")
    upstream.script = lambda path, headers: Answer(b"x", headers={"Vary": "Accept-Encoding"})
    temporary = elsewhere / f"nearcache-test-{os.getpid()}"
    nginx = start_nginx(
        http="proxy_cache_path {cache} levels=1:2 keys_zone=z:1m;",
        server=f"""
            location / {{
                proxy_pass http://127.0.0.1:{upstream.port};
                proxy_temp_path {temporary};
                proxy_cache z;
                proxy_cache_valid 200 1h;
                add_header X-Cache $upstream_cache_status always;
            }}""",
    )
    try:
        with opened(nginx.cache) as table:
            for sent in ("gzip", "br"):
                nginx.fill("/a", {"Accept-Encoding": sent})
            assert len(names(table, f"http://127.0.0.1:{upstream.port}/a".encode())) == 1
    finally:
        nginx.stop()
        shutil.rmtree(temporary)


# -- whatever happens to files


def test_what_was_there_before_is_found(root: Path) -> None:
    wanted = {store(root), store(root, sent="br"), store(root, levels=()), store(root, sent="*")}
    store(root, b"another key")
    with opened(root) as table:
        assert names(table) == wanted
        assert len(ask(table) or ()) == 4, "one lies in two places"


def test_a_main_file_needs_no_row(root: Path, table: VariantTable) -> None:
    (root / name_of(KEY)).write_bytes(made(LAYOUTS[0], KEY))
    assert names(table) == set()


def test_what_goes_is_forgotten(root: Path, table: VariantTable) -> None:
    name = store(root)
    assert names(table) == {name}
    (root / path_of(name, LEVELS)).unlink()
    assert names(table) == set()


def test_directories_may_come_with_their_files(root: Path, table: VariantTable) -> None:
    """A directory is listed after it is watched: what came in between is found."""
    for number in range(200):
        key = b"key %d" % number
        name = store(root, key, (2, 2))
        assert names(table, key) == {name}


@pytest.mark.parametrize("how", ["copied", "linked", "moved"])
def test_files_may_come_in_other_ways(
    root: Path, table: VariantTable, tmp_path: Path, how: str
) -> None:
    name = store(tmp_path / "elsewhere", levels=(1,))
    level = tmp_path / "elsewhere" / name[-1]
    if how == "moved":
        level.rename(root / level.name)
    else:
        (root / level.name).mkdir()
        put = {"copied": shutil.copy, "linked": os.link}[how]
        put(level / name, root / level.name / name)
    assert names(table) == {name}


def test_a_file_is_found_where_its_directory_was_moved(root: Path, table: VariantTable) -> None:
    name = store(root, levels=(1,))
    assert names(table) == {name}
    other = "0" if name[-1] != "0" else "1"
    (root / name[-1]).rename(root / other)
    assert ask(table) == [(other, name)]


@pytest.mark.parametrize("keeps_it", [True, False])
def test_the_directory_may_be_another_one(root: Path, table: VariantTable, keeps_it: bool) -> None:
    store(root)
    if keeps_it:  # else its number may be given to the new one
        root.rename(root.with_name("old"))
    else:
        shutil.rmtree(root)
    root.mkdir()
    name = store(root, sent="br")
    assert names(table) == {name}


def test_what_is_no_entry_does_not_matter(root: Path, table: VariantTable) -> None:
    (root / "temp").mkdir()
    store(root / "temp")
    (root / "0000").mkdir()
    (root / ("a" * 32)).symlink_to("/etc/passwd")
    os.mkfifo(root / ("b" * 32))
    (root / ("c" * 32)).write_bytes(b"\nKEY: half")
    (root / "1").symlink_to("/")
    assert names(table) == set()


def test_after_lost_events_the_walk_is_made_anew(root: Path, table: VariantTable) -> None:
    queue = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    with table._changed:  # so nobody reads the queue
        for _ in range(queue // 3 + 100):
            (root / "a").touch()  # made, and closed
            (root / "a").unlink()
        name = store(root)
    assert names(table) == {name}


def test_a_file_that_cannot_be_read_may_be_a_variant(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, name: str) -> None:
        raise PermissionError(errno.EACCES, "no")

    store(root)
    read = variants.read_variant
    monkeypatch.setattr(variants, "read_variant", refuse)
    with opened(root) as table:
        with pytest.raises(NginxError, match="1 file or directory may not be read"):
            ask(table, b"anything")
        monkeypatch.setattr(variants, "read_variant", read)
        monkeypatch.setattr(variants, "UNREADABLE_S", 0.0)

        def heals() -> bool:
            try:
                return ask(table) != []
            except NginxError:
                return False

        assert wait_for(heals)


# -- without inotify


@pytest.fixture(params=["max_user_watches", "max_user_instances", "other hosts may write"])
def blind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """inotify is no help."""

    def refuse(number: int) -> Callable[..., int]:
        def act(*arguments: object) -> int:
            raise OSError(number, os.strerror(number))

        return act

    if request.param == "max_user_watches":
        monkeypatch.setattr(Inotify, "watch", refuse(errno.ENOSPC))
    elif request.param == "max_user_instances":
        monkeypatch.setattr(Inotify, "__init__", refuse(errno.EMFILE))
    else:
        monkeypatch.setattr(inotify, "is_shared", lambda directory: True)
    return str(request.param)


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When each walk began."""
    began: list[float] = []
    fill = variants._Picture.fill

    def counted(self: variants._Picture, *arguments: object) -> None:
        began.append(self.began)
        fill(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(variants._Picture, "fill", counted)
    return began


def test_without_inotify_each_question_has_a_walk_after_it(
    root: Path, blind: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = VariantTable(root)
    try:
        assert names(table) == set()
        for number in range(10):
            key = b"key %d" % number
            name = store(root, key)
            assert names(table, key) == {name}
        assert not table.is_warm
    finally:
        table.close()
    (said,) = caplog.messages
    assert blind in said, "said once"


def test_one_walk_is_for_all_who_wait(
    root: Path, monkeypatch: pytest.MonkeyPatch, walks: list[float]
) -> None:
    monkeypatch.setattr(inotify, "is_shared", lambda directory: True)
    name = store(root)
    table = VariantTable(root)
    try:
        assert wait_for(lambda: len(walks) == 1 and table._picture is not None)
        answers: list[set[str]] = []
        waiting = [threading.Thread(target=lambda: answers.append(names(table))) for _ in range(16)]
        read = variants.read_variant

        def hold(descriptor: int, name: str) -> object:
            """A walk goes on when all have asked."""
            assert wait_for(lambda: len(table._waiting) + len(answers) == 16)
            return read(descriptor, name)

        monkeypatch.setattr(variants, "read_variant", hold)
        for each in waiting:
            each.start()
        for each in waiting:
            each.join(PATIENCE_S)
        assert answers == [{name}] * 16
        assert len(walks) <= 3, "one before, one that had begun when some asked, one for these"
    finally:
        table.close()


def test_a_walk_that_nobody_waits_for_ends(
    root: Path, monkeypatch: pytest.MonkeyPatch, walks: list[float]
) -> None:
    monkeypatch.setattr(inotify, "is_shared", lambda directory: True)
    monkeypatch.setattr(variants, "SLICE_S", -1.0)  # each file is a slice
    for number in range(50):
        store(root, b"key %d" % number)
    read: list[str] = []

    def goes_meanwhile(descriptor: int, name: str) -> None:
        read.append(name)
        assert wait_for(lambda: not table._waiting)

    monkeypatch.setattr(variants, "read_variant", goes_meanwhile)
    table = VariantTable(root)
    try:
        with CacheDir(root) as directory:
            until = time.monotonic() + PATIENCE_S
            assert table.variants_of([KEY], directory, until, lambda: not read) is None
        before = len(walks)
        time.sleep(3 * variants.IDLE_S)
        assert (len(read), len(walks)) == (1, before), "nor does another one begin"
    finally:
        table.close()


def test_who_waits_is_told_when_the_time_is_over_or_it_is_closed(root: Path) -> None:
    table = VariantTable(root / "not-there")
    with CacheDir(root) as directory:
        assert table.variants_of([KEY], directory, time.monotonic()) is None
        closing = threading.Timer(0.01, table.close)
        closing.start()
        assert table.variants_of([KEY], directory, time.monotonic() + PATIENCE_S) is None
        closing.join()


def test_this_file_system_is_nobody_elses(root: Path) -> None:
    with CacheDir(root) as directory:
        assert not inotify.is_shared(directory.descriptor)
