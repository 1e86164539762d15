"""Django's own cache and session tests, from the sdist of the installed version."""
