"""A Django cache alias: whatever an entry of ``CACHES`` names, nearcache's or not."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nearcache.lab.messages import Setup, Visit, Visited
from nearcache.lab.subjects import Subject


class AliasSubject(Subject):
    """Timed through ``django.core.cache``, beside its server, with a second process to check."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.cache: Any = None
        self.companion: Any = None
        self.payloads: dict[str, Any] = {}

    def begin(self) -> Mapping[str, str]:
        configure_django(self.setup)
        proof = self._prove()
        # Beside its server, or waking up the other core would be most of what is timed.
        os.sched_setaffinity(0, {self.setup.cpu})
        return proof

    def visit(self, visit: Visit) -> Visited:
        from nearcache.lab.operations import Bench, Visitor
        from nearcache.lab.stored import Meter

        payload = self.payload(visit.payload)
        meter = None
        if visit.learning:
            meter = Meter(self.candidate, self.cache, Path(self.setup.directory))
        bench = Bench(self.cache, self.companion, self.setup.namespace, meter)
        return Visitor(bench, payload, visit).run()

    def payload(self, letter: str) -> Any:
        """The payload of this letter, made once."""
        from nearcache.lab.workloads import PAYLOADS

        if letter not in self.payloads:
            self.payloads[letter] = PAYLOADS[letter](self.setup.seed)
        return self.payloads[letter]

    def open_cache(self) -> Any:
        """A new object of the alias, with connections of its own where it makes them."""
        from django.core.cache import caches

        return caches.create_connection(self.candidate.alias)

    def _prove(self) -> dict[str, str]:
        from nearcache.lab.canary import prove_work
        from nearcache.lab.companion import OtherProcess, SameProcess
        from nearcache.lab.proof import open_sockets, prove_treatment

        if self.candidate.reach == "process":
            self.companion = SameProcess(self.open_cache)
        else:
            self.companion = OtherProcess(self.open_cache, self.setup.cpu)
        before = open_sockets()
        self.cache = self.open_cache()
        key = f"{self.setup.namespace}:canary"
        prove_work(self.cache, self.companion, self.payload("S"), key)
        new = [peer for inode, peer in open_sockets().items() if inode not in before]
        return prove_treatment(self.candidate, self.cache, new, self.setup.server_version)


def configure_django(setup: Setup) -> None:
    """Django with the candidate's alias, or with the user's own settings module."""
    import django
    from django.conf import settings

    candidate = setup.candidate
    if candidate.settings_module:
        sys.path.insert(0, os.getcwd())
        os.environ["DJANGO_SETTINGS_MODULE"] = candidate.settings_module
        django.setup()
        return
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{setup.directory}/db.sqlite3"}
    settings.configure(
        CACHES={candidate.alias: dict(candidate.settings)},
        DATABASES={"default": database},
        USE_TZ=True,
    )
    django.setup()
    if candidate.settings["BACKEND"].endswith(".DatabaseCache"):
        from django.core.management import call_command

        call_command("createcachetable", verbosity=0)
