"""What a test cannot do without: skipped loudly where a user has not got it, a failure in CI.

A test that needs a kernel, a user or a compiler that CI cannot have says so itself.
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NoReturn

import pytest

# What pyproject.toml asks for below this Python only.
NOT_SINCE = {"pylibmc": (3, 12), "uvloop": (3, 15)}


def missing(what: str) -> NoReturn:
    """Ends the test, or the module if it is asked for while that is imported."""
    if os.environ.get("CI"):
        pytest.fail(f"{what}, and CI must have it", pytrace=False)
    pytest.skip(f"{what}: NOT TESTED", allow_module_level=True)


def need(*programs: str) -> None:
    """These programs are on the PATH."""
    for program in programs:
        if shutil.which(program) is None:
            missing(f"{program} is not installed")


def need_package(*modules: str) -> Any:
    """These modules can be imported; the last of them."""
    found = None
    for module in modules:
        if module in NOT_SINCE and sys.version_info >= NOT_SINCE[module]:
            pytest.importorskip(module, reason=f"{module} is not for this Python: NOT TESTED")
        try:
            found = import_module(module)
        except ImportError as error:
            missing(f"{module} does not import ({error})")
    return found


def need_installed(module: str) -> None:
    """It is there for what the test starts; here it is not imported, which has effects."""
    if find_spec(module) is None:
        missing(f"{module} is not installed")
