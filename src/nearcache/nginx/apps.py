"""The app for ``INSTALLED_APPS``: it has no models, and brings the check of the settings."""

from __future__ import annotations

from django.apps import AppConfig


class NginxConfig(AppConfig):
    name = "nearcache.nginx"
    label = "nearcache_nginx"
    verbose_name = "Purges of nginx"

    def ready(self) -> None:
        # Views are imported when the checks have been collected: too late for theirs.
        import nearcache.nginx.django.settings  # noqa: F401
