"""A test run has caches of its own, one set per worker, and leaves the live ones as they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.needs import need_installed
from tests.projects.made import Project, make_project
from tests.redis.servers import Server

ALONE = """
import os, subprocess, sys
from django.core.cache import cache, caches
from django.test import SimpleTestCase
from mysite import apps

class Alone(SimpleTestCase):
    def test_the_live_values_are_not_there_and_are_not_cleared(self):
        for alias in caches:
            self.assertIsNone(caches[alias].get("live"), alias)
            caches[alias].set("mine", alias)
            self.assertEqual(caches[alias].get("mine"), alias)
            self.assertEqual(caches[alias].keys(), ["mine"])
            caches[alias].clear()
            self.assertIsNone(caches[alias].get("mine"))
        caches["redis"].flush_all()
        for held in apps.held:
            self.assertIsNone(held.get("live"))
            held.clear()

    def test_a_process_that_a_test_starts_belongs_to_the_run(self):
        code = "import django; django.setup(); from django.core.cache import caches\\n"
        code += "print([caches[alias].get('mine') for alias in caches])"
        for alias in caches:
            caches[alias].set("mine", "of the run")
        environment = os.environ | {"DJANGO_SETTINGS_MODULE": "mysite.settings"}
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment
        )
        self.assertEqual(done.stdout.strip(), str(["of the run"] * len(list(caches))), done.stderr)
"""

PAIR = """
import pathlib, time
from django.core.cache import caches
from django.test import SimpleTestCase
from mysite import apps

HERE = pathlib.Path(__file__).parent

class {mine}(SimpleTestCase):
    def test_what_it_has_set_stays_while_another_worker_sets_and_clears(self):
        both = [*map(caches.__getitem__, caches), *apps.held]
        for at, cache in enumerate(both):
            cache.set(f"k{{at}}", "{mine}")
        self.meet("set")
        for at, cache in enumerate(both):
            self.assertEqual(cache.get(f"k{{at}}"), "{mine}", cache)
        self.meet("read")
        if "{mine}" == "A":
            for cache in both:
                cache.clear()
        self.meet("cleared")
        for at, cache in enumerate(both):
            self.assertEqual(cache.get(f"k{{at}}"), None if "{mine}" == "A" else "B", cache)

    def meet(self, when):
        (HERE / f"{mine}-{{when}}").touch()
        give_up_at = time.monotonic() + 120
        while not (HERE / f"{other}-{{when}}").exists():
            self.assertLess(time.monotonic(), give_up_at, "the other worker did not come")
            time.sleep(0.01)
"""

APPS = """
from django.apps import AppConfig
from django.core.cache import caches

held = [caches[alias] for alias in caches]

class Mysite(AppConfig):
    name = "mysite"

    def ready(self):
        for alias in caches:
            caches[alias].get("live")  # before any runner has said that there are tests
"""

MANAGE = """
import multiprocessing, os, sys
if __name__ == "__main__":
    multiprocessing.set_start_method(os.environ.get("START", "fork"))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mysite.settings")
    from django.core.management import execute_from_command_line
    execute_from_command_line(sys.argv)
"""

RUNTESTS = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "mysite.settings"
import django
from django.conf import settings
from django.test.utils import get_runner
django.setup()
sys.exit(bool(get_runner(settings)().run_tests(["mysite.test_alone"])))
"""

SHM = "nearcache.backends.SharedMemoryCache"


def caches_of(path: str, redis_url: str) -> dict[str, Any]:
    options = {"OPTIONS": {"size": "2MB"}, "TIMEOUT": None}
    return {
        "default": {"BACKEND": SHM, **options},
        "named": {"BACKEND": SHM, "LOCATION": "named", **options},
        "path": {"BACKEND": SHM, "LOCATION": path, **options},
        "redis": {
            "BACKEND": "nearcache.backends.RedisCache",
            "LOCATION": redis_url,
            "KEY_PREFIX": "mysite",
            "TIMEOUT": None,
            "OPTIONS": {"flush_on_clear": True},
        },
    }


