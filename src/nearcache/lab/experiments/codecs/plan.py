"""Which serializer, compressor and parser, for values in one Redis?

What is asked. json, ujson, orjson, msgpack, pickle and nearcache's own exact form, each
with no compressor, zlib, gzip, lzma, lz4, zstd, and zstd with a trained dictionary; the
parser of replies in C or in Python; through nearcache and, for what people run today,
through django-redis with its own classes. For each: time of a set and a get, bytes on the
wire and in the server, and which Python types come back as what they were.

How it is answered. Every candidate stores the same fixed values (100 bytes to 1 MB: a
dict, floats, HTML, JSON documents, rows of a queryset, an image that does not compress)
in one Redis, and every answer is compared with what was stored. A second, plain client
reads the raw bytes back: what they are is found by header, magic and parsing, so an
option that was ignored ends its candidate. Bytes on the wire are the server's own count.
Encoding and decoding are also timed alone, and the way to the server is measured on a
bare socket; from these the break-even map says what would win on another network, beside
how far that model is from what was measured here. A value that a serializer changes or
refuses is an outcome, has no time, and keeps it out of the overall order.

What seed 000 did. It stored, in each configuration, the list of how long its reads had
taken, and made it longer with every read. So every configuration had another value, of
another size; a third of the updates were lost, most where it was slowest; and floats that
are differences of a clock have few digits and compress as no other floats do. "hires" was
compared with itself: hiredis was installed, and redis-py uses it then without being told.
It recommended msgpack with zlib, which it had not measured, and was asked about lz4. The
growing list is here too, as G, with what it loses counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nearcache.lab.arms.candidates import DJANGO_REDIS, HIREDIS, OUR_REDIS
from nearcache.lab.base.model import (
    DIFFERS,
    Candidate,
    Claim,
    Experiment,
    Operation,
    Plan,
    Requirement,
)
from nearcache.lab.workloads import PAYLOAD_TITLES

LOCATION = "redis://127.0.0.1:{redis_port}/0"
ARTICLE = "000"


def _library(module: str, package: str = "") -> Requirement:
    return Requirement(module=module, install=f"pip install {package or module}")


ORJSON, UJSON, MSGPACK = _library("orjson"), _library("ujson"), _library("msgpack")
LZ4, ZSTD, PYZSTD = _library("lz4"), _library("zstandard"), _library("pyzstd")

# name -> its serializer option, what the stored bytes then are, what it needs
SERIALIZERS: dict[str, tuple[str, str, tuple[Requirement, ...]]] = {
    "auto": ("auto", "exact", ()),
    "pickle": ("pickle", "pickle", ()),
    "json": ("json", "json", ()),
    "orjson": ("json", "json", (ORJSON,)),
    "ujson": ("ujson", "ujson", (UJSON,)),
    "msgpack": ("msgpack", "msgpack", (MSGPACK,)),
}
COMPRESSORS: dict[str, tuple[Requirement, ...]] = {
    "none": (),
    "zlib": (),
    "gzip": (),
    "lzma": (),
    "lz4": (LZ4,),
    "zstd": (ZSTD,),
    "dict": (ZSTD,),
}
DICTIONARY_NOTE = (
    "its dictionary was trained on the lab's own kinds of values, not on those measured; make "
    "yours with `nearcache codec train`"
)


def _ours(serializer: str, compressor: str = "none", level: int | None = None) -> Candidate:
    """nearcache's RedisCache. ``dict`` is zstd with a dictionary that the arm trains."""
    option, form, needs = SERIALIZERS[serializer]
    options: dict[str, Any] = {"serializer": option}
    if compressor == "dict":
        options |= {"compressor": "zstd", "compress_dictionary": "{dir}/values.dict"}
    elif compressor != "none":
        options["compressor"] = compressor
    if level is not None:
        options["compress_level"] = level
    packed = [] if compressor == "none" else [compressor]
    leveled = [] if level is None else [str(level)]
    treatment: dict[str, Any] = {"serializer": option, "form": form, "compressor": compressor}
    if serializer == "json":
        treatment["without"] = ["orjson"]  # which the same option would use
    elif serializer == "orjson":
        treatment["library"] = "orjson"
    return Candidate(
        name="-".join(["nearcache", serializer, *packed, *leveled]),
        title=", ".join([f"nearcache, {serializer}", *packed, *(f"level {n}" for n in leveled)]),
        family="nearcache redis",
        reach="network",
        settings={
            "BACKEND": "nearcache.backends.RedisCache",
            "LOCATION": LOCATION,
            "OPTIONS": options,
        },
        options=treatment,
        needs=(OUR_REDIS, *needs, *COMPRESSORS[compressor]),
        servers=("redis",),
        socket="tcp",
        note=DICTIONARY_NOTE if compressor == "dict" else "",
        recommendable=compressor != "dict",  # nobody has this one's file
    )


