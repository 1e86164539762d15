"""Servers that are no Redis, or one that misbehaves as no Redis can be made to; and TLS files."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nearcache.engines.redis.target.target import Address
from nearcache.lab.servers import free_port

Talk = Callable[[socket.socket], None]


@contextlib.contextmanager
def stranger(talk: Talk) -> Iterator[Address]:
    """Listens on loopback; every connection is one call of ``talk``, in a thread."""
    listener = socket.create_server(("127.0.0.1", free_port()))
    threads: list[threading.Thread] = []
    peers: list[socket.socket] = []

    def serve(peer: socket.socket) -> None:
        # Whoever hangs up, or sends what is no command, ends the talk.
        with peer, contextlib.suppress(OSError, ValueError):
            talk(peer)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = listener.accept()
                peers.append(peer)
                threads.append(threading.Thread(target=serve, args=(peer,)))
                threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield Address(host="127.0.0.1", port=listener.getsockname()[1])
    finally:
        hang_up(listener)
        accepting.join()
        for peer in peers:
            hang_up(peer)
        for thread in threads:
            thread.join()
        listener.close()


def hang_up(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def replying(*replies: bytes) -> Talk:
    """One of these replies per command, in their order, then the end of the connection."""

    def talk(peer: socket.socket) -> None:
        commands = commands_of(peer)
        for reply in replies:
            if next(commands, None) is None:
                return
            peer.sendall(reply)

    return talk


def commands_of(peer: socket.socket) -> Iterator[list[bytes]]:
    """The commands that come, read one by one and no further."""
    file = peer.makefile("rb", buffering=0)
    with file:
        while head := file.readline():
            words = []
            for _ in range(int(head[1:])):
                length = int(file.readline()[1:])
                word = b""
                while len(word) < length + 2:
                    word += file.read(length + 2 - len(word)) or b""
                words.append(word[:-2])
            yield words


@dataclass(frozen=True)
class Certificate:
    """A key and a certificate for 127.0.0.1 that signs itself."""

    cert: Path
    key: Path

    @property
    def server_arguments(self) -> tuple[str, ...]:
        files = ("--tls-cert-file", str(self.cert), "--tls-key-file", str(self.key))
        return (*files, "--tls-ca-cert-file", str(self.cert), "--tls-auth-clients", "no")


def certificate(directory: Path) -> Certificate:
    made = Certificate(directory / "server.crt", directory / "server.key")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30"
    command += " -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    files = ["-out", str(made.cert), "-keyout", str(made.key)]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)
    return made
