"""An alias of the user's own settings as a candidate: measured where it lives.

Only keys of the run's own random prefix are written, and nothing else can be (guard.py). They
are deleted after each visit or expire in ten minutes. A visit that might not fit is not made
(room.py). A shared-memory cache ages by every write, whoever makes it, so its twin is measured:
the same options, in a store of the run's own. One that is being recorded is measured without
that: the lab's calls are not the site's traffic. Secrets stay in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nearcache.lab.base.model import Candidate, Reach
from nearcache.recording.options import unrecorded

NOTE = "only keys of this run are written; they are deleted, or expire in ten minutes"
CULLED = "it holds {most} entries and drops others beyond: a visit that might not fit is not made"
OWN_STORE = "measured in a store of this run's own, with your options: yours is not opened"
UNRECORDED = "measured without its recording"
DROPS = "MAX_ENTRIES is {most}: beyond them it drops values, and this run stores fewer"
PRIVATE = ("LocMemCache", "DummyCache")
ON_THIS_HOST = ("FileBasedCache", "DjangoCache", "SharedMemoryCache")
CULLING = ("FileBasedCache", "DatabaseCache")
SHARED_MEMORY = "SharedMemoryCache"
DJANGO_MOST = 300


def own_alias(
    settings_module: str, alias: str, settings: Mapping[str, Any], databases: Any = None
) -> Candidate:
    """The candidate for this entry of the user's ``CACHES``."""
    entry = unrecorded(settings)
    classes = class_names(entry["BACKEND"])
    notes = [NOTE] if entry == settings else [NOTE, UNRECORDED]
    options = {**entry, **(entry.get("OPTIONS") or {})}
    most = options.get("MAX_ENTRIES", DJANGO_MOST)
    if classes & set(CULLING):
        notes.append(CULLED.format(most=most))
    if SHARED_MEMORY in classes:
        notes[0] = OWN_STORE
    if "LocMemCache" in classes:
        notes.append(DROPS.format(most=most))
    return Candidate(
        name=alias,
        title=f"{alias} of {settings_module}",
        family="yours",
        reach=reach_of(entry, databases),
        settings=entry,
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


def moved(entry: Mapping[str, Any], shm_path: str) -> dict[str, Any]:
    """The entry of ``CACHES`` that is measured: bare, and never the user's shared memory."""
    bare = unrecorded(entry)
    is_shared_memory = SHARED_MEMORY in class_names(bare["BACKEND"])
    return {**bare, "LOCATION": shm_path} if is_shared_memory else bare


def asks_server(candidate: Candidate) -> bool:
    """Whether another process answers, as far as the class tells."""
    return not class_names(candidate.settings["BACKEND"]) & {*PRIVATE, *ON_THIS_HOST}


def with_place(fault: str, settings: Mapping[str, Any]) -> str:
    """Many clients say that nobody answers, and not where they asked."""
    places = settings.get("LOCATION") or ""
    said = places if isinstance(places, str) else ", ".join(map(str, places))
    is_away = any(word in fault.lower() for word in ("[errno", "connect"))
    return f"{fault} (LOCATION {said})" if is_away and said and said not in fault else fault


def plain(value: Any) -> Any:
    """What of a user's settings can be sent to a worker, which has them from their module anyway.

    A KEY_FUNCTION that is a function, or a client object, would not arrive.
    """
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items() if isinstance(key, str)}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value if type(value) in (str, bytes, int, float, bool) else None


def class_names(backend: str) -> set[str]:
    """The class's name and those of its bases; only its own where it does not import here."""
    from django.utils.module_loading import import_string

    try:
        return {each.__name__ for each in import_string(backend).__mro__}
    except Exception:  # noqa: BLE001 - somebody's module; its worker will say what is wrong
        return {backend.rpartition(".")[2]}
