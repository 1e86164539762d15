"""A crowd in a process of its own: ``python -m nearcache.lab.arms.crowd``.

gevent replaces parts of the standard library, and who imported them before keeps the
originals. So the first thing here, before redis-py, Django or anything of ours that uses
a lock is imported, is to hear whether to patch and to do it. What was patched, and what
had been imported before, is part of the proof.

Then it answers, for as long as the pipe is open: so many contenders, for so long.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from nearcache.lab.arms.child_link import Link

# Whoever of these is there too early would keep locks, sockets or queues of its own.
TOO_EARLY = ("redis", "django", "asyncio", "socket", "queue", "threading", "ssl")
PATCHABLE = ("socket", "thread", "threading", "select", "time", "queue")


def main() -> None:
    link = Link()
    order = link.hear()
    if order is None:
        return
    try:
        patched = patch(order["queue"]) if order["style"] == "greenlets" else {}
    except ImportError as error:
        link.miss(f"gevent does not import: {error}", "pip install gevent")
        return
    serve(link, order, patched)


def patch(queue: str) -> dict[str, str]:
    """Monkey-patch, with the standard queues or without. Returns what that came to."""
    early = [name for name in TOO_EARLY if name in sys.modules]
    from gevent import __version__, monkey

    monkey.patch_all(queue=queue == "patched")
    return {
        "gevent": __version__,
        "imported before the patch": ", ".join(early) or "none of redis, django, queue, socket",
        "patched modules": ", ".join(n for n in PATCHABLE if monkey.is_module_patched(n)),
        "patch_all": "patch_all()" if queue == "patched" else "patch_all(queue=False)",
    }


def serve(link: Link, order: Mapping[str, Any], patched: Mapping[str, str]) -> None:
    """Become the client, prove it, and run rounds until the parent hangs up."""
    from nearcache.lab.arms.crowd_clients import open_client
    from nearcache.lab.arms.crowd_styles import Times, open_style

    _many_files()
    try:
        style = open_style(order["style"], order["server_pid"])
        client = open_client(order, style.run)
        link.say({"proof": {**patched, **client.proof()}})
        while (question := link.hear()) is not None:
            times = Times(question["lead_s"], question["measured_s"])
            link.say(style.round(client, question["contenders"], times))
    except BaseException as error:  # noqa: BLE001 - it travels to whoever asked
        link.fail(error)


def _many_files() -> None:
    """As many sockets as this user may have at all: a pool without a limit wants one each."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    main()
    os._exit(0)  # sockets and threads end with the process; nothing is left to save
