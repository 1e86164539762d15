"""Settings for Django's own tests; the backend under test comes from the environment."""

import json
import os

SECRET_KEY = "for tests only"
USE_TZ = False
DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
    "other": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
}
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.sites",
    "django.contrib.sessions",
    "django.contrib.messages",
    "cache",
    "sessions_tests",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
]
SITE_ID = 1
CACHES = {
    "default": {
        "BACKEND": os.environ["NEARCACHE_TEST_BACKEND"],
        "LOCATION": os.environ["NEARCACHE_TEST_LOCATION"],
        "OPTIONS": json.loads(os.environ["NEARCACHE_TEST_OPTIONS"]),
    }
}
OTHER_LOCATION = f"{os.environ['NEARCACHE_TEST_LOCATION']}-other"
