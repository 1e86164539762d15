"""``lab record``: what a recording says, traces of others, and what recording costs."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from nearcache.backends import SharedMemoryCache
from nearcache.errors import LabError
from nearcache.lab.own.recordings import portrait, reuse_distances
from nearcache.lab.own.traces import Imported, import_trace
from nearcache.recording.trace import Recording, read
from tests.recording.test_recording import make

from .test_cli import lab, lab_here


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """200 users asked for by how popular they are, one page, ten counters."""
    path = tmp_path / "site.trace"
    cache = make(path)
    for number in range(200):
        for _ in range(1 + 400 // (1 + number)):
            cache.get_or_set(f"user:{number}", lambda: "x" * 300, 60)
    cache.set("page:1", "<p>" * 2000, None)
    cache.get_many(["page:1", "page:2"])
    for number in range(10):
        cache.get(f"once:{number}")
    cache.recorder.flush()
    return path


def imported(source: Path, form: str, out: Path, most: int = 1000) -> tuple[Imported, Recording]:
    done = import_trace(source, form, out, most)
    return done, read([out])


def test_a_portrait_has_hits_popularity_lifetimes_and_the_working_set(recording: Path) -> None:
    found = portrait(read([recording]))
    users = found.prefixes["user"]
    assert users.misses == 200
    assert users.hits == sum(400 // (1 + number) for number in range(200))
    assert found.operations["get_many"].calls == 2
    keys, size = found.working_set
    assert keys == 212
    assert size == 200 * 300 + 6000
    assert found.skew is not None
    assert 0.7 < found.skew < 1.1
    assert found.one_hit_share == pytest.approx(12 / 212)
    assert found.lifetimes["under 1 h"] > 200
    assert found.lifetimes["never expires"] == 1
    assert (found.top_share(0.01) or 0) > 0.2


def test_a_sample_of_keys_is_scaled_up_to_the_site(recording: Path) -> None:
    found = read([recording])
    found.share = 0.1
    assert portrait(found).working_set[0] == 2120


def test_reuse_distances_are_bytes_of_the_keys_between() -> None:
    reads = [(1, 10), (2, 20), (1, 10), (3, 30), (2, 20), (2, 20), (1, 10)]
    assert reuse_distances(reads) == [None, None, 30, None, 60, 20, 60]


def test_reuse_distances_are_those_of_a_plain_stack() -> None:
    import random

    rng = random.Random(1)
    sizes = {key: rng.randint(1, 50) for key in range(40)}
    reads = [(key, sizes[key]) for key in rng.choices(range(40), k=600)]
    stack: list[int] = []
    for (key, _), distance in zip(reads, reuse_distances(reads), strict=True):
        if key in stack:
            place = stack.index(key)
            assert distance == sum(sizes[each] for each in stack[: place + 1])
            stack.remove(key)
        else:
            assert distance is None
        stack.insert(0, key)


def test_the_curve_of_hits_rises_to_what_an_endless_cache_gets(recording: Path) -> None:
    curve = portrait(read([recording])).curve
    ratios = [ratio for _, _, ratio in curve]
    assert ratios == sorted(ratios)
    assert ratios[-1] > 0.8
    assert curve[-1][1] == 200 * 300 + 6000


def test_show_prints_it_all(recording: Path) -> None:
    result = lab_here("record", "show", str(recording))
    assert result.returncode == 0, result.stderr
    for part in ("get_or_set", "user", "Working set", "most popular 1 %", "Lifetimes", "Hits of"):
        assert part in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_show_says_what_is_torn(recording: Path) -> None:
    data = recording.read_bytes()
    recording.write_bytes(data + data[: len(data) // 2])
    result = lab_here("record", "show", str(recording))
    assert result.returncode == 0
    assert "1 blocks torn" in result.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("show /no/such/file", "cannot be read"),
        ("show {tmp}/text", "is no recording"),
        (
            "import {tmp}/text --form combined --out {tmp}/out",
            "is read as combined",
        ),
        ("import {tmp}/none --form oracle --out {tmp}/out", "cannot be read"),
        ("import {tmp}/log --form combined --out {tmp}/text", "is there already"),
        ("import {tmp}/log --form what --out {tmp}/out", "is not one of"),
        ("cost --settings no.such", "does not import"),
    ],
)
def test_a_bad_request_is_one_clear_line(words: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello\n")
    (tmp_path / "log").write_text(LINE)
    result = lab_here("record", *words.format(tmp=tmp_path).split())
    assert result.returncode == 2
    assert said in result.stderr.strip().splitlines()[-1]
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "out").exists()


LINE = (
    '1.2.3.4 - - [17/May/2015:10:05:03 +0000] "GET /images/a.png HTTP/1.1" 200 203 "-" "Mozilla"\n'
)


def test_an_access_log_becomes_reads_and_fills(tmp_path: Path) -> None:
    source = tmp_path / "log"
    other = LINE.replace("a.png", "b.png").replace("10:05:03", "10:05:02")
    source.write_text(LINE + LINE + other + LINE.replace("GET", "POST") + "nonsense\n")
    done, found = imported(source, "combined", tmp_path / "out")
    assert done.skipped == {"no GET that was answered 200": 2}
    operations = [(r.operation, r.hit, r.miss, r.prefix) for r in found]
    assert operations == [
        ("get", False, True, "images"), ("set", False, False, "images"),
        ("get", False, True, "images"), ("set", False, False, "images"),
        ("get", True, False, "images"),
    ]  # fmt: skip
    assert [r.size for r in found if r.operation == "set"] == [203, 203]
    assert b"a.png" not in (tmp_path / "out").read_bytes()


def test_twitter_s_operations_and_lifetimes_are_kept(tmp_path: Path) -> None:
    source = tmp_path / "t.csv"
    source.write_text(
        "0,k1,2,100,1,get,0\n0,k1,2,100,1,set,60\n1,k1,2,100,1,get,0\n"
        "2,k2,2,8,1,incr,0\n2,k1,2,0,1,delete,0\n3,k3,2,5,1,prepend,0\nbroken\n"
    )
    done, found = imported(source, "twitter", tmp_path / "out")
    assert done.skipped == {"operation prepend": 1, "lines that are not of this form": 1}
    seen = [(r.operation, r.hit, r.miss) for r in found]
    assert seen == [
        ("get", False, True), ("set", False, False), ("set", False, False), ("get", True, False),
        ("incr", False, True), ("delete", False, False),
    ]  # fmt: skip
    assert [r.ttl_ms for r in found if r.operation == "set"] == [None, 60_000]


def test_oracle_s_requests_are_read_and_a_compressed_one_is_told(tmp_path: Path) -> None:
    source = tmp_path / "o.bin"
    pack = struct.Struct("<IQIq").pack
    source.write_bytes(pack(5, 77, 4096, -1) + pack(6, 77, 4096, -1) + b"torn")
    done, found = imported(source, "oracle", tmp_path / "out")
    assert done.skipped == {"torn request at the end": 1}
    assert [r.operation for r in found] == ["get", "set", "get"]
    source.write_bytes(b"\x28\xb5\x2f\xfdxxxx")
    with pytest.raises(LabError, match="unpack it first"):
        import_trace(source, "oracle", tmp_path / "other", 10)


def test_requests_of_one_second_are_spread_over_it_in_their_order(tmp_path: Path) -> None:
    source = tmp_path / "o.bin"
    pack = struct.Struct("<IQIq").pack
    source.write_bytes(b"".join(pack(9, 7, 10, -1) for _ in range(4)))
    _, found = imported(source, "oracle", tmp_path / "out")
    times = [r.time_ns for r in found if r.operation == "get"]
    assert times == [9_000_000_000 + part * 250_000_000 for part in range(4)]


def test_the_cost_of_recording_is_printed_for_both_kinds_of_calls() -> None:
    result = lab("record", "cost", "--share", "0.5")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert lines[0] == "ns per call"
    assert "key in sample" in lines[1]
    assert [line.split()[0] for line in lines[2:4]] == ["set", "get"]


def test_the_cost_is_measured_on_a_cache_of_the_user_s_and_leaves_nothing_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    entry = {"BACKEND": "nearcache.backends.SharedMemoryCache", "LOCATION": str(tmp_path / "c")}
    (tmp_path / "ownsettings.py").write_text(
        f"SECRET_KEY = 'x'\nCACHES = {{'default': {entry!r}}}\n"
    )
    monkeypatch.chdir(tmp_path)
    result = lab("record", "cost", "--settings", "ownsettings")
    assert result.returncode == 0, result.stderr
    cache = SharedMemoryCache(entry["LOCATION"], {})
    assert list(cache.iter_keys("*")) == []
