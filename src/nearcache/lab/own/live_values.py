"""What is done with the bytes of a live Redis: decoded where that is safe, and written down.

Who stored them says how they are decoded: an alias of the user's settings, or, without
one, what their first bytes show (nearcache's header, Django's and django-redis's forms).
A pickle is decoded only when that was asked for. What is not decoded stays bytes.

The directory that is written is one that ``--data`` reads again:

    000123.json     a value that JSON holds exactly
    000123.pickle   another decoded value
    000123.stored   bytes as they were stored, not decoded
    _sample.json    where from, when, and what each file was: never a key
"""

from __future__ import annotations

import json
import os
import pickle
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nearcache.codec import codec_for, make_codec
from nearcache.codec.errors import Undecodable
from nearcache.errors import LabError, OptionError
from nearcache.lab.own.sampling import LiveSample
from nearcache.lab.workloads.fidelity import difference
from nearcache.recording.options import unrecorded

Decode = Callable[[bytes], Any]
FOREIGN = {
    "django.core.cache.backends.redis.RedisCache": "django",
    "django_redis.cache.RedisCache": "django-redis",
}


def decoder_of(entry: Mapping[str, Any] | None, *, pickles: bool) -> Decode:
    """A function from stored bytes to the value; it raises Undecodable.

    Raises:
        LabError: the alias's values cannot be decoded by anybody but itself.
    """
    if entry is None:
        codec = make_codec(read_formats=("django", "django-redis"), allow_pickle=pickles)
        return codec.decode
    entry = unrecorded(entry)
    backend = str(entry["BACKEND"])
    compat = FOREIGN.get(backend)
    if compat is None and backend != "nearcache.backends.RedisCache":
        raise LabError(
            f"values of a {backend} are in a form of its own; leave --from-alias out to guess"
        )
    return _of_redis(entry, compat, pickles)


def _of_redis(entry: Mapping[str, Any], compat: str | None, pickles: bool) -> Decode:
    from nearcache.django_cache.redis.options import RedisOptions

    given = {**(entry.get("OPTIONS") or {}), **({"compat": compat} if compat else {})}
    try:
        options = RedisOptions.parse({"LOCATION": entry.get("LOCATION") or "redis://", **given})
        if options.compat == "none":
            allowed = pickles and options.allow_pickle is not False
            return codec_for(replace(options, allow_pickle=allowed)).decode
        codec = codec_for(options)
    except (OptionError, ValueError) as error:
        raise LabError(f"the alias's OPTIONS cannot be used to decode: {error}") from error
    writes_pickles = options.serializer in ("auto", "pickle")
    if writes_pickles and not pickles:
        return _digits_only
    return codec.decode


def _digits_only(raw: bytes) -> Any:
    if raw.isdigit() and len(raw) < 19:
        return int(raw)
    raise Undecodable("a pickle, and --pickle was not given")


def write_values(
    found: LiveSample, decode: Decode, directory: Path
) -> tuple[Counter[str], Counter[str]]:
    """Write the values into this directory; how many became what, and why some stay stored."""
    kinds: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    index: list[dict[str, Any]] = []
    for number, taken in enumerate(found.taken):
        if taken.raw is None:
            continue
        suffix, data, why = _file_of(taken.raw, decode)
        if why:
            reasons[why] += 1
        kinds[suffix] += 1
        name = f"{number:06d}.{suffix}"
        _write(directory / name, data)
        index.append({"file": name, **{k: v for k, v in vars(taken).items() if k != "raw"}})
    about = {
        "from": found.source,
        "taken": f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC",
        "skipped": dict(found.skipped),
        "values": index,
    }
    _write(directory / "_sample.json", json.dumps(about, indent=1).encode())
    return kinds, reasons


def _file_of(raw: bytes, decode: Decode) -> tuple[str, bytes, str]:
    """(suffix, content, why it could not be decoded)."""
    try:
        value = decode(raw)
        as_json = _exact_json(value)
        if as_json is not None:
            return "json", as_json, ""
        return "pickle", pickle.dumps(value, pickle.HIGHEST_PROTOCOL), ""
    except Exception as error:  # noqa: BLE001 - decoding may run anybody's code
        return "stored", raw, _why(error)


def _why(error: BaseException) -> str:
    """The first fault of the chain, which is that of the value's own code; never a value."""
    while error.__cause__ is not None:
        error = error.__cause__
    return type(error).__name__


def _exact_json(value: Any) -> bytes | None:
    try:
        text = json.dumps(value)
        return text.encode() if difference(value, json.loads(text)) is None else None
    except (TypeError, ValueError, RecursionError):
        return None


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def new_directory(path: Path) -> Path:
    """An empty directory that only its owner can enter. Raises LabError."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise LabError(f"{path} is not empty; give a new directory to --save")
        path.chmod(0o700)
    except OSError as error:
        raise LabError(f"cannot write to {path}: {error.strerror}; give another --save") from error
    return path
