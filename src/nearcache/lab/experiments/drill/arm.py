"""One backend, put through faults: break, ask, mend, look at what is stored, classify.

    prepare   a healthy server; patients that have used it; a value for whoever needs one
    break     stop, freeze, fill it, or change its password
    ask       every operation at once, each of a patient of its own, up to the limit
    mend      and see how long until the one who waits gets through
    look      by a process that has not met the fault: is it stored, deleted, counted?

:func:`outcome` turns a reply and what is found into words; ``severity`` orders them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from nearcache.lab.arms.candidates import fill
from nearcache.lab.base.arm import Arm
from nearcache.lab.base.messages import Phase, Setup, Visit, Visited
from nearcache.lab.experiments.drill.patient import (
    BLOCKS,
    LOADED,
    UNPICKLABLE,
    Patience,
    Patient,
    Reply,
)
from nearcache.lab.experiments.drill.plan import OF_SERVERS, PASSWORD
from nearcache.lab.servers import ask
from nearcache.lab.servers.own import OwnServer

HEALTHY_LIMIT_S = 10.0
PROOF_TIMEOUT_S = 0.2  # of a server that must not answer
RECOVERY_LIMITS = 3  # times the limit of an operation
POLL_S = 0.005
TIMEOUT_S = 600
SMALL = "small"  # the alias of the cache with little room
MEMCACHED_ROOM = ("-m", "4")
FILLINGS = 350  # values of FILLING_BYTES: more than every small store has room for
FILLING_BYTES = 15_000
OPERATIONS = ("get", "set", "add", "delete", "incr")
COUNTER = 41
RECOVERED = "works again"
AS_IT_SHOULD = frozenset({"answers", "stored", "deleted", "counted", RECOVERED})
# A value that cannot be stored has nothing to be read, deleted or counted.
MEANINGLESS = {
    *(("unpicklable", name) for name in ("get", "delete", "incr")),
    *(("2MB", name) for name in ("delete", "incr")),
}


class NotHealthy(Exception):
    """It does not even work without a fault, so what it does under one means nothing."""


@dataclass(frozen=True)
class Case:
    """One operation under one fault: what it is asked, and what would be right."""

    operation: str
    key: str
    value: Any

    @property
    def arguments(self) -> tuple[Any, ...]:
        if self.operation in ("set", "add"):
            return (self.key, self.value, TIMEOUT_S)
        return (self.key,)

    @property
    def is_prepared(self) -> bool:
        """Does it need something stored before?"""
        return self.operation in ("get", "delete", "incr")


AWAITED = Case("get", "awaited", "what the one who waits for the server asks for")


class DrillArm(Arm):
    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.aliases: dict[str, Any] = {}
        self.server: OwnServer | None = None
        self.patients: list[Patient] = []

    def begin(self) -> Mapping[str, str]:
        if self.candidate.options["server"]:
            self.server = OwnServer(self.setup, self.candidate.options["server"])
            self.server.start()
            self._give_password(PASSWORD)
        self._configure()
        proof = {"backend": self._demand_health()}
        if self.server:
            proof["server"] = f"{self.server.kind} {self.server.version}, its own"
        return proof

    def visit(self, visit: Visit) -> Visited:
        if visit.learning or visit.payload not in self.candidate.options["faults"]:
            return Visited(phases=[])
        limit_s = visit.phase_ns / 1e9
        asked = [name for name in OPERATIONS if name in visit.operations]
        try:
            if visit.payload in (*OF_SERVERS, "password"):
                return Visited(phases=self._outage(visit, asked, limit_s))
            return Visited(phases=self._bad_input(visit.payload, asked, limit_s))
        finally:
            self._dismiss()

    def end(self) -> None:
        self._dismiss()
        if self.server:
            self.server.stop()

    # -- faults of a store -------------------------------------------------------------------

    def _outage(self, visit: Visit, asked: list[str], limit_s: float) -> list[Phase]:
        fault = visit.payload
        self._renew(fault)
        is_small = fault == "full" and SMALL in self.aliases
        alias = SMALL if is_small else self.candidate.alias
        # Connected and used before, but where the password is wrong from the beginning.
        is_warm = fault != "password"
        patients = {name: self._patient(alias, warm=is_warm) for name in asked}
        waiting = self._patient(alias, warm=is_warm)
        cases = {name: self._case(name, f"{fault}:{name}") for name in asked}
        keeper = self._patient(alias)
        for name, case in cases.items():
            self._store(self._whose(patients[name], keeper), case)
        self._store(self._whose(waiting, keeper), AWAITED)
        self._break(fault, [*patients.values(), waiting], keeper)
        replies = self._ask_all(patients, cases, waiting, limit_s)
        phases = self._mend_and_wait(fault, waiting, visit, limit_s)
        looker = self._patient(alias)
        for name, case in cases.items():
            found = _look(self._whose(patients[name], looker), case)
            seen = Seen(case, replies[name], found, has_lost=fault == "stopped")
            phases.append(_phase(name, replies[name], outcome(seen, limit_s)))
        return phases

    def _ask_all(
        self,
        patients: Mapping[str, Patient],
        cases: Mapping[str, Case],
        waiting: Patient,
        limit_s: float,
    ) -> dict[str, Reply]:
        """All at once, or five that block would take five times as long."""
        waiting.begin("get", AWAITED.key)
        for name, patient in patients.items():
            patient.begin(name, *cases[name].arguments)
        patience = Patience(limit_s)
        replies = {name: patient.answer(patience) for name, patient in patients.items()}
        for name, patient in patients.items():
            # One that still waits would carry it out as soon as it can.
            if replies[name] is BLOCKS and self.candidate.reach != "process":
                patient.end()
        return replies

    def _break(self, fault: str, patients: list[Patient], keeper: Patient) -> None:
        server = self.server
        if fault == "full" and (server is None or server.kind == "memcached"):
            for patient in patients if self.candidate.reach == "process" else [keeper]:
                self._fill(patient)
            return
        assert server
        if fault == "stopped":
            server.stop()
        elif fault == "frozen":
            server.freeze()
        elif fault == "full":
            self._configure_redis(maxmemory=1)  # less than it has: it takes no more
        elif fault == "password":
            self._give_password("another", PASSWORD)
        self._prove_broken(fault)

    def _prove_broken(self, fault: str) -> None:
        """A server that answers as ever would make every backend look honest."""
        assert self.server
        try:
            limit_s = PROOF_TIMEOUT_S if fault == "frozen" else HEALTHY_LIMIT_S
            answer = ask(self.server.port, b"PING\r\n", limit_s)
        except TimeoutError:
            is_broken = fault == "frozen"
        except OSError:
            is_broken = fault == "stopped"
        else:
            # CONFIG SET has made these two, or raised; here it is seen that the server lives.
            is_broken = fault in ("full", "password") and b"NOAUTH" in answer
        if not is_broken:
            raise NotHealthy(f"the fault {fault!r} was made, and the server is as before")

    def _mend_and_wait(
        self, fault: str, waiting: Patient, visit: Visit, limit_s: float
    ) -> list[Phase]:
        """End the fault; how long until the one who met it gets through again?"""
        server = self.server
        if server is None or (fault == "full" and server.kind == "memcached"):
            return []  # full is how it stays
        if fault == "stopped":
            server.start()
            self._give_password(PASSWORD)
        elif fault == "frozen":
            server.thaw()
        elif fault == "full":
            self._configure_redis(maxmemory=0)
        elif fault == "password":
            self._give_password(PASSWORD, "another")
        return (
            [self._recovery(waiting, RECOVERY_LIMITS * limit_s)] if _wants_recovery(visit) else []
        )

    def _recovery(self, waiting: Patient, limit_s: float) -> Phase:
        began = time.monotonic()
        if waiting.is_busy:
            waiting.answer(Patience(limit_s))  # to what it was asked under the fault
        failed = 0
        while not waiting.is_busy and (left_s := began + limit_s - time.monotonic()) > 0:
            if self._works(waiting, left_s):
                took = Reply(ns=int(1e9 * (time.monotonic() - began)))
                phase = _phase("recovery", took, RECOVERED)
                phase.measures["failures before"] = (failed, "count")
                return phase
            failed += 1
            time.sleep(POLL_S)
        return _phase("recovery", BLOCKS, f"not within {limit_s:g} s")

    def _works(self, patient: Patient, limit_s: float) -> bool:
        """One set and one get; stops asking who does not answer."""
        stored = patient.call("set", "recovery", "again", TIMEOUT_S, limit_s=limit_s)
        if stored.error or stored.blocks:
            return False
        return bool(patient.call("get", "recovery", limit_s=limit_s).value == "again")

    # -- faults of what is asked ----------------------------------------------------------------

    def _bad_input(self, fault: str, asked: list[str], limit_s: float) -> list[Phase]:
        patient = self._patient(warm=True)
        looker = self._whose(patient, None)
        phases = []
        for name in asked:
            if (fault, name) in MEANINGLESS:
                continue
            case = self._case(name, fault)
            if case.is_prepared:
                patient.call("set", case.key, case.value, TIMEOUT_S, limit_s=HEALTHY_LIMIT_S)
            was_there = _look(looker, case) is not None
            reply = patient.call(name, *case.arguments, limit_s=limit_s)
            if name == "get" and not was_there and reply.value is None and not reply.error:
                continue  # it was never stored: that is the fault of set, which says so
            seen = Seen(case, reply, _look(looker, case), was_there=was_there)
            phases.append(_phase(name, reply, outcome(seen, limit_s)))
            if reply.blocks:
                patient = self._patient(warm=True)
                looker = self._whose(patient, looker)
        return phases

    def _case(self, operation: str, fault: str) -> Case:
        key = {
            "long-key": f"{operation}{'k' * (300 - len(operation))}",
            "space-key": f"{operation} key",
            "newline-key": f"{operation}\nkey",
        }.get(fault, f"{fault}:{operation}")
        value: Any = {"drill": key, "weight": 5}
        if operation == "incr":
            value = COUNTER
        elif fault.startswith("full"):
            value = _filling(255)  # as long as the filling: Memcached evicts among its like
        elif fault == "2MB":
            value = bytes(range(256)) * 8192
        elif fault == "unpicklable":
            value = UNPICKLABLE
        return Case(operation, key, value)

    # -- patients and servers --------------------------------------------------------------------

    def _patient(self, alias: str = "", *, warm: bool = False) -> Patient:
        name = alias or self.candidate.alias

        def open_cache() -> Any:
            from django.core.cache import caches

            return caches[name]

        patient = Patient(open_cache)
        self.patients.append(patient)
        if warm:
            patient.call("get", "nothing", limit_s=HEALTHY_LIMIT_S)
        return patient

    def _whose(self, patient: Patient, other: Patient | None) -> Patient:
        """Who stores and looks: somebody else, unless the cache is the patient's alone."""
        if self.candidate.reach == "process":
            return patient
        return other or self._patient()

    def _store(self, keeper: Patient, case: Case) -> None:
        if not case.is_prepared:
            return
        stored = keeper.call("set", case.key, case.value, TIMEOUT_S, limit_s=HEALTHY_LIMIT_S)
        found = keeper.call("get", case.key, limit_s=HEALTHY_LIMIT_S)
        if stored.error or found.value != case.value:
            raise NotHealthy(f"without any fault, set and get gave {stored.error or found}")

    def _fill(self, patient: Patient) -> None:
        for number in range(FILLINGS):
            key, value = f"filling:{number}", _filling(number % 255)
            patient.call("set", key, value, TIMEOUT_S, limit_s=HEALTHY_LIMIT_S)

    def _renew(self, fault: str) -> None:
        """Whatever an earlier visit left, this one begins with an empty, healthy server."""
        if self.server is None:
            return
        self.server.stop()
        is_small = fault == "full" and self.server.kind == "memcached"
        self.server.arguments = list(MEMCACHED_ROOM) if is_small else []
        self.server.start()
        self._give_password(PASSWORD)

    def _demand_health(self) -> str:
        """Prove that it works, and load what it needs. Returns the class that was used."""
        patient = self._patient()
        self._store(patient, AWAITED)
        patient.call("delete", AWAITED.key, limit_s=HEALTHY_LIMIT_S)
        left = patient.call("get", AWAITED.key, limit_s=HEALTHY_LIMIT_S)
        if left.error or left.value is not None:
            raise NotHealthy(f"a deleted key still answers ({left})")
        # Patients are forked from here, and what they import is not what is timed.
        backend, modules = patient.call(LOADED, limit_s=HEALTHY_LIMIT_S).value
        for name in modules:
            with suppress(ImportError):
                import_module(name)
        self._dismiss()
        return str(backend)

    def _give_password(self, new: str, old: str = "") -> None:
        if self.server and self.server.kind == "redis":
            self._configure_redis(old or None, requirepass=new)

    def _configure_redis(self, password: str | None = PASSWORD, **settings: Any) -> None:
        import redis

        assert self.server
        with redis.Redis(port=self.server.port, password=password) as client:
            for name, value in settings.items():
                client.config_set(name, value)

    def _configure(self) -> None:
        """Django with this candidate's cache, and with a small one where there is one."""
        import django
        from django.conf import settings
        from django.db import connections

        places = {"drill_port": str(self.server.port)} if self.server else {}
        self.aliases = {self.candidate.alias: fill(self.candidate.settings, places)}
        if small := self.candidate.options.get("small"):
            self.aliases[SMALL] = small
        database = {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": f"{self.setup.directory}/db.sqlite3",
        }
        settings.configure(CACHES=self.aliases, DATABASES={"default": database}, USE_TZ=True)
        django.setup()
        if self.candidate.settings["BACKEND"].endswith(".DatabaseCache"):
            from django.core.management import call_command

            call_command("createcachetable", verbosity=0)
        connections.close_all()  # SQLite's must not be taken across a fork

    def _dismiss(self) -> None:
        while self.patients:
            self.patients.pop().end()
        if self.server and self.server.version:
            self.server.thaw()


