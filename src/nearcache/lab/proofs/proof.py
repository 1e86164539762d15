"""Proof of treatment: what a candidate really is, read from the live objects.

Three of the old experiments compared a thing with itself because an option was ignored
or a default had changed. So nothing here is taken from the settings: sockets come from
the kernel's list of open files, the parser from the connection that will be used.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import metadata
from typing import Any

from nearcache.lab.base.model import Candidate
from nearcache.lab.own.guard import bare


class TreatmentNotApplied(Exception):
    """The candidate is not what its name says; the message says in what."""


def open_sockets() -> dict[int, str]:
    """Inode -> 'unix /path' or 'tcp host:port' for every connected socket of this process."""
    found: dict[int, str] = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError, ValueError):
            descriptor = os.dup(int(name))
            try:
                peer = _peer(descriptor)
                if peer:
                    found[os.fstat(descriptor).st_ino] = peer
            finally:
                with suppress(OSError):
                    os.close(descriptor)
    return found


def prove_treatment(
    candidate: Candidate, cache: Any, sockets: Sequence[str], server_version: str
) -> dict[str, str]:
    """What this candidate is. Raises :class:`TreatmentNotApplied` if not what was ordered."""
    cache = bare(cache)
    proof = {"backend": f"{type(cache).__module__}.{type(cache).__qualname__}"}
    if libraries := _libraries(candidate):
        proof["client"] = libraries
    if sockets:
        proof["socket"] = ", ".join(sorted(set(sockets)))
    if server_version:
        proof["server"] = server_version
    if parser := redis_parser(cache):
        proof["parser"] = parser
        proof["hiredis"] = "imported" if "hiredis" in sys.modules else "absent"
    _compare(candidate, proof)
    return proof


def redis_parser(cache: Any) -> str | None:
    """The class that parses replies on a connection of this cache's own."""
    cache = bare(cache)
    if type(cache).__module__.startswith("nearcache."):
        topology = getattr(getattr(cache, "engine", None), "topology", None)
        return topology.primaries()[0].reader_class if topology else None
    client = _redis_client(cache)
    if client is None:
        return None
    pool = client.connection_pool
    try:
        connection = pool.get_connection()
    except TypeError:  # redis-py before 5.3 wants the name of a command
        connection = pool.get_connection("PING")
    try:
        parser = getattr(connection, "_parser", None)
        return f"{type(parser).__module__}.{type(parser).__qualname__}"
    finally:
        pool.release(connection)


def _redis_client(cache: Any) -> Any | None:
    django_redis: Any = getattr(cache, "client", None)
    if hasattr(django_redis, "get_client"):
        return django_redis.get_client(write=True)
    if type(cache).__module__ == "django.core.cache.backends.redis":
        return cache._cache.get_client(write=True)
    return None


def _compare(candidate: Candidate, proof: dict[str, str]) -> None:
    if not candidate.settings_module:
        expected = _class_name(candidate.settings["BACKEND"])
        if proof["backend"] != expected:
            raise TreatmentNotApplied(f"the backend is {proof['backend']}, not {expected}")
    if candidate.socket and not proof.get("socket", "").startswith(candidate.socket):
        used = proof.get("socket", "no socket")
        raise TreatmentNotApplied(f"the connection is {used}, not {candidate.socket}")
    if candidate.parser:
        is_c_parser = "hiredis" in proof.get("parser", "").lower()
        if is_c_parser != (candidate.parser == "hiredis"):
            raise TreatmentNotApplied(f"replies are parsed by {proof.get('parser')}")
    for name in candidate.hides:
        if name in sys.modules:
            raise TreatmentNotApplied(f"{name} was imported although it was to be absent")


def _class_name(path: str) -> str:
    """The class where it is defined: three packages call one of theirs RedisCache."""
    # Not at the top: some import this file before they patch the standard library.
    from django.utils.module_loading import import_string

    found = import_string(path)
    return f"{found.__module__}.{found.__qualname__}"


def _libraries(candidate: Candidate) -> str:
    names = []
    owners = metadata.packages_distributions()
    for requirement in candidate.needs:
        top = requirement.module.partition(".")[0]
        names += [f"{name} {metadata.version(name)}" for name in owners.get(top, [])[:1]]
    if "redis" in sys.modules and candidate.server == "redis":
        names.append(f"redis {metadata.version('redis')}")
    return ", ".join(dict.fromkeys(names))


def _peer(descriptor: int) -> str | None:
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        address = connection.getpeername()
        if connection.family == socket.AF_UNIX:
            # The lab's own pipe is an unnamed unix socket: not a server.
            return f"unix {address}" if address else None
        if connection.family in (socket.AF_INET, socket.AF_INET6):
            return f"tcp {address[0]}:{address[1]}"
    return None