def _exact(compressor: str = "none") -> Candidate:
    """``auto`` without pickle: what has no exact form is refused, and no pickle is read."""
    packed = {} if compressor == "none" else {"compressor": compressor}
    return Candidate(
        name="-".join(["nearcache-exact", *packed.values()]),
        title=", ".join(["nearcache, exact (never pickles)", *packed.values()]),
        family="nearcache redis",
        reach="network",
        settings={
            "BACKEND": "nearcache.backends.RedisCache",
            "LOCATION": LOCATION,
            "OPTIONS": {"serializer": "exact", **packed},
        },
        options={"serializer": "exact", "form": "exact", "compressor": compressor},
        needs=(OUR_REDIS, *COMPRESSORS[compressor]),
        servers=("redis",),
        socket="tcp",
    )


THEIR_SERIALIZERS: dict[str, tuple[str, str, tuple[Requirement, ...]]] = {
    "pickle": ("django_redis.serializers.pickle.PickleSerializer", "pickle", ()),
    "json": ("django_redis.serializers.json.JSONSerializer", "json", ()),
    "msgpack": ("django_redis.serializers.msgpack.MSGPackSerializer", "msgpack", (MSGPACK,)),
    "ujson": ("nearcache.lab.seed_serializers.UJSONSerializer", "json", (UJSON,)),
}
THEIR_COMPRESSORS: dict[str, tuple[str, tuple[Requirement, ...]]] = {
    "zlib": ("django_redis.compressors.zlib.ZlibCompressor", ()),
    "gzip": ("django_redis.compressors.gzip.GzipCompressor", ()),
    "lzma": ("django_redis.compressors.lzma.LzmaCompressor", ()),
    "lz4": ("django_redis.compressors.lz4.Lz4Compressor", (LZ4,)),
    "zstd": ("django_redis.compressors.zstd.ZStdCompressor", (PYZSTD,)),
}


def _theirs(serializer: str, compressor: str = "none", parser: str = "") -> Candidate:
    """django-redis with its own classes. ``hires``: hiredis by name, as seed 000 spelt it."""
    path, form, needs = THEIR_SERIALIZERS[serializer]
    options = {} if serializer == "pickle" else {"SERIALIZER": path}
    if compressor != "none":
        packer, more = THEIR_COMPRESSORS[compressor]
        options["COMPRESSOR"] = packer
        needs = (*needs, *more)
    if parser == "hires":
        options["PARSER_CLASS"] = "redis.connection._HiredisParser"
    in_python = parser == "python"
    words = [
        serializer,
        *([] if compressor == "none" else [compressor]),
        *([parser] * bool(parser)),
    ]
    return Candidate(
        name="-".join(["django-redis", *words]),
        title=", ".join([f"django-redis, {words[0]}", *words[1:]]),
        family="django-redis",
        reach="network",
        settings={
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": LOCATION,
            **({"OPTIONS": options} if options else {}),
        },
        options={"form": form, "compressor": compressor, "grows": True},
        needs=(DJANGO_REDIS, *needs, *(() if in_python else (HIREDIS,))),
        servers=("redis",),
        socket="tcp",
        parser="python" if in_python else "hiredis",
        hides=("hiredis",) if in_python else (),
        recommendable=serializer != "ujson" and not parser,
    )


def _in_python(candidate: Candidate) -> Candidate:
    """The same without hiredis in its process."""
    return replace(
        candidate,
        name=f"{candidate.name}-python",
        title=f"{candidate.title}, Python parser",
        parser="python",
        hides=("hiredis",),
        recommendable=False,
    )


OURS = [_ours(serializer, compressor) for serializer in SERIALIZERS for compressor in COMPRESSORS]
THEIRS = [
    *(_theirs(serializer) for serializer in THEIR_SERIALIZERS),
    *(_theirs("pickle", compressor) for compressor in THEIR_COMPRESSORS),
    _theirs("json", "zlib"),
    _theirs("msgpack", "zlib"),
    _theirs("msgpack", "lz4"),
    _theirs("pickle", parser="hires"),
    _theirs("pickle", parser="python"),
]
LEVELS = [_ours("auto", name, level) for name in ("zlib", "zstd") for level in (1, 9)]
CANDIDATES = (
    *THEIRS,
    *OURS,
    _exact(),
    _exact("zstd"),
    *LEVELS,
    _in_python(_ours("auto")),
)
QUICK = (
    "django-redis-pickle",
    "django-redis-json",
    "django-redis-msgpack",
    "django-redis-ujson",
    "django-redis-pickle-zlib",
    "django-redis-pickle-lzma",
    "django-redis-pickle-lz4",
    "django-redis-msgpack-zlib",
    "django-redis-pickle-hires",
    "django-redis-pickle-python",
    "nearcache-auto",
    "nearcache-auto-zlib",
    "nearcache-auto-lz4",
    "nearcache-auto-zstd",
    "nearcache-auto-dict",
    "nearcache-orjson",
    "nearcache-msgpack",
    "nearcache-pickle",
)


