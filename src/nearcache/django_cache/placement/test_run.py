"""Whether this process runs tests, and where its caches are then: apart, and gone with the run.

A test run must not see the live cache, let alone empty it, and its workers must not see each
other's. Django tells of a test run by ``setup_test_environment()``, which every runner calls;
what happens before it, while apps are loaded, is told by ``manage.py test`` on the command
line or by pytest-django. The mark in the environment is for what the tests start: a server
for a browser belongs to the run as well.

    $TMPDIR/nearcache-tests-<uid>-<random>/       one test run; locked while it lives
        <worker>/                                 one worker: of --parallel, or of xdist

A run removes its directory when it ends, and those of runs that were killed when it begins.
RedisCache has a namespace of the run in front of its keys instead (``django_cache/redis/``).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import sys
import tempfile
import weakref
from collections.abc import Callable
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, Protocol

from nearcache.base.living_directories import living_directory
from nearcache.base.per_process import Mutex

MARK = "NEARCACHE_TEST_RUN"
"""The environment variable that holds a run's directory."""
WORKER_MARK = "NEARCACHE_TEST_WORKER"
"""The same for the name of one of Django's workers."""
PREFIX = "nearcache-tests-"
MANAGE = {"manage.py", "django-admin", "django-admin.py"}
MOST_SIZE_BYTES = 32 << 20
"""A cache of a test run is not larger: there may be a worker for each core."""

_mutex = Mutex()
_at_end: dict[str, Finalize] = {}


def running() -> bool:
    """Whether tests run here."""
    utils = sys.modules.get("django.test.utils")
    return (
        hasattr(getattr(utils, "_TestState", None), "saved_data")
        or MARK in os.environ
        or "pytest_django.plugin" in sys.modules
        or (sys.argv[1:2] == ["test"] and _is_of_django(os.path.basename(sys.argv[0])))
    )


def _is_of_django(program: str) -> bool:
    # `python -m gunicorn test` serves a site that is called so; Django's commands load this.
    by_module = program == "__main__.py" and "django.core.management" in sys.modules
    return by_module or program in MANAGE


def directory() -> Path:
    """Where the caches of this worker are; it is there afterwards."""
    path = _run() / worker()
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def namespace() -> str:
    """What the keys of this worker begin with on a server; the same in all of its processes."""
    return f"{_run().name.removeprefix(PREFIX)}-{worker()}"


def worker() -> str:
    """The name of this worker of the run: of xdist, of Django, or of whose test started us."""
    of_xdist = os.environ.get("PYTEST_XDIST_WORKER", "main")
    of_django = getattr(sys.modules.get("django.test.runner"), "_worker_id", 0)
    if of_django:
        os.environ[WORKER_MARK] = f"{of_xdist}{of_django}"
    return re.sub(r"[^A-Za-z0-9]", "", os.environ.get(WORKER_MARK, of_xdist))


def at_end(name: str, clean: Callable[[], object]) -> None:
    """Has ``clean`` called when this process ends; once per name."""
    if name not in _at_end:
        # Not atexit: the workers of multiprocessing leave it out.
        _at_end[name] = Finalize(None, clean, exitpriority=1)


def _run() -> Path:
    with _mutex.now():
        path = os.environ.get(MARK)
        if path is None or not os.path.isdir(path):
            path = os.environ[MARK] = _begin()
        return Path(path)


def _begin() -> str:
    path = living_directory(f"{PREFIX}{os.geteuid()}-", Path(tempfile.gettempdir()))
    atexit.register(_end, path, os.getpid())
    return str(path)


def _end(path: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(path, ignore_errors=True)


# -- backends that are there when tests begin ------------------------------------------------


class Movable(Protocol):
    """A backend that uses another store in a test run."""

    def moved(self) -> None:
        """Tests have begun or ended, or another worker has: look again where the store is."""


_backends: weakref.WeakSet[Movable] = weakref.WeakSet()


def watch(backend: Movable) -> None:
    """Has the backend told when tests begin, or this process becomes a worker of its own."""
    utils: Any = sys.modules.get("django.test.utils")
    if utils is not None and not isinstance(utils._TestState, _Watched):
        # Django tells nobody; whoever has imported its functions by name uses this all the same.
        utils._TestState = _Watched("_TestState", (), dict(vars(utils._TestState)))
    if utils is not None or running():
        _backends.add(backend)


class _Watched(type):
    """The class of Django's ``_TestState``, whose ``saved_data`` is there while tests run."""

    def __setattr__(cls, name: str, value: object) -> None:
        super().__setattr__(name, value)
        _move_all()

    def __delattr__(cls, name: str) -> None:
        super().__delattr__(name)
        _move_all()


def _move_all() -> None:
    for backend in list(_backends):
        backend.moved()


def _in_child() -> None:
    # It may become another worker, and must not go on with its parent's caches. Which worker
    # is known later, at the first use: a prefix that is kept in an object would be too early.
    _at_end.clear()
    _move_all()
    if running():
        from django.core.cache import caches

        for alias in caches:
            with contextlib.suppress(AttributeError):
                del caches[alias]


os.register_at_fork(after_in_child=_in_child)
