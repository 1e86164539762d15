"""``nearcache lab serve``: the pages on their own, with private servers where they are needed.

This process supervises: it starts the servers of the candidates (as a run of the lab does),
then gunicorn with the pages, and waits. Whoever of them ends, or whatever signal comes, all
are stopped and their files removed; if this process is killed outright, the kernel ends them.
"""

from __future__ import annotations

import ipaddress
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nearcache.errors import LabError
from nearcache.lab.arms.candidates import fill, unknown_name
from nearcache.lab.base.directories import private_directory
from nearcache.lab.base.model import Candidate
from nearcache.lab.experiments.registry import EXPERIMENTS
from nearcache.lab.runner.stopping import Stopped, Stopping
from nearcache.lab.servers import ServerMissing, Servers, child_setup, end_process
from nearcache.web import SETUP_VARIABLE

START_TIMEOUT_S = 30.0
POLL_S = 0.05
SERVED = ("backends", "codecs")  # the experiments whose candidates are aliases
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """What the user asked for."""

    bind: str = "127.0.0.1"
    port: int = 8000
    workers: int = 4
    threads: int = 2
    settings: str | None = None
    aliases: Sequence[str] = ()
    write_chance: float = 1.0
    payload: str = "F"
    binaries: Mapping[str, str] = field(default_factory=dict)


def serve(wanted: ServeOptions, say: Callable[[str], None]) -> Stopped | None:
    """Serve until somebody ends it; returns who did. ``say`` is told what to print.

    Raises:
        LabError: it cannot be served as asked.
    """
    _check_port(wanted)
    with Stopping() as stopping:
        with stopping.deferred():
            directory = private_directory()
            servers = Servers(directory, None, wanted.binaries)
        process: subprocess.Popen[bytes] | None = None
        try:
            setup, missing = _setup(wanted, servers, stopping)
            with stopping.deferred():
                process = _start(wanted, directory, setup)
            _wait_until_it_answers(process, wanted)
            say(_greeting(wanted, setup, missing))
            status = process.wait()
            raise LabError(f"the web server ended by itself, with status {status}")
        except Stopped as stopped:
            return stopped
        finally:
            stopping.disarm()
            if process:
                end_process(process)
            servers.stop()
            shutil.rmtree(directory, ignore_errors=True)


def served_candidates() -> dict[str, Candidate]:
    """What can be an alias beside others in one process, by name.

    Not here: what needs a module to be hidden from its process, a table or a trained
    dictionary.
    """
    found: dict[str, Candidate] = {}
    for name in SERVED:
        for candidate in EXPERIMENTS[name].candidates:
            text = str(candidate.settings)
            unfit = candidate.hides or "DatabaseCache" in text or "compress_dictionary" in text
            if candidate.settings and not unfit:
                found.setdefault(candidate.name, candidate)
    return found


def _chosen(names: Sequence[str]) -> list[Candidate]:
    known = served_candidates()
    if not names:
        default = EXPERIMENTS["backends"].candidates
        return [c for c in default if c.name in known and c.socket != "tcp" and c.recommendable]
    for name in names:
        if name not in known:
            raise LabError(unknown_name("cache to serve", name, known))
    return [known[name] for name in names]


def _setup(
    wanted: ServeOptions, servers: Servers, stopping: Stopping
) -> tuple[dict[str, Any], dict[str, str]]:
    """What standalone.py reads, and what is left out with the reason."""
    web: dict[str, Any] = {
        "ACCESS": "anyone",  # of whoever reaches the address; it is this host unless told otherwise
        "WRITE_CHANCE": wanted.write_chance,
        "PAYLOAD": wanted.payload,
        "PRIVATE": not wanted.settings,
        "DIRECTORY": str(servers.directory / "samples"),
    }
    setup: dict[str, Any] = {
        "settings": wanted.settings,
        "caches": {},
        "web": web,
        "hosts": _hosts(wanted.bind),
        "secret": secrets.token_hex(),
    }
    if wanted.settings:
        web["ALIASES"] = list(wanted.aliases)
        return setup, {}
    missing: dict[str, str] = {}
    for candidate in _chosen(wanted.aliases):
        absent = [need for need in candidate.needs if find_spec(need.module) is None]
        try:
            for name in candidate.servers:
                with stopping.deferred():
                    servers.start(name)
        except ServerMissing as error:
            missing[candidate.name] = str(error)
            continue
        if absent:
            missing[candidate.name] = absent[0].install
            continue
        setup["caches"][candidate.name] = _filled(candidate, servers)
    if not setup["caches"]:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
        raise LabError(f"nothing is left to serve: {reasons}")
    # Django insists on this one; it is not under test unless it is asked for.
    web["ALIASES"] = list(setup["caches"])
    dummy = {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}
    setup["caches"].setdefault("default", dummy)
    return setup, missing


