"""Locks, claims, single flight."""
