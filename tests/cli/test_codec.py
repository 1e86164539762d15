"""``nearcache codec``, end to end."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from nearcache.backends import SharedMemoryCache
from tests.cli.test_shm import refused, run
from tests.codec.test_dictionaries import records


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "values.jsonl"
    path.write_bytes(b"\n".join(records(400)))
    return path


def pasted(stdout: str) -> dict[str, object]:
    """The OPTIONS that the last line says to paste, read as Python."""
    line = stdout.splitlines()[-1]
    assert line.startswith('"OPTIONS": ')
    options: dict[str, object] = ast.literal_eval(line.removeprefix('"OPTIONS": '))
    return options


def test_train_from_lines_ends_in_options_that_work(lines: Path, private_path: Path) -> None:
    out = private_path / "values.dict"
    done = run("codec", "train", str(lines), "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "below 256 B" in done.stdout
    assert "all" in done.stdout
    options = pasted(done.stdout)
    assert options == {"compressor": "zstd", "compress_dictionary": str(out)}
    cache = SharedMemoryCache(str(private_path / "c"), {"OPTIONS": {"size": "4MB", **options}})
    value = json.loads(records(1, seed=9)[0])
    cache.set("k", value)
    assert cache.get("k") == value
    raw = cache.engine.get(cache._raw_key("k", None))
    assert raw is not None
    assert raw[0] == 0xE2


def test_train_from_a_directory(tmp_path: Path) -> None:
    (tmp_path / "pages" / "deep").mkdir(parents=True)
    for number, record in enumerate(records(300)):
        (tmp_path / "pages" / "deep" / str(number)).write_bytes(record)
    done = run("codec", "train", str(tmp_path / "pages"), "--out", str(tmp_path / "x"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "x").read_bytes()[:4] == b"\x37\xa4\x30\xec"


def test_train_and_compare_from_a_live_cache(private_path: Path, tmp_path: Path) -> None:
    location = str(private_path / "pages")
    cache = SharedMemoryCache(location, {"OPTIONS": {"size": "4MB"}})
    cache.set_many({str(at): json.loads(record) for at, record in enumerate(records(300))})
    cache.set("counter", 5)
    (tmp_path / "site_settings.py").write_text(
        f"""
CACHES = {{
    "default": {{"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}},
    "pages": {{
        "BACKEND": "nearcache.backends.SharedMemoryCache",
        "LOCATION": {location!r},
        "OPTIONS": {{"serializer": "msgpack"}},
    }},
}}
"""
    )
    where = {"PYTHONPATH": str(tmp_path)}
    which = ["--settings", "site_settings", "--alias"]
    done = run("codec", "train", *which, "pages", "--out", str(tmp_path / "x"), **where)
    assert done.returncode == 0, done.stderr
    assert pasted(done.stdout)["serializer"] == "msgpack"
    only = ["--serializers", "msgpack,json", "--compressors", "zlib", "--samples", "20"]
    done = run("codec", "compare", *which, "pages", *only, "--json", **where)
    rows = json.loads(done.stdout)
    assert [(row["serializer"], row["taken"], row["same"]) for row in rows] == [
        ("msgpack", 20, 20),
        ("json", 20, 20),
    ]
    wrong = run("codec", "train", *which, "default", "--out", str(tmp_path / "y"), **where)
    assert "lists no keys" in refused(wrong)


def test_compare_shows_every_combination(lines: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "x")
    assert run("codec", "train", str(lines), "--out", out).returncode == 0
    done = run("codec", "compare", str(lines), "--samples", "20", "--dictionary", out)
    assert done.returncode == 0, done.stderr
    found = {tuple(line.split()[:2]) for line in done.stdout.splitlines()[1:-1]}
    assert len(found) == 6 * 8
    assert {("auto", "none"), ("msgpack", "zstd+dict"), ("exact", "brotli")} <= found


def test_values_that_do_not_fit_are_counted(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\x00")
    (tmp_path / "text").write_text("text")
    done = run("codec", "compare", str(tmp_path), "--compressors", "none", "--json")
    taken = {row["serializer"]: row["taken"] for row in json.loads(done.stdout)}
    assert taken == {"auto": 2, "pickle": 2, "json": 1, "ujson": 1, "msgpack": 2, "exact": 2}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["codec", "train", "--out", "x"], "give SOURCE, or --settings and --alias"),
        (["codec", "train", "/no/such", "--out", "x"], "does not exist"),
        (["codec", "train", "SOURCE", "--out", "/no/such/x"], "/no/such/x: No such file"),
        (["codec", "train", "SOURCE", "--out", "x", "--samples", "50"], "50 samples are too few"),
        (["codec", "train", "SOURCE", "--out", "x", "--size", "1"], "it must be from 1 KiB"),
        (["codec", "train", "SOURCE", "--out", "SOURCE"], "--force overwrites it"),
        (["codec", "train", "SOURCE", "--alias", "a", "--out", "x"], "not both"),
        (["codec", "compare", "SOURCE", "--compressors", "zip"], "'zip' is not one of none, zlib"),
        (["codec", "compare", "EMPTY"], "has no values"),
        (["codec", "compare", "BROKEN"], "line 2 is no JSON"),
    ],
    ids=" ".join,
)
def test_wrong_input_is_one_line_and_exit_code_2(
    arguments: list[str], message: str, lines: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "broken").write_text("1\nx")
    names = {"SOURCE": lines, "EMPTY": tmp_path / "empty", "BROKEN": tmp_path / "broken"}
    given = [str(names.get(each, each)) for each in arguments]
    assert message in refused(run(*given))
    assert not Path("x").exists()