def _filled(candidate: Candidate, servers: Servers) -> Any:
    own = servers.directory / f"cache-{len(list(servers.directory.glob('cache-*')))}"
    own.mkdir(mode=0o700)
    places = {**servers.places(), "dir": str(own), "shm_path": f"{own}/cache"}
    return fill(candidate.settings, places)


def _start(wanted: ServeOptions, directory: Path, setup: dict[str, Any]) -> subprocess.Popen[bytes]:
    path = directory / "setup.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps(setup))
    config = directory / "gunicorn.conf.py"
    config.write_text(_gunicorn_config(wanted, directory))
    return subprocess.Popen(
        [sys.executable, "-m", "gunicorn", "-c", str(config), "nearcache.web.standalone"],
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for this process, which stops the others itself
        preexec_fn=child_setup(None),  # noqa: PLW1509 - we have one thread
        env={
            **os.environ,
            SETUP_VARIABLE: str(path),
            # The user's settings module is found as `python manage.py` would find it.
            "PYTHONPATH": os.pathsep.join([os.getcwd(), *filter(None, sys.path)]),
        },
    )


def _gunicorn_config(wanted: ServeOptions, directory: Path) -> str:
    """As a file: names that this version of gunicorn does not know are passed over there."""
    config = {
        "bind": [_address(wanted)],
        "workers": wanted.workers,
        "threads": wanted.threads,
        "worker_class": "gthread",
        "worker_tmp_dir": str(directory),
        "loglevel": "warning",
        "graceful_timeout": 2,
        "control_socket_disable": True,
    }
    return "".join(f"{name} = {value!r}\n" for name, value in config.items())


def _wait_until_it_answers(process: subprocess.Popen[bytes], wanted: ServeOptions) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError):
            if _answers(wanted):
                return
        time.sleep(POLL_S)
    raise LabError("the web server did not start; what it said is above")


def _answers(wanted: ServeOptions) -> bool:
    question = b"GET /summary?format=json HTTP/1.0\r\nHost: localhost\r\n\r\n"
    loopback = {"::": "::1", "0.0.0.0": "127.0.0.1"}  # noqa: S104
    host = loopback.get(wanted.bind, wanted.bind)
    with socket.create_connection((host, wanted.port), timeout=5) as connection:
        connection.sendall(question)
        return b" 200 " in connection.recv(64)


def _check_port(wanted: ServeOptions) -> None:
    family = socket.AF_INET6 if ":" in wanted.bind else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((wanted.bind, wanted.port))
    except OSError as error:
        raise LabError(
            f"cannot listen on {_address(wanted)}: {error.strerror}; give another --port or --bind"
        ) from error


def is_loopback(bind: str) -> bool:
    """Whether only this host reaches it. Raises LabError for what is no address."""
    try:
        return ipaddress.ip_address(bind).is_loopback
    except ValueError:
        raise LabError(f"--bind takes an IP address, not {bind!r}") from None


def _hosts(bind: str) -> list[str]:
    # Names are checked, so that no page of another site can reach us by a name of its own.
    return list(LOOPBACK_HOSTS) if is_loopback(bind) else ["*"]


def _address(wanted: ServeOptions) -> str:
    return (
        f"[{wanted.bind}]:{wanted.port}" if ":" in wanted.bind else f"{wanted.bind}:{wanted.port}"
    )


def _greeting(wanted: ServeOptions, setup: Mapping[str, Any], missing: Mapping[str, str]) -> str:
    here, own = f"http://{_address(wanted)}", wanted.settings is not None
    names = ", ".join(setup["web"]["ALIASES"]) or f"all caches of {wanted.settings}"
    lines = [
        f"{here}/random    one read of one of: {names}",
        f"{here}/<name>    one read of this one",
        f"{here}/summary   table and charts, live",
        "",
        *([f"store:    curl -X POST {here}/<name>    (a GET only reads yours)"] if own else []),
        f"load it:  wrk -d30s {here}/random && curl {here}/summary",
        f"{wanted.workers} processes of {wanted.threads} threads; Ctrl-C ends them",
    ]
    return "\n".join([*lines, *(f"not here: {name} ({why})" for name, why in missing.items())])
