"""For servers that speak WSGI."""

from __future__ import annotations

import os
from importlib import import_module

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.site.project.settings")
application = get_wsgi_application()
import_module("tests.site.project.used").use()  # which needs the settings
