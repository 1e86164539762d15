"""wrk as the generator of a closed loop: as fast as the server goes, every answer checked.

A script in wrk's own Lua compares each body with those that there can be and counts who
answered, by the headers. That a body is the one of its URL is checked by our own client in
the same visit: wrk does not tell a script which request an answer belongs to.

wrk measures whole seconds; a SIGINT ends it earlier, and it then counts with the time that
it really ran.
"""

from __future__ import annotations

import json
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nearcache.lab.load.http_client import BadAnswer
from nearcache.lab.servers import child_setup

LONGEST_S = 600
TELL_AGAIN_S, TIMES_TOLD = 1, 20
# Each twice as long. A machine that stands still while wrk starts leaves it no time to ask
# anything; that is no fault of whom it asks.
ATTEMPTS = 4
SCRIPT = Path(__file__).with_name("wrk.lua")


@dataclass(frozen=True)
class Drive:
    """What wrk saw."""

    answers: int
    wall_ns: int
    generator_cpu: float
    hits: int


class Wrk:
    """wrk for one site."""

    def __init__(self, binary: str, directory: Path, port: int, cpu: int | None) -> None:
        self.binary = binary
        self.directory = directory
        self.port = port
        self.cpu = cpu

    @property
    def version(self) -> str:
        # It prints its version and fails, whatever it is asked for.
        shown = subprocess.run([self.binary, "-v"], capture_output=True, text=True, check=False)
        return " ".join((shown.stdout + shown.stderr).split()[:2])

    def drive(
        self, paths: Sequence[str], bodies: Sequence[bytes], connections: int, phase_ns: int,
        fresh: str = "",
    ) -> Drive:  # fmt: skip
        """Ask for ``paths`` in turn; with ``fresh``, every other time for a URL never asked.

        Raises:
            BadAnswer: an answer that is none of ``bodies``, or none at all.
        """
        files = self._files(paths, bodies)
        command = [self.binary, "-t1", f"-c{connections}", f"-d{LONGEST_S}s", "-s", str(SCRIPT)]
        command += [f"http://127.0.0.1:{self.port}/", "--", *files]
        for attempt in range(ATTEMPTS):
            mark = f"{fresh}{attempt}-" if fresh else ""
            drive = self._run([*command, mark], phase_ns * 2**attempt)
            if drive and drive.answers:
                return drive
        raise BadAnswer("wrk gave no result: nothing was answered before its time was over")

    def _run(self, command: Sequence[str], phase_ns: int) -> Drive | None:
        """None if its time was over before it was ready to be told so."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=child_setup(self.cpu),  # noqa: PLW1509 - we have one thread
        )
        try:
            time.sleep(phase_ns / 1e9)
            said = _end(process)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode == -signal.SIGINT:
            return None
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
        return _judged(said.decode(errors="replace"), cpu_s)

    def _files(self, paths: Sequence[str], bodies: Sequence[bytes]) -> list[str]:
        files = []
        for name, lines in (("paths", [path.encode() for path in paths]), ("bodies", bodies)):
            file = self.directory / f"wrk.{name}"
            file.write_bytes(b"\n".join(lines) + b"\n")
            files.append(str(file))
        return files


def _end(process: subprocess.Popen[bytes]) -> bytes:
    """Tell it to end; what it says then. A SIGINT just before it falls asleep does not wake it."""
    for _ in range(TIMES_TOLD):
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=TELL_AGAIN_S)[0]
    raise BadAnswer(f"wrk did not end within {TIMES_TOLD * TELL_AGAIN_S} s")


def _judged(said: str, cpu_s: float) -> Drive:
    _, found, line = said.partition("\nRESULT ")
    if not found:
        last = said.strip().splitlines()[-1:] or ["nothing"]
        raise BadAnswer(f"wrk gave no result, it said: {last[0]}")
    result = json.loads(line)
    for name, text in (
        ("broken", "connections that broke or answers that timed out"),
        ("status", "answers that were not 200"),
        ("unknown", "answers with a body that no URL has"),
    ):
        if result[name]:
            raise BadAnswer(f"{result[name]} {text}, of {result['answers']}")
    wall_ns = result["us"] * 1000
    return Drive(result["answers"], wall_ns, cpu_s * 1e9 / wall_ns, result["hits"])


def find_wrk() -> str | None:
    return shutil.which("wrk")
