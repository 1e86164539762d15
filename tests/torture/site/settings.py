"""Settings of the site; the test says where the cache is."""

from __future__ import annotations

import os

SECRET_KEY = "of a test"
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "tests.torture.site.app"
CACHES = {
    "default": {
        "BACKEND": "nearcache.backends.SharedMemoryCache",
        "LOCATION": os.environ["TORTURE_LOCATION"],
        "OPTIONS": {"size": "8MB"},
    }
}
