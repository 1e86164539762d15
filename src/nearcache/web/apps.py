"""The app for ``INSTALLED_APPS``: it has no models, and brings the checks."""

from __future__ import annotations

from django.apps import AppConfig


class WebConfig(AppConfig):
    name = "nearcache.web"
    label = "nearcache_web"
    verbose_name = "Cache lab"

    def ready(self) -> None:
        from django.core.checks import register

        from nearcache.web.checks import check_settings

        register(check_settings)
