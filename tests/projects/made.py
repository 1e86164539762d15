"""Real Django projects in a directory of the test: a settings module, views, and ``manage.py``."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MANAGE = """
import os, sys
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "{package}.settings")
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""

SETTINGS = """
from pathlib import Path
SECRET_KEY = "for tests only"
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "{package}.urls"
INSTALLED_APPS = ["{package}"]
USE_TZ = True
DATABASES = {{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}}}
CACHES = {caches!r}
"""

URLS = """
from django.core.cache import cache
from django.http import HttpResponse
from django.urls import path
from django.views.decorators.cache import cache_page

@cache_page(300)
def home(request):
    return HttpResponse("home of project {package}")

def get(request, key):
    return HttpResponse(str(cache.get(key)))

urlpatterns = [path("", home), path("get/<key>", get)]
"""

WSGI = """
import os
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "{package}.settings")
from django.core.wsgi import get_wsgi_application
application = get_wsgi_application()
"""

README_FIRST: dict[str, Any] = {
    "default": {"BACKEND": "nearcache.backends.SharedMemoryCache", "OPTIONS": {"size": "2MB"}}
}
"""README's first snippet, in small."""


@dataclass
class Project:
    """A project on disk; ``root`` holds ``manage.py``."""

    root: Path
    package: str

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))

    def environment(self, **more: str) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("DJANGO_", "PYTEST_", "NEARCACHE_"))
        }
        return kept | more

    def run(
        self, *command: str, cwd: Path | None = None, fails: bool = False, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=cwd or self.root,
            env=self.environment(**environment),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert bool(done.returncode) is fails, done.stdout + done.stderr
        return done

    def manage(self, *arguments: str, **how: Any) -> str:
        """What ``manage.py`` printed."""
        return self.run(str(self.root / "manage.py"), *arguments, **how).stdout.strip()

    def shell(self, code: str, **how: Any) -> str:
        """What that code printed; ``cache`` and ``caches`` are there."""
        head = "from django.core.cache import cache, caches\n"
        how.setdefault("cwd", self.root)
        script = f"import sys; sys.path.insert(0, {str(self.root)!r})\n"
        setup = "import os, django\n"
        setup += f"os.environ.setdefault('DJANGO_SETTINGS_MODULE', '{self.package}.settings')\n"
        setup += "django.setup()\n"
        return self.run("-c", script + setup + head + textwrap.dedent(code), **how).stdout.strip()


def make_project(
    root: Path, package: str, caches: dict[str, Any] | None = None, more: str = ""
) -> Project:
    """A project whose package is ``package``, with the caches given."""
    project = Project(root, package)
    values = {"package": package, "caches": README_FIRST if caches is None else caches}
    project.write("manage.py", MANAGE.format(**values))
    project.write(f"{package}/__init__.py", "")
    project.write(f"{package}/settings.py", SETTINGS.format(**values) + more)
    project.write(f"{package}/urls.py", URLS.format(**values))
    project.write(f"{package}/wsgi.py", WSGI.format(**values))
    return project