@dataclass(frozen=True)
class Seen:
    """A reply, beside what somebody else reads when the fault is over."""

    case: Case
    reply: Reply
    found: Any
    has_lost: bool = False  # the store came back empty: what is gone proves nothing
    was_there: bool = True  # before delete and incr

    @property
    def told(self) -> str:
        """Would somebody who reads logs and warnings know?"""
        return ", logs" if self.reply.is_logged else ", warns" if self.reply.is_warned else ""

    @property
    def is_done(self) -> bool:
        """Was it carried out, whatever the caller was told?"""
        if self.has_lost or self.case.operation == "get" or self.found == UNKNOWN:
            return False
        if self.case.operation == "delete":
            return self.was_there and self.found is None
        if self.case.operation == "incr":
            return bool(self.found == COUNTER + 1)
        return self.found is not None


def outcome(seen: Seen, limit_s: float) -> str:
    """What happened, in words. findings.py knows how bad each is."""
    reply = seen.reply
    if not reply.blocks and not reply.error:
        return JUDGES[seen.case.operation](seen)
    words = f"blocks > {limit_s:g} s" if reply.blocks else f"raises {reply.error}"
    is_there = seen.found is not None or seen.has_lost
    if seen.case.operation == "incr" and reply.error == "ValueError" and is_there:
        return f"{words}: no such key"
    return f"{words}, and does it" if seen.is_done else words


