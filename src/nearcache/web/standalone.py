"""Django for the pages alone: what ``nearcache lab serve`` gives to its web server.

``NEARCACHE_WEB_SETUP`` is the path of a JSON file:

    settings   a settings module of the user's, or null
    caches     CACHES, where there is none
    web        NEARCACHE_WEB
    hosts      ALLOWED_HOSTS
    secret     the same for all workers: their samples are kept under a name made with it

A user's settings keep everything but the pages' own: their apps are loaded, as caches may
need them, and no middleware, URL or authentication of theirs is.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import django
from django.conf import Settings, settings
from django.core.asgi import get_asgi_application
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.core.wsgi import get_wsgi_application

from nearcache.web import SETUP_VARIABLE


def configure(setup: dict[str, Any]) -> None:
    own = {
        "ROOT_URLCONF": "nearcache.web.urls",
        "MIDDLEWARE": [],
        "DEBUG": False,
        "ALLOWED_HOSTS": setup["hosts"],
        "NEARCACHE_WEB": setup["web"],
        "APPEND_SLASH": False,
    }
    module = setup["settings"]
    if module:
        # The samples of two sites do not meet: their directory is named after this.
        os.environ["DJANGO_SETTINGS_MODULE"] = module
        settings.configure(Settings(module), **own)
    else:
        own |= {"CACHES": setup["caches"], "SECRET_KEY": setup["secret"], "USE_TZ": True}
        settings.configure(**own)
    django.setup()


def _application() -> tuple[WSGIHandler, ASGIHandler]:
    configure(json.loads(Path(os.environ[SETUP_VARIABLE]).read_text()))
    return get_wsgi_application(), get_asgi_application()


application, asgi_application = _application()
