"""Tests that need the project of ``tests/integrations/settings.py``."""
