"""What others build on Django's caches, over both backends of ours.

The tests proper are in ``inside/``: they need a project with applications and a database, so
``test_integrations.py`` runs each of these files in a pytest of its own with ``settings.py``.
"""
