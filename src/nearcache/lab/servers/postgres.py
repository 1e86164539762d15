"""PostgreSQL: a cluster of its own, on a disk, as durable as it comes.

Nothing is tuned: fsync, synchronous_commit and full_page_writes keep their defaults (on),
and so does everything else, but that it listens on a unix socket only. Anybody who
connects is believed (``trust``), so the socket lies in a directory that only its owner
may enter.

PostgreSQL refuses to run as root. Root's lab therefore runs it as the user ``postgres``,
or ``nobody``: the outer directory stays root's, so that any later run may clear it away,
and the inner one belongs to that user.
"""

from __future__ import annotations

import os
import pwd
import signal
import struct
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from nearcache.errors import LabError
from nearcache.lab.base.directories import disk_parent, mount_of
from nearcache.lab.servers import Running, ServerMissing, Servers, as_user, user_group

PORT = "5432"  # names the socket; nothing listens on TCP
ROLE = "lab"
DATABASE = "postgres"  # the one that initdb makes
INSTALL = "apt install postgresql"
WHERE_DEBIAN_KEEPS_IT = Path("/usr/lib/postgresql")
INITDB_TIMEOUT_S = 60
# The fast way out: open transactions are rolled back, nobody is waited for.
FAST_SHUTDOWN = signal.SIGINT


def start_postgres(servers: Servers) -> Running:
    """A new cluster on a unix socket.

    Places: ``postgres_host`` (the directory of the socket), ``postgres_port``,
    ``postgres_user``, ``postgres_database``, ``postgres_mount`` (what its files lie on).
    """
    binary = find_postgres(servers)
    user = _unprivileged_user()
    home = _home(servers, user)
    _initdb(binary, home, user)
    command = [str(binary), "-D", str(home / "data"), "-k", str(home), "-p", PORT]
    command += ["-c", "listen_addresses=", "-c", "unix_socket_permissions=0700"]
    places = {
        "postgres_host": str(home),
        "postgres_port": PORT,
        "postgres_user": ROLE,
        "postgres_database": DATABASE,
        "postgres_mount": str(mount_of(home)),
    }
    return servers.launch(
        "postgres", command, f"{home}/.s.PGSQL.{PORT}", _greeting(), b"server_version\0", places,
        cwd=home, user=user, ends_by=FAST_SHUTDOWN,
    )  # fmt: skip


def django_database(places: Mapping[str, str]) -> dict[str, Any]:
    """An entry of ``DATABASES`` for this server; connections stay open."""
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": places["postgres_database"],
        "USER": places["postgres_user"],
        "HOST": places["postgres_host"],
        "PORT": places["postgres_port"],
        "CONN_MAX_AGE": None,
    }


def connection_string(places: Mapping[str, str]) -> str:
    """The same for psycopg."""
    return (
        f"host={places['postgres_host']} port={places['postgres_port']} "
        f"user={places['postgres_user']} dbname={places['postgres_database']}"
    )


def find_postgres(servers: Servers) -> Path:
    """The program ``postgres``: as given, on the PATH, or where Debian keeps it."""
    with suppress(ServerMissing):
        return Path(servers.find("postgres", ("postgres",), INSTALL)).resolve()
    found = sorted(WHERE_DEBIAN_KEEPS_IT.glob("*/bin/postgres"), key=_major_version)
    if not found:
        raise ServerMissing(("postgres",), INSTALL)
    return found[-1]


def _major_version(binary: Path) -> float:
    with suppress(ValueError):
        return float(binary.parts[-3])
    return 0.0


def _unprivileged_user() -> int | None:
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name).pw_uid
    raise LabError("postgres refuses to run as root, and there is no user postgres or nobody")


def _home(servers: Servers, user: int | None) -> Path:
    outer = servers.directory_in(disk_parent())
    home = outer / "pg"
    home.mkdir(mode=0o700)
    if user is not None:
        outer.chmod(0o711)  # to be passed through, not to be read
        os.chown(home, user, user_group(user))
    return home


def _initdb(binary: Path, home: Path, user: int | None) -> None:
    command = [str(binary.with_name("initdb")), "-D", str(home / "data"), "-U", ROLE]
    command += ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-instructions"]
    _run(command, home, user)


def _run(command: Sequence[str], home: Path, user: int | None) -> None:
    try:
        subprocess.run(
            command,
            cwd=home,
            check=True,
            capture_output=True,
            text=True,
            timeout=INITDB_TIMEOUT_S,
            **as_user(user),
        )
    except (OSError, subprocess.SubprocessError) as error:
        lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        said = lines[-1] if lines else type(error).__name__
        raise LabError(
            f"{command[0]} failed ({said}); run it by hand, or leave its candidates out"
        ) from error


def _greeting() -> bytes:
    """A StartupMessage of protocol 3.0; the server answers with its parameters."""
    body = struct.pack("!i", 196608)
    for text in ("user", ROLE, "database", DATABASE):
        body += text.encode() + b"\0"
    body += b"\0"
    return struct.pack("!i", len(body) + 4) + body
