"""For servers that speak ASGI."""

from __future__ import annotations

import os
from importlib import import_module

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.site.project.settings")
application = get_asgi_application()
import_module("tests.site.project.used").use()  # which needs the settings
