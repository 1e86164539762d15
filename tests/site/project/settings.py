"""Settings of the site; whoever starts it says where its caches, files and users are."""

from __future__ import annotations

import json
import os
from typing import Any

SITE: dict[str, Any] = json.loads(os.environ["TRIAL_SITE"])
"""``directory``: of all files; ``inside``: of the locks of the kernel that prove exclusion;
``caches``: as in Django; ``sessions``: engines that clients choose from; ``lock_s``: lifetime of a
lock whose holder died; ``wait_s``: how long a view waits for a lock.
"""

SECRET_KEY = "of a test"
ALLOWED_HOSTS = ["*"]
USE_TZ = True
ROOT_URLCONF = "tests.site.project.urls"
INSTALLED_APPS = ["django.contrib.sessions"]
MIDDLEWARE = [
    "tests.site.project.middleware.Interrupted",
    "tests.site.project.middleware.EitherSession",
]
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates"}]
CACHES = SITE["caches"]
SESSION_ENGINE = SITE["sessions"][0]
SESSION_CACHE_ALIAS = "sessions"
CACHE_MIDDLEWARE_ALIAS = "pages"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.path.join(SITE["directory"], "database"),
        # A machine that stands still is no fault, and what a crash of the host loses is no matter.
        "OPTIONS": {"timeout": 60, "init_command": "PRAGMA synchronous=OFF;"},
    }
}
