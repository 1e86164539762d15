"""The registry: which server meets which store and which fault."""

from __future__ import annotations

from dataclasses import dataclass

from tests.site.faults import FAULTS, Fault
from tests.site.servers import SERVERS, Server

SERVER_FOR_STORE_FAULTS = ("gunicorn-gthread", "gunicorn-gevent", "uvicorn", "uwsgi-threads")
"""What a store does concerns threads, greenlets and tasks; not every server."""


@dataclass(frozen=True)
class Scenario:
    server_name: str
    store_name: str
    fault_name: str

    @property
    def name(self) -> str:
        return f"{self.server_name}/{self.store_name}/{self.fault_name}"

    @property
    def server(self) -> Server:
        return SERVERS[self.server_name]

    @property
    def fault(self) -> Fault:
        return FAULTS[self.fault_name]


def all_scenarios() -> dict[str, Scenario]:
    made = (
        Scenario(server, store, name)
        for server in SERVERS
        for name, fault in FAULTS.items()
        for store in fault.stores
        if fault.fits(SERVERS[server]) and _concerns(server, fault)
    )
    return {scenario.name: scenario for scenario in made}


def _concerns(server: str, fault: Fault) -> bool:
    of_a_store = len(fault.stores) == 1
    return not of_a_store or server in SERVER_FOR_STORE_FAULTS


SCENARIOS = all_scenarios()
SHORT = (
    "gunicorn-sync/shm/interrupts",
    "gunicorn-gevent/redis/interrupts",
    "uwsgi-threads/redis/nothing",
    "gunicorn-gthread/redis/redis-client-kill",
    "uwsgi/shm/kills",
    "uvicorn/redis/redis-emptied",
    "prefork-fork/redis/kills",
)
"""The few that run with the tests."""
