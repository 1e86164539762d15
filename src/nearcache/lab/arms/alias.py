"""A Django cache alias: whatever an entry of ``CACHES`` names, nearcache's or not."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from nearcache.lab.base.arm import Arm
from nearcache.lab.base.messages import Setup, Visit, Visited
from nearcache.lab.own.alias import moved
from nearcache.lab.own.guard import guard_caches, write_check_ns
from nearcache.lab.own.room import demand_room, room_of
from nearcache.lab.proofs.brief import Brief

BESIDE = 60  # keys beside those of a payload: counters, types, parts of an operation
BESIDE_BYTES = 1_000_000


UNTOLD = "not told: what it throws out when it is full, it throws out"


class AliasArm(Arm):
    """Timed through ``django.core.cache``, beside its server, with a second process to check."""

    takes_own_aliases = True
    takes_own_data = True

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.cache: Any = None
        self.companion: Any = None
        self.payloads: dict[str, Any] = {}
        self.facts: dict[str, str] = {}  # which types come back as what they were
        self.taken_apart: set[str] = set()  # payloads
        self.brief = Brief(f"{setup.namespace}:brief")

    def begin(self) -> Mapping[str, str]:
        configure_django(self.setup)
        proof = self._prove()
        # Beside its server, or waking up the other core would be most of what is timed.
        os.sched_setaffinity(0, {self.setup.cpu})
        return proof

    def visit(self, visit: Visit) -> Visited:
        from nearcache.lab.proofs.stored import Meter
        from nearcache.lab.timers.operations import Visitor, VisitTools
        from nearcache.lab.workloads.fidelity import facts_of, try_types

        payload = self.payload(visit.payload)
        self.demand_room(payload.key_count, payload.bytes_at_once)
        meter = None
        if visit.learning:
            meter = Meter(self.candidate, self.cache, Path(self.setup.directory))
        tools = VisitTools(self.cache, self.companion, self.setup.namespace, meter)
        visited = Visitor(tools, payload, visit).run()
        if visit.learning and not self.facts:
            # A backend that gives 1 for True has done less, and is not recommended.
            self.facts = facts_of(try_types(self.cache, f"{self.setup.namespace}:type"))
        visited.facts |= self.facts
        self.brief.look(self.companion, visited.facts)
        if not visit.learning and visit.payload not in self.taken_apart and not visited.refused:
            self.taken_apart.add(visit.payload)
            try:
                self._take_apart(visit, visited)
            except Exception as error:  # noqa: BLE001 - the numbers stand without an explanation
                said = f"not seen: {type(error).__name__}: {error}"
                visited.facts["where the time goes"] = said
        return visited

    def _take_apart(self, visit: Visit, visited: Visited) -> None:
        """Once per process and payload: where the time of a get and of a set goes."""
        from nearcache.lab.servers.wire import wire_of
        from nearcache.lab.timers.attribution import Attributor

        payload, prefix = self.payload(visit.payload), f"{self.setup.namespace}:{visit.round_id}"
        values = [payload.make(f"{prefix}:parts:{number}", 1) for number in range(2)]
        with ExitStack() as stack:
            wire = wire_of(self.candidate)
            if wire:
                stack.enter_context(wire)
            Attributor(self.cache, wire, prefix, visit.phase_ns).explain(visited.phases, values)

    def end(self) -> None:
        self.brief.forget(self.cache)

    def payload(self, letter: str) -> Any:
        """The payload of this letter, made once."""
        from nearcache.lab.workloads import make_payload

        if letter not in self.payloads:
            self.payloads[letter] = make_payload(letter, self.setup.seed, self.setup.data)
        return self.payloads[letter]

    @property
    def is_own(self) -> bool:
        """Is it a cache of the user's, which others use while it is measured?"""
        return self.candidate.settings_module is not None

    def demand_room(self, entries: int, size: int) -> None:
        """Raises NoRoom if this and what is written beside it might push out the user's."""
        if self.is_own:
            demand_room(self.cache, entries + BESIDE, size + BESIDE_BYTES)

    def open_cache(self) -> Any:
        """A new object of the alias, with connections of its own where it makes them.

        Of the user's caches it is an ``OwnCache``, which writes keys of this run alone.
        """
        from django.core.cache import caches

        return caches.create_connection(self.candidate.alias)

    def _prove(self) -> dict[str, str]:
        from nearcache.lab.proofs.canary import prove_work
        from nearcache.lab.proofs.companion import OtherProcess, SameProcess
        from nearcache.lab.proofs.place import prove_place
        from nearcache.lab.proofs.proof import open_sockets, prove_treatment

        if self.candidate.reach == "process":
            self.companion = SameProcess(self.open_cache)
        else:
            self.companion = OtherProcess(self.open_cache, self.setup.cpu)
        guarded = self._prove_guarded() if self.is_own else {}
        before = open_sockets()
        self.cache = self.open_cache()
        key = f"{self.setup.namespace}:canary"
        prove_work(self.cache, self.companion, self.payload("S"), key)
        prove_place(self.candidate, self.cache, key)
        self.brief.store(self.cache)
        new = [peer for inode, peer in open_sockets().items() if inode not in before]
        proof = prove_treatment(self.candidate, self.cache, new, self.setup.server_version)
        return {**proof, **guarded}

    def _prove_guarded(self) -> dict[str, str]:
        """Before the first write: there is room for it. By an object that is not measured."""
        from nearcache.lab.own.guard import bare

        other = self.open_cache()
        demand_room(other, BESIDE, BESIDE_BYTES)
        said = "asked before each visit" if room_of(bare(other)) else UNTOLD
        other.close()
        return {"room": said, "check of a write's key": f"{write_check_ns():.0f} ns"}


def configure_django(setup: Setup) -> None:
    """Django with the candidate's alias, or with the user's own settings module."""
    import django
    from django.conf import settings

    candidate = setup.candidate
    if candidate.settings_module:
        sys.path.insert(0, os.getcwd())
        os.environ["DJANGO_SETTINGS_MODULE"] = candidate.settings_module
        # In place: a module of the user's may hold the dict already.
        entry = settings.CACHES[candidate.alias]
        settings.CACHES[candidate.alias] = moved(entry, setup.places["shm_path"])
        django.setup()
        guard_caches(setup.namespace)
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
