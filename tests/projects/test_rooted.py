"""Root by sudo has a cache of its own, and is told whose the site's is."""

from __future__ import annotations

import contextlib
import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nearcache.engines.shm import default_directory
from tests.projects.made import Project, make_project

SHM = "nearcache.backends.SharedMemoryCache"
APP = 'INSTALLED_APPS += ["nearcache"]\n'
BY_SUDO = {"SUDO_UID": "1000", "SUDO_USER": "alice"}
LOGGED = "import logging; logging.basicConfig(format='%(message)s', stream=sys.stdout)\n"
SITE = """
import os, sys
sys.path.insert(0, {root!r})
os.environ["DJANGO_SETTINGS_MODULE"] = "mysite.settings"
import django
django.setup()
from django.core.cache import cache
os.setgid({gid})
os.setuid({uid})
cache.set("k", "of the site")
print(cache.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def as_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("who is not root has no other user's files: sudo is NOT TESTED")


def memory(location: str = "") -> dict[str, Any]:
    return {"BACKEND": SHM, "LOCATION": location, "OPTIONS": {"size": "2MB"}}


@contextlib.contextmanager
def site_of(user: pwd.struct_passwd, project: Project) -> Iterator[None]:
    """A process of the project that runs as this user, and has its cache open."""
    code = SITE.format(root=str(project.root), uid=user.pw_uid, gid=user.pw_gid)
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=project.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        base = Path(process.stdout.readline().strip())
        assert base.parent == default_directory().with_name(f"nearcache-{user.pw_uid}")
        yield
    finally:
        process.communicate()
        for path in base.parent.glob(f"{base.name}.*"):
            path.unlink()
        with contextlib.suppress(OSError):  # it has others
            base.parent.rmdir()


def said(project: Project, **environment: str) -> str:
    return project.run("manage.py", "check", "--tag", "caches", **environment).stderr


def test_the_user_of_the_site_is_named_in_one_line_and_by_check(projects: Path) -> None:
    caches = {"default": memory(), "second": memory("second")}
    project = make_project(projects / "site", "mysite", caches, APP)
    user = pwd.getpwnam("nobody")
    with site_of(user, project):
        # Without sudo: `docker exec` makes root, too, and the site's cache is open.
        for environment in (BY_SUDO, {}):
            code = f"import sys; {LOGGED}caches['default'].clear(); caches['second'].clear()"
            (line,) = project.shell(code, **environment).splitlines()
            assert "is a cache of root's own, and that of user 'nobody' is another one" in line
            assert "Run `sudo -u nobody manage.py ...`" in line
            assert said(project, **environment).count("(nearcache.W004)") == 1


def test_where_no_site_runs_sudo_is_told_who_called_it(projects: Path) -> None:
    project = make_project(projects / "site", "mysite", None, APP)
    assert "sudo was called by 'alice'" in said(project, **BY_SUDO)
    assert "W004" not in said(project)
    assert "W004" not in said(project, SUDO_UID="0", SUDO_USER="root")


def test_a_path_is_one_file_for_all_users(projects: Path, private_path: Path) -> None:
    caches = {"default": memory(str(private_path / "cache"))}
    project = make_project(projects / "site", "mysite", caches, APP)
    assert "W004" not in said(project, **BY_SUDO)