def _judge_get(seen: Seen) -> str:
    value = seen.reply.value
    if value == seen.case.value:
        return f"answers{seen.told}"
    if value is not None:
        return "lies: a wrong value"
    if seen.found is None and not seen.has_lost:
        return f"evicted{seen.told}"
    return f"misses{seen.told}" if seen.told else "silent miss"


def _judge_set(seen: Seen) -> str:
    if seen.found == seen.case.value:
        return f"stored{seen.told}"
    if seen.found is not None:
        return "lies: something else is stored"
    return f"drops{seen.told}" if seen.told else "lies: not stored"


def _judge_add(seen: Seen) -> str:
    says = bool(seen.reply.value)
    if seen.found is not None:
        return f"stored{seen.told}" if says else f"says False, stored{seen.told}"
    if not says:
        return f"says False{seen.told}"
    return f"drops, says True{seen.told}" if seen.told else "lies: True, not stored"


def _judge_delete(seen: Seen) -> str:
    says = bool(seen.reply.value)
    if seen.has_lost:
        return f"says {says}{seen.told}"
    if seen.found is None:
        return f"deleted{seen.told}" if says else f"says False, gone{seen.told}"
    return f"drops, says {says}{seen.told}" if seen.told else f"lies: {says}, still there"


def _judge_incr(seen: Seen) -> str:
    value = seen.reply.value
    if value == COUNTER + 1 and seen.found == value:
        return f"counted{seen.told}"
    return f"drops, says {value}{seen.told}" if seen.told else f"lies: {value}, not counted"


JUDGES: dict[str, Callable[[Seen], str]] = {
    "get": _judge_get,
    "set": _judge_set,
    "add": _judge_add,
    "delete": _judge_delete,
    "incr": _judge_incr,
}


UNKNOWN = "<nobody could look>"


def _look(patient: Patient, case: Case) -> Any:
    """What is stored. One that hangs cannot be asked, and nobody else sees what it has."""
    if patient.is_busy:
        return UNKNOWN
    return patient.call("get", case.key, limit_s=HEALTHY_LIMIT_S).value


def _filling(number: int) -> bytes:
    return bytes([number]) * FILLING_BYTES


def _phase(operation: str, reply: Reply, words: str) -> Phase:
    """What went as it should is a hit; everything else is an outcome, in words."""
    phase = Phase(operation, calls=1)
    if words in AS_IT_SHOULD:
        phase.hits = 1
    else:
        phase.outcomes[words] = 1
    if not reply.blocks:
        phase.samples.append(max(1, reply.ns))
    return phase


def _wants_recovery(visit: Visit) -> bool:
    return "recovery" in visit.operations
