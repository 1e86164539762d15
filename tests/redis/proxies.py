"""A proxy before a redis-server that throttles, withholds or cuts what passes through it.

pace          bytes of replies per hundredth of a second; None for all that there are
hold:NAME     in a command: from its reply on the connection is silent, until any connection
              has sent release:NAME
cut           says of the commands that came in one read: None, or what to do with the
              connection. "before": end it, the commands never reach the server. "after":
              end it when the server has carried them out; nobody hears the reply
"""

from __future__ import annotations

import contextlib
import re
import select
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator

from nearcache.engines.redis.target.target import Address
from tests.redis.servers import Server
from tests.redis.strangers import stranger

Cut = Callable[[bytes], str | None]
MARK = re.compile(rb"(hold|release):([a-z]+)")


class Proxy:
    """See the head of this module."""

    address: Address

    def __init__(self, server: Server) -> None:
        self.pace: int | None = None
        self.cut: Cut = lambda commands: None
        self.carried_out: Callable[[], object] = lambda: None
        """Called before a connection is cut "after"."""
        self._server = server
        self._gates: dict[bytes, threading.Event] = defaultdict(threading.Event)

    def release(self, name: str) -> None:
        self._gates[name.encode()].set()

    def talk(self, peer: socket.socket) -> None:
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(self._server.path)
            held: threading.Event | None = None
            while True:
                held = None if held is None or held.is_set() else held
                awaited = [peer] if held else [peer, server]
                ready = select.select(awaited, [], [], 0.005 if held else None)[0]
                if peer in ready:
                    commands = peer.recv(1 << 20)
                    if not commands or not self._forward(commands, server):
                        return
                    held = self._gate(commands) or held
                elif server in ready and not self._answer(server, peer):
                    return

    def _forward(self, commands: bytes, server: socket.socket) -> bool:
        """False if the connection is to be cut."""
        how = self.cut(commands)
        if how == "before":
            return False
        server.sendall(commands)
        if how == "after":
            server.recv(1 << 20)
            self.carried_out()
        return how is None

    def _gate(self, commands: bytes) -> threading.Event | None:
        """What the connection is silent until, from now on."""
        gate = None
        for what, name in MARK.findall(commands):
            if what == b"hold":
                gate = self._gates[name]
            else:
                self._gates[name].set()
        return gate

    def _answer(self, server: socket.socket, peer: socket.socket) -> bool:
        """False if there is nothing more to come."""
        replies = server.recv(self.pace or 1 << 20)
        peer.sendall(replies)
        if self.pace:
            time.sleep(0.01)
        return bool(replies)


@contextlib.contextmanager
def proxy(server: Server) -> Iterator[Proxy]:
    made = Proxy(server)
    with stranger(made.talk) as made.address:
        yield made