@pytest.fixture
def project(projects: Path, private_path: Path, redis_server: Server) -> Project:
    caches = caches_of(str(private_path / "cache"), f"unix://{redis_server.path}?db=0")
    made = make_project(projects / "site", "mysite", caches)
    made.write("manage.py", MANAGE)
    made.write("runtests.py", RUNTESTS)
    made.write("mysite/apps.py", APPS)
    made.write("mysite/test_alone.py", ALONE)
    for mine, other in ("AB", "BA"):
        made.write(f"mysite/test_pair_{mine}.py", PAIR.format(mine=mine, other=other))
    (made.root / "tmp").mkdir()
    made.shell("for each in caches: caches[each].set('live', each, None)")
    return made


RUNS = {
    "manage.py test": (["manage.py", "test", "mysite.test_alone"], {}),
    "runtests.py": (["runtests.py"], {}),
    "fork": (["manage.py", "test", "--parallel", "2"], {}),
    "spawn": (["manage.py", "test", "--parallel", "2"], {"START": "spawn"}),
    "pytest": (["-m", "pytest", "-q", "-p", "no:cacheprovider", "mysite/test_alone.py"], {}),
    "xdist": (
        ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "--dist", "loadfile"]
        + [f"mysite/test_pair_{each}.py" for each in "AB"],
        {},
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_test_run_has_its_own_caches_and_leaves_the_live_ones(
    project: Project, redis_server: Server, name: str
) -> None:
    command, environment = RUNS[name]
    if "pytest" in command:
        need_installed("pytest_django")
    temporary = project.root / "tmp"
    project.run(
        *command, DJANGO_SETTINGS_MODULE="mysite.settings", TMPDIR=str(temporary), **environment
    )
    live = "print([caches[each].get('live') for each in caches])"
    assert project.shell(live) == "['default', 'named', 'path', 'redis']"
    assert list(temporary.glob("nearcache-*")) == [], "the run's files end with it"
    with redis_server.client() as client:
        assert client.keys() == [b"mysite:1:live"], "so do its keys"


def test_what_a_killed_run_left_goes_when_the_next_begins(projects: Path) -> None:
    made = make_project(projects / "site", "mysite")
    code = "import os; from django.core.cache import cache; cache.set('k', 1); {}"
    for end, left in (("os.kill(os.getpid(), 9)", 1), ("cache.get('k')", 0)):
        made.run(
            "-c",
            "import django; django.setup(); from django.test.utils import setup_test_environment\n"
            "setup_test_environment(); " + code.format(end),
            fails=bool(left),
            DJANGO_SETTINGS_MODULE="mysite.settings",
            PYTHONPATH=str(made.root),
            TMPDIR=str(projects),
        )
        assert len(list(projects.glob("nearcache-tests-*"))) == left


def test_tests_may_use_the_configured_cache_if_it_is_said(projects: Path) -> None:
    options = {"size": "2MB", "tests": "live"}
    made = make_project(
        projects / "site", "mysite", {"default": {"BACKEND": SHM, "OPTIONS": options}}
    )
    made.shell("cache.set('k', 'live')")
    code = "from django.test.utils import setup_test_environment as s; s(); print(cache.get('k'))"
    assert made.shell(code) == "live"


LIVE_SITE = """
import pathlib
from nearcache.django_cache.placement import test_run

pathlib.Path("said").write_text(str(test_run.running()))

def application(environ, start_response):
    raise NotImplementedError
"""


def test_a_live_site_whose_name_is_test_is_no_test_run(tmp_path: Path) -> None:
    """``python -m gunicorn test`` looks like a ``manage.py test`` of a project."""
    need_installed("gunicorn")
    (tmp_path / "test.py").write_text(LIVE_SITE)
    live = {name: value for name, value in os.environ.items() if not name.startswith("NEARCACHE")}
    serve = [sys.executable, "-m", "gunicorn", "test", "--check-config"]
    subprocess.run(serve, cwd=tmp_path, env=live, check=True)
    assert (tmp_path / "said").read_text() == "False"
