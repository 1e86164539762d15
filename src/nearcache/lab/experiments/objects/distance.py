"""A server that seems further away: ``python -m ...distance <fd> <port> <round trip in us>``.

Forwards TCP between a listening socket, which it inherits, and a port of this host. Every
byte arrives half a round trip after it was sent, each way, in order; bandwidth stays what
it is. A process of its own, so that it does not share the interpreter with who is timed.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from queue import SimpleQueue

from nearcache.lab.servers import child_setup, end_process

CHUNK_BYTES = 65536
Parcel = tuple[float, bytes]  # when it is due, and what


class Distance:
    """Starts the process. ``port`` is where the server now seems to listen."""

    def __init__(self, port: int, round_trip_ms: float) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = int(listener.getsockname()[1])
            words = [str(listener.fileno()), str(port), str(round(round_trip_ms * 1000))]
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, *words],
                pass_fds=[listener.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                preexec_fn=child_setup(None),  # noqa: PLW1509 - the worker has one thread
            )

    def end(self) -> None:
        end_process(self._process)


def main(descriptor: int, port: int, round_trip_us: int) -> None:
    with socket.socket(fileno=descriptor) as listener:
        while True:
            near, _ = listener.accept()
            far = socket.create_connection(("127.0.0.1", port))
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one_way_s = round_trip_us / 2e6
            forward(near, far, one_way_s)
            forward(far, near, one_way_s)


def forward(source: socket.socket, sink: socket.socket, delay_s: float) -> None:
    """Two threads: one takes note of when bytes came, one passes them on when they are due."""
    parcels: SimpleQueue[Parcel] = SimpleQueue()
    for target, arguments in ((_take, (source, parcels, delay_s)), (_pass_on, (parcels, sink))):
        threading.Thread(target=target, args=arguments, daemon=True).start()


def _take(source: socket.socket, parcels: SimpleQueue[Parcel], delay_s: float) -> None:
    data = b"-"
    while data:
        try:
            data = source.recv(CHUNK_BYTES)
        except OSError:
            data = b""  # a reset arrives as an end
        parcels.put((time.perf_counter() + delay_s, data))


def _pass_on(parcels: SimpleQueue[Parcel], sink: socket.socket) -> None:
    while True:
        due, data = parcels.get()
        time.sleep(max(0.0, due - time.perf_counter()))
        try:
            if not data:
                sink.shutdown(socket.SHUT_WR)
                return
            sink.sendall(data)
        except OSError:
            return  # the other side has left


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
