"""Make a module truly absent from this process.

An option such as ``parser_class`` only asks a library not to use hiredis; redis-py
still imports it and packs commands with it. Here the import itself fails, as it would
on a machine where it was never installed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Absent(MetaPathFinder):
    def __init__(self, names: Sequence[str]) -> None:
        self.names = frozenset(names)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"{fullname} is hidden by the lab", name=fullname)
        return None


def seal_off(names: Sequence[str]) -> None:
    """From now on these top-level modules cannot be imported. Call before anything else."""
    for name in names:
        if name in sys.modules:
            raise RuntimeError(f"{name} is imported already, too late to hide it")
    if names:
        sys.meta_path.insert(0, _Absent(names))
