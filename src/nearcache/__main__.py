"""The command line as a program: ``nearcache``, or ``python -m nearcache``.

Ctrl-C while modules are imported ends it at once: nothing has begun, and nobody needs a
traceback. From then on whoever runs decides what is put away first.
"""

from __future__ import annotations

import os
import signal


def main() -> None:
    signal.signal(signal.SIGINT, lambda number, _frame: os._exit(128 + number))
    from nearcache.cli import main as command

    signal.signal(signal.SIGINT, signal.default_int_handler)
    command(prog_name="nearcache")


if __name__ == "__main__":
    main()
