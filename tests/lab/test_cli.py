"""The command line: bad requests are one line and exit code 2, and leave nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from nearcache.cli import main
from nearcache.lab.base.directories import PREFIX, SHARED_MEMORY, private_directory
from nearcache.lab.experiments.registry import EXPERIMENTS
from nearcache.lab.results.sample import read_sample

from .conftest import need

LAB = [sys.executable, "-m", "nearcache.lab"]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "COLUMNS": "100"}


def lab(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LAB, *words], capture_output=True, text=True, env=environment(), check=False
    )


def lab_here(*words: str) -> subprocess.CompletedProcess[str]:
    """The same without a process of its own: for commands that start nothing. A second less."""
    result = CliRunner().invoke(
        main, ["lab", *words], prog_name="nearcache", env={"COLUMNS": "100"}
    )
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return subprocess.CompletedProcess(words, result.exit_code, result.stdout, result.stderr)


def left_behind(pid: int, parent: str = SHARED_MEMORY) -> list[Path]:
    return list(Path(parent).glob(f"{PREFIX}{pid}-*"))


def descendants(pid: int) -> set[int]:
    found: set[int] = set()
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # it has ended since it was listed
            for child in path.read_text().split():
                found |= {int(child)} | descendants(int(child))
    return found


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run backendz", "did you mean 'backends'?"),
        ("run backends --frob", "No such option"),
        ("run backends --candidates redis-hiredis-unx", "did you mean 'redis-hiredis-unix'?"),
        ("run backends --payloads Z", "no payload named 'Z'; known: S, F, H, Q, X"),
        ("run backends --operations fetch", "no operation named 'fetch'"),
        ("run backends --settings no.such.settings", "does not import (ModuleNotFoundError"),
        ("run backends --settings tests.settings --alias nope", "no alias in CACHES named 'nope'"),
        ("run backends --alias default", "--alias needs --settings MODULE"),
        ("run backends --match x:*", "--match says what --sample takes"),
        ("run backends --keys 10", "--keys says what --sample takes"),
        ("run backends --speed 2", "--speed is that of a recording"),
        ("run backends --path {tmp}", "--path names directories for disks"),
        ("run locks --price-gb-month 4", "prices are applied to what a cache stores"),
        ("run backends --price-gb-month -4", "--price-gb-month is -4.0; a price"),
        ("run backends --out /proc/nowhere", "give --out DIR"),
        ("run backends --redis-server /no/such/binary --out {tmp}", "is not a program"),
        ("report /no/such/file.json", "cannot be read"),
        ("report", "Missing argument"),
        ("frob", "No such command"),
        ("rn backends", "did you mean 'run'?"),
    ],
)
def test_a_bad_request_is_one_clear_line_and_exit_code_2(
    words: str, said: str, tmp_path: Path
) -> None:
    asked = lab if "--settings" in words else lab_here  # settings belong to a process
    result = asked(*words.format(tmp=tmp_path).split())
    assert result.returncode == 2
    last = result.stderr.strip().splitlines()[-1]
    assert said in last
    assert "Traceback" not in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("binary", ["--redis-server", "--memcached"])
def test_a_server_that_does_not_start_ends_the_run_and_leaves_nothing(
    binary: str, tmp_path: Path
) -> None:
    names = "redis-python-unix,pymemcache-unix"
    words = ["run", "backends", "--quick", "--candidates", names, binary, "/bin/false"]
    process = subprocess.Popen(
        [*LAB, *words, "--out", str(tmp_path)], stderr=subprocess.PIPE, text=True, env=environment()
    )
    _, said = process.communicate()
    assert process.returncode == 2
    assert "/bin/false did not start" in said.strip().splitlines()[-1]
    assert not left_behind(process.pid)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("number", "line", "keeps"),
    [
        (signal.SIGTERM, "processes 1 of 2: starting", False),
        (signal.SIGINT, "processes 1 of 2, round 2", True),
        (signal.SIGTERM, "processes 1 of 2, round 2", True),
    ],
)
def test_a_signal_stops_every_process_and_keeps_what_was_measured(
    number: signal.Signals,
    line: str,
    keeps: bool,
    tmp_path: Path,
    eventually: Callable[[Callable[[], object]], None],
) -> None:
    need("redis-server", "memcached")
    names = "redis-python-unix,python-memcached-tcp"
    words = ["run", "backends", "--quick", "--payloads", "S", "--candidates", names]
    words += ["--time-limit", "3600"]  # on a slow machine the plan's has no second round
    process = subprocess.Popen(
        [*LAB, *words, "--out", str(tmp_path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    with process:
        assert process.stderr is not None
        while line not in process.stderr.readline():
            assert process.poll() is None, "the run ended before the signal"
        helpers = descendants(process.pid)
        assert helpers, "servers were running"
        process.send_signal(number)
        said = process.stderr.read()
    assert process.returncode == 128 + number, said
    # Those of its workers are ended by the kernel, which takes a moment.
    eventually(lambda: not [pid for pid in helpers if is_alive(pid)])
    assert not left_behind(process.pid)
    files = sorted(path.suffix for path in tmp_path.iterdir())
    assert files == ([".html", ".json"] if keeps else [])
    if keeps:
        (path,) = tmp_path.glob("*.json")
        sample = read_sample(path)
        assert sample.about["state"] == "interrupted"
        assert sample.has_numbers
        assert "interrupted" in path.with_suffix(".html").read_text()


@pytest.fixture
def memory() -> Iterator[str]:
    """Shared memory where no other lab of this machine tidies up."""
    with tempfile.TemporaryDirectory(prefix="nc-", dir=SHARED_MEMORY) as name:
        yield name


LAB_IN_MEMORY = """
import sys
from nearcache.cli import main
from nearcache.lab.base import directories
directories.SHARED_MEMORY = sys.argv[1]
main(["lab", *sys.argv[2:]])
"""


def test_a_lab_that_is_killed_takes_its_processes_along_and_the_next_one_tidies_up(
    tmp_path: Path, memory: str, eventually: Callable[[Callable[[], object]], None]
) -> None:
    need("memcached")
    words = ["run", "backends", "--quick", "--payloads", "S", "--out", str(tmp_path)]
    words += ["--candidates", "python-memcached-unix"]
    process = subprocess.Popen(
        [sys.executable, "-c", LAB_IN_MEMORY, memory, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    with process:
        assert process.stderr is not None
        while "round 1" not in process.stderr.readline():
            assert process.poll() is None, "the run ended before it was killed"
        helpers = descendants(process.pid)
        process.kill()
    assert helpers
    eventually(lambda: not [pid for pid in helpers if is_alive(pid)])
    assert left_behind(process.pid, memory), "nobody could remove its directory"
    private_directory(Path(memory)).rmdir()
    assert not left_behind(process.pid, memory)


def test_a_server_that_is_not_installed_is_named_in_the_table_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    words = "run backends --quick --payloads S --operations get,set --candidates"
    result = lab(*words.split(), "pymemcache-tcp,redis-python-unix", "--out", str(tmp_path))
    assert result.returncode == 0, result.stderr
    assert "apt install memcached" in result.stdout
    assert "apt install redis-server" in result.stdout
    (page,) = tmp_path.glob("*.html")
    assert "apt install memcached" in page.read_text()


def test_list_has_a_line_for_each_experiment_and_the_details_of_one() -> None:
    result = lab_here("list")
    assert result.returncode == 0
    for name, experiment in EXPERIMENTS.items():
        assert f"\n{name} " in f"\n{result.stdout}"
        assert experiment.question[:40] in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 100
    details = lab_here("list", "backends").stdout
    for name in ("locmem", "shm", "django-redis-python-tcp", "pylibmc-unix", "get_many of 20"):
        assert name in details
    assert lab_here("list", "backendz").returncode == 2


def test_a_run_that_measured_nothing_is_a_failure(tmp_path: Path) -> None:
    words = ["run", "pools", "--quick", "--time-limit", "4", "--out", str(tmp_path)]
    result = subprocess.run(
        [*LAB, *words], capture_output=True, text=True, env={**environment(), "PATH": "/nowhere"}
    )
    assert result.returncode == 2
    assert "pools: nothing was measured: redis-server" in result.stderr.splitlines()[-1]


def test_ctrl_c_while_modules_are_imported_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("import time\nprint('here', flush=True)\ntime.sleep(60)\n")
    with subprocess.Popen(
        [sys.executable, "-m", "nearcache", "lab", "list"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment(), "PYTHONPATH": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "")


def test_ctrl_c_in_any_verb_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("nearcache.cli.import_module", interrupted)
    result = CliRunner().invoke(main, ["lab", "list"])
    assert result.exit_code == 130
    assert result.output.strip() == "interrupted"


def test_a_signal_while_the_report_is_made_says_where_the_run_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from nearcache.cli.lab import run
    from nearcache.lab.runner.stopping import Stopped

    def stopped(*_: object) -> None:
        raise Stopped(signal.SIGINT)

    monkeypatch.setattr(run, "show", stopped)
    path = tmp_path / "run.json"
    with pytest.raises(Stopped):
        run._shown(None, path)  # type: ignore[arg-type]
    said = capsys.readouterr().out
    assert str(path) in said
    assert f"lab report {path} --html" in said
