"""Django settings of the test process; tests that need others override them."""

SECRET_KEY = "for tests only"
USE_TZ = True
INSTALLED_APPS: list[str] = []
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
CACHES = {"default": {"BACKEND": "tests.backends.classes.MemoryCache"}}
