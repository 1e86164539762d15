"""A cache as the user's own Django settings name it."""

from __future__ import annotations

import os
import sys
from typing import Any

from nearcache.errors import EngineError, NearcacheError, OptionError


def cache_of_site(settings: str | None, alias: str) -> Any:
    """The cache of ``alias``; ``settings`` is a module, else DJANGO_SETTINGS_MODULE names it.

    Raises:
        OptionError: there is no such alias, or its entry is wrong.
        EngineError: the settings do not import.
    """
    from django.core.cache import InvalidCacheBackendError, caches
    from django.core.exceptions import ImproperlyConfigured

    if settings:
        os.environ["DJANGO_SETTINGS_MODULE"] = settings
    sys.path.insert(0, os.getcwd())  # as manage.py has it
    try:
        return caches[alias]
    except InvalidCacheBackendError as error:
        raise OptionError("CACHES", alias, str(error)) from error
    except (ImproperlyConfigured, NearcacheError):
        raise
    except Exception as error:
        # Settings are code: whatever it raises, the user has to mend it there.
        module = os.environ.get("DJANGO_SETTINGS_MODULE")
        raise EngineError(f"settings {module!r} do not import: {error!r}") from error
