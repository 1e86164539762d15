"""``manage.py check`` opens each cache, and says what would fail at every request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.projects.made import Project, make_project
from tests.redis.servers import Server

SHM = "nearcache.backends.SharedMemoryCache"
REDIS = "nearcache.backends.RedisCache"
APP = 'INSTALLED_APPS += ["nearcache"]\n'


def memory(location: str = "", **options: Any) -> dict[str, Any]:
    return {"BACKEND": SHM, "LOCATION": location, "OPTIONS": {"size": "2MB", **options}}


def said(project: Project, *, fails: bool = False) -> str:
    return project.run("manage.py", "check", "--tag", "caches", fails=fails).stderr


def test_sound_caches_say_nothing(projects: Path, redis_server: Server) -> None:
    caches = {
        "default": memory(),
        "sessions": memory("sessions"),
        "far": {"BACKEND": REDIS, "LOCATION": f"unix://{redis_server.path}?db=0"},
        "other": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    }
    assert "nearcache." not in said(make_project(projects / "site", "mysite", caches, APP))


def test_what_would_fail_per_request_is_said_now(
    projects: Path, private_path: Path, redis_server: Server
) -> None:
    (private_path / "open").mkdir()
    (private_path / "open").chmod(0o755)
    caches = {
        "default": memory(str(private_path / "open" / "cache")),
        "forgiving": memory(str(private_path / "open" / "forgiving"), on_error="miss"),
        "large": memory(str(private_path / "large"), size="900GB"),
        "away": {"BACKEND": REDIS, "LOCATION": f"unix://{private_path}/nobody?db=0"},
        "denied": {
            "BACKEND": REDIS,
            "LOCATION": f"unix://{redis_server.path}?db=0",
            "OPTIONS": {"username": "nobody", "password": "wrong", "on_error": "miss"},
        },
    }
    text = said(make_project(projects / "site", "mysite", caches, APP), fails=True)
    assert text.count("(nearcache.E001)") == 4, text
    assert text.count("(nearcache.W001)") == 1, text
    for alias in caches:
        assert f"the cache {alias!r}" in text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("second", "problem"),
    [(memory(), "the same keys"), ({**memory(size="4MB"), "KEY_PREFIX": "s"}, "other sizes")],
    ids=["keys", "sizes"],
)
def test_aliases_that_meet_are_told(projects: Path, second: dict[str, Any], problem: str) -> None:
    caches = {"default": memory(), "sessions": second}
    text = said(make_project(projects / "site", "mysite", caches, APP))
    assert "(nearcache.W002)" in text
    assert problem in text


def test_projects_and_sites_that_meet_are_told(projects: Path, private_path: Path) -> None:
    caches = {"default": memory(str(private_path / "shared"))}
    alpha = make_project(projects / "alpha", "alpha", caches, APP)
    beta = make_project(projects / "beta", "beta", caches, APP)
    assert "W003" not in said(alpha)
    assert f"is used by {alpha.root}/alpha/settings as well" in said(beta)
    text = (alpha.root / "alpha" / "settings.py").read_text()
    alpha.write("alpha/settings.py", text.replace(":memory:", "/srv/other.sqlite3"))
    assert "another site of this project" in said(alpha)


SESSIONS = """
INSTALLED_APPS += ["nearcache"]
SESSION_ENGINE = "nearcache.sessions"
"""
OURS = 'MIDDLEWARE = ["nearcache.sessions.SessionMiddleware"]\n'
DJANGOS = 'MIDDLEWARE = ["django.contrib.sessions.middleware.SessionMiddleware"]\n'
DERIVED = """
MIDDLEWARE = ["mysite.middleware.Mine"]
"""


@pytest.mark.parametrize(
    ("more", "found"),
    [
        (OURS, None),
        (DERIVED, None),
        (DJANGOS, "W005"),
        (OURS + 'SESSION_CACHE_ALIAS = "sesions"\n', "E002"),
        (OURS + 'SESSION_CACHE_ALIAS = "forgiving"\n', "E002"),
        (OURS + 'NEARCACHE_SESSIONS = {"WHILE_AWAY": "404"}\n', "E002"),
        (DJANGOS + 'SESSION_ENGINE = "django.contrib.sessions.backends.db"\n', None),
    ],
    ids=["ours", "derived", "Django's", "no alias", "forgiving", "option", "another engine"],
)
def test_sessions_that_would_fail_are_told(
    projects: Path, redis_server: Server, more: str, found: str | None
) -> None:
    url = f"unix://{redis_server.path}?db=0"
    forgiving = {"BACKEND": REDIS, "LOCATION": url, "OPTIONS": {"on_error": "miss"}}
    caches = {"default": memory(), "forgiving": forgiving}
    project = make_project(projects / "site", "mysite", caches, SESSIONS + more)
    project.write(
        "mysite/middleware.py",
        """
        from nearcache.sessions import SessionMiddleware
        class Mine(SessionMiddleware): pass
        """,
    )
    text = said(project, fails=bool(found and found.startswith("E")))
    assert "Traceback" not in text
    assert (f"nearcache.{found}" in text) if found else ("nearcache." not in text), text
