"""The app for ``INSTALLED_APPS``: it has no models, and brings the checks of the caches."""

from __future__ import annotations

from django.apps import AppConfig


class NearcacheConfig(AppConfig):
    name = "nearcache"
    label = "nearcache"
    verbose_name = "Caches"

    def ready(self) -> None:
        from django.core.checks import Tags, register

        from nearcache.integrations.system_checks import check_caches, check_sessions

        register(check_caches, Tags.caches)
        register(check_sessions, Tags.caches)
