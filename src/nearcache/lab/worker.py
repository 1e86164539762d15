"""The process of one candidate: ``python -m nearcache.lab.worker <file descriptor>``.

It becomes the candidate, proves that it is and that it works, and then measures on
request until the pipe closes. One process per candidate and repetition: what is hidden
from one (hiredis) stays hidden, and a lucky or unlucky memory layout is not shared.

The garbage collector stays on, as in a real application, but what was loaded before
the first sample is frozen so that it is not walked again and again.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from nearcache.lab.messages import Failed, Missing, Ready, Setup, Visit
from nearcache.lab.seal_off import seal_off


def main(descriptor: int) -> None:
    pipe = Connection(descriptor)
    setup: Setup = pipe.recv()
    seal_off(setup.candidate.hides)
    worker = Worker(setup)
    try:
        answer: Any = worker.begin()
        pipe.send(answer)
        while isinstance(answer, Ready):
            pipe.send(worker.visit(pipe.recv()))
    except (EOFError, BrokenPipeError):
        pass  # the driver is done with us, or dead
    os._exit(0)  # skip libraries' exit handlers: nothing is left to save


class Worker:
    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.candidate = setup.candidate
        self.cache: Any = None
        self.companion: Any = None
        self.payloads: dict[str, Any] = {}

    def begin(self) -> Ready | Missing | Failed:
        missing = self._first_missing()
        if missing:
            return missing
        try:
            self._configure_django()
            proof = self._prove()
            # Beside its server, or waking up the other core would be most of what is timed.
            os.sched_setaffinity(0, {self.setup.cpu})
            return Ready(proof)
        except Exception as error:  # noqa: BLE001 - any error is the candidate's
            return Failed(explain(error))

    def visit(self, visit: Visit) -> Any:
        from nearcache.lab.operations import Bench, Visitor
        from nearcache.lab.stored import Meter

        try:
            payload = self._payload(visit.payload)
            meter = None
            if visit.measure_stored:
                meter = Meter(self.candidate, self.cache, Path(self.setup.directory))
            bench = Bench(self.cache, self.companion, self.setup.namespace, meter)
            return Visitor(bench, payload, visit).run()
        except Exception as error:  # noqa: BLE001 - any error is the candidate's
            return Failed(explain(error))
        finally:
            gc.collect()
            gc.freeze()

    def _first_missing(self) -> Missing | None:
        for requirement in self.candidate.needs:
            try:
                import_module(requirement.module)
            except ImportError as error:
                reason = f"{requirement.module} does not import: {error}"
                return Missing(reason, requirement.install)
        return None

    def _configure_django(self) -> None:
        import django
        from django.conf import settings

        if self.candidate.settings_module:
            sys.path.insert(0, os.getcwd())
            os.environ["DJANGO_SETTINGS_MODULE"] = self.candidate.settings_module
            django.setup()
            return
        database = {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": f"{self.setup.directory}/db.sqlite3",
        }
        settings.configure(
            CACHES={self.candidate.alias: dict(self.candidate.settings)},
            DATABASES={"default": database},
            USE_TZ=True,
        )
        django.setup()
        if self.candidate.settings["BACKEND"].endswith(".DatabaseCache"):
            from django.core.management import call_command

            call_command("createcachetable", verbosity=0)

    def _prove(self) -> dict[str, str]:
        from nearcache.lab.canary import prove_work
        from nearcache.lab.companion import OtherProcess, SameProcess
        from nearcache.lab.proof import open_sockets, prove_treatment

        if self.candidate.reach == "process":
            self.companion = SameProcess(self._open_cache)
        else:
            self.companion = OtherProcess(self._open_cache, self.setup.cpu)
        before = open_sockets()
        self.cache = self._open_cache()
        key = f"{self.setup.namespace}:canary"
        prove_work(self.cache, self.companion, self._payload("S"), key)
        new = [peer for inode, peer in open_sockets().items() if inode not in before]
        return prove_treatment(self.candidate, self.cache, new, self.setup.server_version)

    def _open_cache(self) -> Any:
        from django.core.cache import caches

        return caches.create_connection(self.candidate.alias)

    def _payload(self, letter: str) -> Any:
        from nearcache.lab.workloads import PAYLOADS

        if letter not in self.payloads:
            self.payloads[letter] = PAYLOADS[letter](self.setup.seed)
        return self.payloads[letter]


def explain(error: BaseException) -> str:
    """One line: what went wrong, in the words of the code that noticed."""
    lines = str(error).strip().splitlines()
    said = lines[0] if lines else ""
    if type(error).__module__.startswith("nearcache.lab"):
        return said
    where = traceback.extract_tb(error.__traceback__)[-1]
    at = "" if said else f" at {where.filename.rpartition('/')[2]}:{where.lineno}"
    return f"{type(error).__name__}: {said}{at}" if said else f"{type(error).__name__}{at}"


if __name__ == "__main__":
    main(int(sys.argv[1]))
