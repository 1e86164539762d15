"""An alias of the user's own settings as a candidate: measured where it lives.

Nothing is cleared or flushed, and only keys of a private namespace are written, which are
deleted after each visit or expire in ten minutes. Secrets stay in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nearcache.lab.model import Candidate, Reach

NOTE = "only keys of this run are written; they are deleted, or expire in ten minutes"
CULLED = (
    "it holds {most} entries: when it is full, keys of this run push out others, yours among them"
)
PRIVATE = ("LocMemCache", "DummyCache")
ON_THIS_HOST = ("FileBasedCache", "DjangoCache", "SharedMemoryCache")
CULLING = ("FileBasedCache", "DatabaseCache")
DJANGO_MOST = 300


def own_alias(
    settings_module: str, alias: str, settings: Mapping[str, Any], databases: Any = None
) -> Candidate:
    """The candidate for this entry of the user's ``CACHES``."""
    classes = class_names(settings["BACKEND"])
    notes = [NOTE]
    if classes & set(CULLING):
        options = {**settings, **(settings.get("OPTIONS") or {})}
        notes.append(CULLED.format(most=options.get("MAX_ENTRIES", DJANGO_MOST)))
    return Candidate(
        name=alias,
        title=f"{alias} of {settings_module}",
        family="yours",
        reach=reach_of(settings, databases),
        settings=dict(settings),
        settings_module=settings_module,
        alias=alias,
        note="; ".join(notes),
    )


def reach_of(settings: Mapping[str, Any], databases: Any = None) -> Reach:
    """Who else sees what is stored there: from the class, its bases and its location."""
    classes = class_names(settings["BACKEND"])
    if "RecordingCache" in classes:
        return reach_of(settings["OPTIONS"]["of"], databases)
    if classes & set(PRIVATE):
        return "process"
    if classes & set(ON_THIS_HOST):
        return "host"
    if "DatabaseCache" in classes:
        engine = str(((databases or {}).get("default") or {}).get("ENGINE", ""))
        return "host" if engine.endswith("sqlite3") else "network"
    places = settings.get("LOCATION") or ""
    listed = [places] if isinstance(places, str) else list(places)
    local = [str(place).startswith(("unix:", "/")) for place in listed]
    return "host" if local and all(local) else "network"


def class_names(backend: str) -> set[str]:
    """The class's name and those of its bases; only its own where it does not import here."""
    from django.utils.module_loading import import_string

    try:
        return {each.__name__ for each in import_string(backend).__mro__}
    except Exception:  # noqa: BLE001 - somebody's module; its worker will say what is wrong
        return {backend.rpartition(".")[2]}