def _claims() -> Sequence[Claim]:
    default = "django-redis-pickle"

    def get(
        text: str,
        slow_ms: float,
        fast_ms: float,
        slow: str,
        fast: str,
        why: str,
        explains: Sequence[str] = DIFFERS,
    ) -> Claim:
        return Claim(
            article=ARTICLE,
            text=text,
            ratio=round(slow_ms / fast_ms, 3),
            slow=slow,
            fast=fast,
            operation="get",
            payload="F",
            why=why,
            explains=explains,
        )

    growing = "every configuration read a list of another length"
    return (
        get(
            "msgpack is the fastest serializer by a tiny margin",
            0.894, 0.830, default, "django-redis-msgpack", growing,
        ),
        get("json is fat and slow", 2.159, 0.894, "django-redis-json", default, growing),
        get(
            "ujson is nearly as fast as pickle",
            0.979, 0.894, "django-redis-ujson", default,
            "ujson 1.35 cut floats to ten digits, so it read less; today it keeps them",
            ("larger",),
        ),
        get(
            "zlib costs next to nothing",
            0.898, 0.894, "django-redis-pickle-zlib", default,
            "the network was slower than here, and the floats had few digits",
            ("larger",),
        ),
        get("lzma is slower", 1.261, 0.894, "django-redis-pickle-lzma", default, growing),
        get(
            "hiredis makes very little difference",
            0.894, 0.879, default, "django-redis-pickle-hires",
            "it was in use on both arms, and is here: this pair is A/A. What it is worth is "
            "django-redis-pickle-python beside django-redis-pickle",
            ("holds", "same", "unclear"),
        ),
        Claim(
            article=ARTICLE,
            text="zlib stores 3.5 times as much (3.2 times for equally many floats)",
            ratio=3.25,
            slow=default,
            fast="django-redis-pickle-zlib",
            operation="size",
            payload="F",
            why="differences of a clock have few digits; floats with all of theirs do not compress",
            explains=("same", "smaller"),
        ),
    )  # fmt: skip


CODECS = Experiment(
    name="codecs",
    question="Which serializer and compressor, for values in one Redis?",
    candidates=CANDIDATES,
    payloads={name: PAYLOAD_TITLES[name] for name in ("S", "F", "H", "T", "D", "Q", "L")},
    operations=(
        Operation(name="get"),
        Operation(name="set"),
        Operation(name="size", title="bytes of the stored value", unit="bytes"),
        Operation(
            name="ping",
            title="the network floor: PING on the bare socket",
            payload_free=True,
        ),
        Operation(
            name="grow",
            title="the articles' growing list (G): counted, never ranked",
            payload_free=True,
        ),
    ),
    baseline="django-redis-pickle",
    twins=("django-redis-pickle",),
    mix={"get": 0.90, "set": 0.10},
    plans={
        # More than sixty processes, each with Django, in every repetition: two of them leave time
        # for rounds enough to judge by.
        "full": Plan(repetitions=2, rounds=5, phase_ms=4, time_limit_s=420),
        "quick": Plan(
            repetitions=2,
            rounds=6,
            phase_ms=3,
            time_limit_s=44,
            candidates=QUICK,
            payloads=("S", "F", "H", "T", "D", "Q"),
        ),
    },
    claims=_claims(),
    contrasts={
        "lz4 instead of zlib (asked under the article, never answered)": (
            ("django-redis-pickle-lz4", "django-redis-pickle-zlib"),
            ("nearcache-auto-lz4", "nearcache-auto-zlib"),
        ),
        "msgpack with zlib (the article's choice, never measured there)": (
            ("django-redis-msgpack-zlib", "django-redis-pickle"),
            ("django-redis-msgpack-zlib", "django-redis-pickle-zlib"),
        ),
        "hiredis, or the parser in Python": (
            ("django-redis-pickle", "django-redis-pickle-python"),
            ("nearcache-auto", "nearcache-auto-python"),
        ),
        "hiredis named, or found by itself (A/A)": (
            ("django-redis-pickle-hires", "django-redis-pickle"),
        ),
        "nearcache's codec, or pickle": (
            ("nearcache-auto", "nearcache-pickle"),
            ("nearcache-auto", "django-redis-pickle"),
        ),
        "zstd, or zlib": (("nearcache-auto-zstd", "nearcache-auto-zlib"),),
        "a trained dictionary, or none": (("nearcache-auto-dict", "nearcache-auto-zstd"),),
    },
    cannot_answer=(
        "Another network: the break-even map is a model; measure there before you rely on it.",
        "Many clients at once: a server whose CPU or network is full gains more from small values.",
        "Values unlike these: run it on your own.",
        "Memory of a live server: fragmentation and neighbours are not in MEMORY USAGE.",
    ),
    arm="nearcache.lab.experiments.codecs.arm.CodecArm",
    views="nearcache.lab.experiments.codecs.findings",
)
