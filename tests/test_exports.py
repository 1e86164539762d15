"""What the package offers is what it says it offers."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import nearcache
from nearcache import _core, backends, errors
from nearcache.django_cache.adapter import SettingsError
from nearcache.engines.contract import Engine

SOURCE = Path(nearcache.__file__).parent


def test_the_version_is_one() -> None:
    assert nearcache.__version__ == version("nearcache")


@pytest.mark.parametrize("name", ["locked", "memoize"])
@pytest.mark.parametrize(
    "program",
    [
        "from nearcache import {0}; used = {0}",
        "from nearcache.{0} import {0}; used = {0}",
        "from nearcache.{0} import {0}; from nearcache import {0} as used",
        "from nearcache import {0} as used; from nearcache.{0} import {0}",
        "import nearcache; used = nearcache.{0}",
    ],
)
def test_decorators_by_their_short_path_and_by_the_old_one(
    private_path: Path, program: str, name: str
) -> None:
    entry = {
        "BACKEND": "nearcache.backends.SharedMemoryCache",
        "LOCATION": str(private_path / "cache"),
        "OPTIONS": {"size": "8MB"},
    }
    program = f"""
from django.conf import settings
settings.configure(CACHES={{"default": {entry}}})
{program.format(name)}
@used
def plain(): return 1
@used(timeout=3)
def with_options(): return 2
assert plain() == 1 and with_options() == 2
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_backends_exports_caches_and_their_options_only() -> None:
    own = {
        name
        for name, value in vars(backends).items()
        if inspect.isclass(value) and value.__module__ == backends.__name__
    }
    assert own <= set(backends.__all__)
    own = set(backends.__all__)
    assert {f"{name.removesuffix('Cache')}Options" for name in own if name.endswith("Cache")} <= own
    assert all(name.endswith(("Cache", "Options")) for name in own)


def test_every_declared_name_exists() -> None:
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        if parts[1] in {"lab", "__main__.py", "__main__"}:
            continue
        if parts[1:] == ("web", "standalone"):  # a settings module; `lab serve` says of what
            continue
        module = importlib.import_module(".".join(parts).removesuffix(".__init__"))
        for name in getattr(module, "__all__", []):
            assert hasattr(module, name), f"{module.__name__}.{name}"


def test_the_tree_of_errors_is_the_one_that_is_drawn() -> None:
    drawn = errors.__doc__ or ""
    for name, value in vars(errors).items():
        if inspect.isclass(value) and issubclass(value, Exception):
            assert name in drawn
            assert issubclass(value, errors.NearcacheError)
    assert issubclass(SettingsError, errors.OptionError)


def test_the_native_store_has_every_method_of_an_engine() -> None:
    methods = {name for name in vars(Engine) if not name.startswith("_")} | {"__len__"}
    assert not {name for name in methods if not hasattr(_core.Store, name)}


def test_the_package_is_typed() -> None:
    assert (SOURCE / "py.typed").exists()
    assert (SOURCE / "_core.pyi").exists()
