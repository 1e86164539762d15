"""``python -m tests.site.prefork METHOD PORT``: a server of our own, by multiprocessing.

The parent uses the site's caches, and starts workers by fork, spawn or forkserver, each with
threads. Who is killed is started anew.
"""

from __future__ import annotations

import multiprocessing
import signal
import socket
import sys
import threading
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

WORKERS = 2


class Quiet(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


class Threaded(ThreadingMixIn, WSGIServer):
    """On a socket that is there already."""

    daemon_threads = True

    def __init__(self, listening: socket.socket) -> None:
        address = listening.getsockname()
        super().__init__(address, Quiet, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.server_name, self.server_port = address
        self.setup_environ()


def serve(listening: socket.socket) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    from tests.site.project.wsgi import application

    server = Threaded(listening)
    server.set_app(application)
    server.serve_forever()


def main() -> None:
    method, port = sys.argv[1], int(sys.argv[2])
    context = multiprocessing.get_context(method)
    listening = socket.create_server(("127.0.0.1", port), backlog=64)
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    # Opens the caches here: a forked worker inherits connection and mapping.
    import tests.site.project.wsgi  # noqa: F401

    workers: list[multiprocessing.process.BaseProcess] = []
    while not over.wait(0.05):
        workers = [each for each in workers if each.is_alive()]
        while len(workers) < WORKERS:
            worker = context.Process(target=serve, args=(listening,))
            worker.start()
            workers.append(worker)
    for worker in workers:
        worker.terminate()
        worker.join()


if __name__ == "__main__":
    main()
