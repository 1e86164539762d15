"""Decorators over any cache."""
