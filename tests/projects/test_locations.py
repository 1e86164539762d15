"""Where a cache without a path lies: one place per project, the same for all of its processes."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nearcache.engines.shm import data_path
from tests.projects.made import README_FIRST, Project, make_project
from tests.projects.serving import page, serving

Eventually = Callable[..., None]
WHERE = "print(cache.path)"


def test_each_of_two_projects_serves_its_own_page(
    projects: Path, private_path: Path, eventually: Eventually
) -> None:
    alpha = make_project(projects / "alpha", "alpha")
    beta = make_project(projects / "beta", "beta")
    for project in (alpha, beta):
        with serving(project, private_path / project.package, eventually) as address:
            assert [page(address) for _ in range(6)] == [f"home of project {project.package}"] * 6
    assert alpha.shell("cache.clear()") == ""
    assert int(beta.shell("print(len(cache.keys()))")) > 0


@pytest.mark.parametrize("name", ["", "pages"])
def test_projects_of_one_name_in_two_places_are_two(projects: Path, name: str) -> None:
    caches = {"default": {**README_FIRST["default"], "LOCATION": name}}
    staging = make_project(projects / "staging", "mysite", caches)
    production = make_project(projects / "production", "mysite", caches)
    staging.shell("cache.set('k', 'of staging')")
    assert production.shell("print(cache.get('k'))") == "None"
    assert staging.shell("print(cache.get('k'))") == "of staging"


def test_all_processes_of_a_project_agree(projects: Path, tmp_path: Path) -> None:
    project = make_project(projects / "mysite", "mysite")
    project.write("beside.py", "from mysite.settings import *")
    inside = str(project.root / "mysite")
    seen = [
        project.shell(WHERE),
        project.shell(WHERE, cwd=tmp_path),
        project.shell(WHERE, DJANGO_SETTINGS_MODULE="mysite.settings"),
        # The same file under another name.
        project.shell(WHERE, DJANGO_SETTINGS_MODULE="settings", PYTHONPATH=inside),
        project.manage("shell", "-v", "0", "-c", f"from django.core.cache import cache; {WHERE}"),
        project.manage(
            "shell", "-v", "0", "-c", f"from django.core.cache import cache; {WHERE}", cwd=tmp_path
        ),
        project.run(
            "-m",
            "django",
            "shell",
            "-v",
            "0",
            "-c",
            f"from django.core.cache import cache; {WHERE}",
            DJANGO_SETTINGS_MODULE="mysite.settings",
        ).stdout.strip(),
        project.shell(
            f"from django.test import override_settings\nwith override_settings(A=1): {WHERE}"
        ),
    ]
    link = projects / "link"
    link.symlink_to(project.root)
    seen.append(Project(link, "mysite").shell(WHERE, cwd=tmp_path))
    assert len(set(seen)) == 1, seen


def test_another_settings_module_is_another_site(projects: Path) -> None:
    project = make_project(projects / "mysite", "mysite")
    project.write("mysite/second.py", "from mysite.settings import *")
    second = project.shell(WHERE, DJANGO_SETTINGS_MODULE="mysite.second")
    assert second != project.shell(WHERE)


def test_a_settings_package_is_the_module_it_was(projects: Path) -> None:
    project = make_project(projects / "mysite", "mysite")
    before = project.shell(WHERE)
    text = (project.root / "mysite" / "settings.py").read_text()
    (project.root / "mysite" / "settings.py").unlink()
    project.write("mysite/settings/__init__.py", text)
    assert project.shell(WHERE) == before


def test_a_new_release_finds_the_cache_warm_and_leaves_no_file(projects: Path) -> None:
    site = projects / "site"
    for release in ("20260101", "20260202"):
        make_project(site / "releases" / release, "mysite")
    first, second = (
        Project(site / "releases" / each, "mysite") for each in ("20260101", "20260202")
    )
    current = site / "current"
    current.symlink_to(first.root)
    Project(current, "mysite").shell("cache.set('k', 'warm')")
    current.unlink()
    current.symlink_to(second.root)
    assert Project(current, "mysite").shell("print(cache.get('k'))") == "warm"
    assert second.shell(WHERE) == first.shell(WHERE)
    other = make_project(projects / "other" / "releases" / "20260101", "mysite")
    assert other.shell(WHERE) != first.shell(WHERE)


def test_an_absolute_path_is_for_who_means_to_share(projects: Path, private_path: Path) -> None:
    caches = {"default": {**README_FIRST["default"], "LOCATION": str(private_path / "shared")}}
    make_project(projects / "alpha", "alpha", caches).shell("cache.set('k', 'shared')")
    beta = make_project(projects / "beta", "beta", caches)
    assert beta.shell("print(cache.get('k'))") == "shared"


SCRIPT = """
import django
from django.conf import settings
settings.configure({more}CACHES={caches!r})
django.setup()
from django.core.cache import cache
print(cache.path)
"""


def test_settings_without_a_module_are_told_by_their_urls_or_base_directory(
    projects: Path, tmp_path: Path
) -> None:
    def where(name: str, more: str, cwd: Path, launcher: str = "") -> str:
        project = Project(projects, name)
        project.write(f"{name}.py", SCRIPT.format(more=more, caches=README_FIRST))
        return project.run(
            *([launcher] if launcher else []), str(projects / f"{name}.py"), cwd=cwd
        ).stdout.strip()

    one = where("one", "ROOT_URLCONF=__name__, ", projects)
    assert one == where("one", "ROOT_URLCONF=__name__, ", tmp_path)
    # As a server imports it.
    imported = Project(projects, "one").run("-c", "import one", PYTHONPATH=str(projects))
    assert imported.stdout.strip() == one
    assert where("two", "ROOT_URLCONF=__name__, ", projects) != one
    based = where("three", "BASE_DIR='/srv/three', ", projects)
    assert where("four", "BASE_DIR='/srv/three', ", tmp_path) == based


def test_settings_that_nothing_tells_from_others_need_a_path(projects: Path) -> None:
    project = Project(projects, "none")
    project.write("none.py", SCRIPT.format(more="", caches=README_FIRST))
    says = project.run("none.py", fails=True).stderr
    assert "RegionError" in says
    assert "set LOCATION to an absolute path" in says


def test_files_of_projects_that_are_gone_can_be_removed(projects: Path) -> None:
    gone = make_project(projects / "gone", "gone")
    there = make_project(projects / "there", "there")
    paths = [Path(f"{each.shell(WHERE + '; cache.set(1, 1)')}") for each in (gone, there)]
    shutil.rmtree(gone.root)
    listed = {each["path"]: each for each in json.loads(shm("list", "--json"))}
    facts = [listed[str(data_path(str(path)))] for path in paths]
    assert [each["there"] for each in facts] == [False, True]
    assert [each["used"] for each in facts] == [False, False]
    assert facts[0]["name"] in shm("prune", "--dry-run")
    assert [data_path(str(path)).exists() for path in paths] == [True, True]
    with holding(paths[0]):
        shm("prune")
        assert data_path(str(paths[0])).exists(), "a process has it open"
    shm("prune")
    assert [data_path(str(path)).exists() for path in paths] == [False, True]
    assert not list(paths[0].parent.glob(f"{paths[0].name}.*"))
    assert there.shell("print(cache.get(1))") == "1"


def shm(*arguments: str) -> str:
    return Project(Path.cwd(), "").run("-m", "nearcache", "shm", *arguments).stdout


@contextlib.contextmanager
def holding(base: Path) -> Iterator[None]:
    """Another process has that cache open."""
    code = "import sys, nearcache._core as c; store = c.Store.existing(sys.argv[1]);"
    code += " print(1, flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(base)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout
        assert process.stdout.readline() == b"1\n"
        yield
    finally:
        process.communicate(b"\n")
