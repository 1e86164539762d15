"""``nearcache shm``, end to end: processes, exit codes, one line when something is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from nearcache.backends import SharedMemoryCache
from nearcache.cli import main
from nearcache.engines.shm import data_path


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nearcache", *arguments],
        capture_output=True,
        text=True,
        timeout=300,  # if it hangs
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ".", **environment},
    )


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of a command that was refused."""
    assert done.returncode == 2, done
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if not line.startswith(("Usage", "Try"))]
    lines = [line for line in lines if line]
    assert len(lines) == 1, done.stderr
    return lines[0]


@pytest.fixture
def name(private_path: Path) -> str:
    location = str(private_path / "pages")
    cache = SharedMemoryCache(location, {"OPTIONS": {"size": "4MB"}})
    cache.set_many({"user:1": "x" * 2000, "user:2": 2, "other": 3}, 5400)
    cache.set("forever", 1, None)
    return location


def test_stats_are_readable_and_for_machines(name: str) -> None:
    done = run("shm", "stats", name)
    assert done.returncode == 0, done.stderr
    assert "4 MiB" in done.stdout
    facts = json.loads(run("shm", "stats", name, "--json").stdout)
    assert facts["items"] == 4
    assert facts["size_bytes"] == data_path(name).stat().st_size


def test_an_index_that_is_full_before_the_log_is_said_with_what_to_set(name: str) -> None:
    assert json.loads(run("shm", "stats", name, "--json").stdout)["better_mean_item_bytes"] is None
    assert "mean_item" not in run("shm", "check", name).stdout
    cache = SharedMemoryCache(name, {"OPTIONS": {"size": "4MB"}})
    for start in range(0, 40_000, 1000):
        cache.set_many({f"count:{number}": number for number in range(start, start + 1000)})
    facts = json.loads(run("shm", "stats", name, "--json").stdout)
    assert facts["index_full"] > 0
    assert 48 < facts["live_bytes"] / facts["items"] < 80
    better = facts["better_mean_item_bytes"]
    for command in ("stats", "check"):
        assert f'Set "mean_item": {better} in OPTIONS' in run("shm", command, name).stdout
    held = facts["items"]
    options = {"size": "4MB", "mean_item": better}
    made_for_them = SharedMemoryCache(f"{name}2", {"OPTIONS": options})
    made_for_them.set_many({f"count:{number}": number for number in range(40_000)})
    assert made_for_them.stats()["items"] > 1.5 * held


def test_check_says_sound(name: str) -> None:
    done = run("shm", "check", name)
    assert (done.returncode, done.stderr) == (0, "")
    assert "sound, 4 items" in done.stdout
    assert json.loads(run("shm", "check", name, "--json").stdout)["faults"] == []


def test_keys_show_size_and_time_left(name: str) -> None:
    lines = run("shm", "keys", name).stdout.splitlines()
    assert len(lines) == 4
    assert any("2 KiB" in line and "1 h 29 min" in line and ":1:user:1" in line for line in lines)
    assert any("never" in line and ":1:forever" in line for line in lines)
    found = json.loads(run("shm", "keys", name, "--match", ":1:user:*", "--json").stdout)
    assert {item["key"] for item in found} == {":1:user:1", ":1:user:2"}


def test_keys_says_when_there_are_more(name: str) -> None:
    done = run("shm", "keys", name, "--limit", "2")
    assert len(done.stdout.splitlines()) == 2
    assert "--limit" in done.stderr


def test_clear_removes_what_matches_or_all(name: str) -> None:
    assert "2 items removed" in run("shm", "clear", name, "--match", ":1:user:*").stdout
    assert json.loads(run("shm", "clear", name, "--json").stdout)["removed"] == 2
    assert "0 items" in run("shm", "check", name).stdout


def test_a_cache_is_found_by_alias(name: str, tmp_path: Path) -> None:
    settings = f"""
CACHES = {{
    "default": {{"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}},
    "pages": {{"BACKEND": "nearcache.backends.SharedMemoryCache", "LOCATION": {name!r}}},
}}
"""
    (tmp_path / "site_settings.py").write_text(settings)
    where = {"PYTHONPATH": str(tmp_path)}
    done = run("shm", "check", "--settings", "site_settings", "--alias", "pages", **where)
    assert "sound, 4 items" in done.stdout, done.stderr
    done = run("shm", "check", "--alias", "pages", DJANGO_SETTINGS_MODULE="site_settings", **where)
    assert "sound, 4 items" in done.stdout, done.stderr
    wrong = run("shm", "check", "--settings", "site_settings", **where)
    assert "not a SharedMemoryCache" in refused(wrong)
    unknown = run("shm", "check", "--settings", "site_settings", "--alias", "page", **where)
    assert "'page'" in refused(unknown)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["shm", "stats", "no-such-cache"], "is not there; `nearcache shm list`"),
        (["shm", "stats", "/no/such/place"], "is not there"),
        (["shm", "stats", "a/b"], "write a name of letters"),
        (["shm", "stats", "x", "--alias", "y"], "not both"),
        (["shm", "stats", "--settings", "no_such_settings"], "no_such_settings"),
        (["shm", "stats", "--alias", "default"], "DJANGO_SETTINGS_MODULE"),
        (["shm", "keys", "--limit", "0"], "--limit"),
        (["shm", "nonsense"], "nonsense"),
        (["nonsense"], "nonsense"),
        (["shm", "stats", "--nonsense"], "--nonsense"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(arguments: list[str], message: str) -> None:
    assert message in refused(run(*arguments))


def test_settings_that_fail_to_import_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0")
    done = run("shm", "stats", "--settings", "broken", PYTHONPATH=str(tmp_path))
    assert "ZeroDivisionError" in refused(done)


def test_looking_for_a_cache_makes_no_file(private_path: Path) -> None:
    for verb in ("stats", "check", "keys", "clear"):
        run("shm", verb, str(private_path / "absent"))
    assert list(private_path.iterdir()) == []


def test_a_foreign_file_is_refused_and_left_as_it_is(private_path: Path) -> None:
    foreign = data_path(str(private_path / "foreign"))
    foreign.write_bytes(b"not a cache" * 1000)
    foreign.chmod(0o600)
    before = foreign.read_bytes()
    line = refused(run("shm", "check", str(private_path / "foreign")))
    assert str(foreign) in line
    assert foreign.read_bytes() == before
    assert list(private_path.iterdir()) == [foreign]
    private_path.joinpath("foreign.lock").touch(0o600)
    assert str(foreign) in refused(run("shm", "check", str(private_path / "foreign")))
    assert foreign.read_bytes() == before


def test_list_shows_the_caches_of_this_user() -> None:
    assert run("shm", "list").returncode == 0
    assert isinstance(json.loads(run("shm", "list", "--json").stdout), list)


def test_a_cache_that_goes_while_caches_are_listed_is_left_out(
    private_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearcache.cli.shm.default_directory", lambda: private_path)
    data_path(str(private_path / "gone")).symlink_to("nowhere")  # is listed, and is not there
    data_path(str(private_path / "here")).write_bytes(b"x" * 1024)
    listed = CliRunner().invoke(main, ["shm", "list", "--json"])
    assert listed.exit_code == 0, listed.output
    assert [each["name"] for each in json.loads(listed.output)] == ["here"]


def test_help_names_every_noun() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert "shm" in done.stdout
    assert "lab" in done.stdout
    assert run("--version").stdout.startswith("nearcache, version ")
