"""Runs each class of tests of a module in a process of its own, all at once.

``python -m tests.django.side_by_side tests.django.redis_suite``: Django's ``test`` command per
class, forked after all imports, so that a class costs the time of its tests and little more.
(Django's ``--parallel`` does as much, but needs tblib to say which test failed.) Prints the
output of each, and ends with 1 if one failed.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import traceback
import unittest
from typing import IO

import django
from django.core.management import execute_from_command_line


def main(module_name: str, only: list[str]) -> int:
    django.setup()
    module = importlib.import_module(module_name)
    names = [name for name, value in vars(module).items() if _has_tests(value, module_name)]
    chosen = [name for name in names if not only or name in only]
    children = [_forked(f"{module_name}.{name}") for name in chosen]
    failed = 0
    for name, (pid, output) in zip(chosen, children, strict=True):
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        failed += status != 0
        output.seek(0)
        print(f"=== {name}: {'ok' if status == 0 else f'FAILED ({status})'}\n{output.read()}")
    print(f"{len(chosen)} classes, {failed} failed")
    return 1 if failed else 0


def _has_tests(value: object, module_name: str) -> bool:
    ours = isinstance(value, type) and value.__module__ == module_name
    return ours and issubclass(value, unittest.TestCase)


def _forked(label: str) -> tuple[int, IO[str]]:
    output = tempfile.TemporaryFile("w+")  # noqa: SIM115 - read when the child has ended
    pid = os.fork()
    if pid == 0:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        status = 1
        try:
            execute_from_command_line(["django", "test", "--noinput", label])
            status = 0
        except SystemExit as ended:
            status = int(bool(ended.code))
        except BaseException:  # noqa: BLE001 - the parent's frames must not see it
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    return pid, output


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
