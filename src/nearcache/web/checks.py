"""``manage.py check``: settings of the pages that cannot work, or let in more than meant.

nearcache.web.E001   NEARCACHE_WEB holds an unknown option or a bad value
nearcache.web.W001   nobody can come in: no authentication, and ACCESS is "staff"
nearcache.web.W002   an alias has the name of a page, or none
nearcache.web.W003   anyone may come in, and DEBUG is off
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.conf import settings
from django.core import checks

from nearcache.errors import OptionError
from nearcache.web.options import WebOptions, aliases_of, web_options

PAGES = ("random", "summary", "reset")
AUTHENTICATION = "AuthenticationMiddleware"


def check_settings(**_: Any) -> Sequence[checks.CheckMessage]:
    try:
        options = web_options()
    except OptionError as error:
        return [checks.Error(str(error), id="nearcache.web.E001")]
    return list(_warnings(options))


def _warnings(options: WebOptions) -> Iterator[checks.CheckMessage]:
    knows_users = any(name.endswith(AUTHENTICATION) for name in settings.MIDDLEWARE)
    if options.access == "staff" and not knows_users and not settings.DEBUG:
        yield checks.Warning(
            "nobody can come in: pages are for staff, and there is no AuthenticationMiddleware",
            hint='add it to MIDDLEWARE, or set NEARCACHE_WEB = {"ACCESS": "anyone"}',
            id="nearcache.web.W001",
        )
    for alias in aliases_of(options):
        if alias in PAGES:
            yield checks.Warning(
                f"the cache {alias!r} has the name of a page",
                hint=f"its reads are at run/{alias}" if alias != "random" else "rename it",
                id="nearcache.web.W002",
            )
        elif not alias:
            yield checks.Warning(
                f"the cache {alias!r} has no address of its own; only random reaches it",
                id="nearcache.web.W002",
            )
    if options.access == "anyone" and not settings.DEBUG:
        yield checks.Warning(
            "anyone may come in, write to the caches and reset the samples",
            hint="fine where nobody else reaches this host; silence it with SILENCED_SYSTEM_CHECKS",
            id="nearcache.web.W003",
        )
