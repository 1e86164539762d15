"""What does hashing a cache key cost, and is it worth a thought?

Seed 004 hashed 10,000 URL paths a thousand times with each function, in 2013 and 2017, and
stayed with SHA-1. It could not say why BLAKE2s beat BLAKE2b on a 64-bit machine, and it
timed loop, attribute look-ups and hexdigest together with the hash.

Here the same statement is timed over keys of seventeen lengths, around the ends of the blocks
that the functions work in: MD5, SHA-1, SHA-256 and BLAKE2s take 64 bytes at a time (the
first three need 9 of them for padding, so 55 bytes fit into one block and 56 do not),
SHA-512 and BLAKE2b take 128 (SHA-512 needs 17). A loop with nothing in it is timed beside
every batch, and both numbers are shown, so that the subtraction is in sight. Batches are
long enough that the clock does not matter. Every function first gives the published digest
of ``abc`` and then, for every key, what it gives when it is fed in two pieces.

Gets of the small object over Redis and from shared memory are timed in the same rounds, so
that the hash can be given as a share of what it is there for.

MD5 and SHA-1 are called with ``usedforsecurity=False``: a FIPS build refuses them otherwise.
Whoever may choose keys can make two that collide under MD5 or SHA-1, and even more easily
under xxHash, which is no cryptographic function at all.
"""

from __future__ import annotations

from collections.abc import Sequence

from nearcache.lab.arms.candidates import CANDIDATES, choose
from nearcache.lab.base.model import (
    DIFFERS,
    Candidate,
    Claim,
    Experiment,
    Operation,
    Plan,
    Requirement,
)

URLS = "url"
LENGTHS = (8, 32, 55, 56, 64, 65, 111, 112, 128, 129, 250, 251, 1024, 4096, 16384, 65536)
QUICK_LENGTHS = (8, 55, 56, 64, 65, 111, 112, 128, 129, 1024, 65536)
BLAKE3 = Requirement(module="blake3", install="pip install blake3")
XXHASH = Requirement(module="xxhash", install="pip install xxhash")


def _function(
    name: str,
    call: str,
    bits: int,
    family: str,
    block: int,
    needs: Requirement | None = None,
    note: str = "",
) -> Candidate:
    """``call`` makes the hash object of ``key``; its module is imported for it."""
    return Candidate(
        name=name,
        title=call.partition("(")[0] + (f", {bits // 8} bytes" if family == "blake" else ""),
        family=family,
        reach="process",
        options={"call": call, "bits": bits, "block_bytes": block},
        needs=(needs,) if needs else (),
        note=note,
        recommendable=False,
    )


def _hashlib(name: str, bits: int, family: str, block: int) -> Candidate:
    return _function(name, f"hashlib.{name}(key, usedforsecurity=False)", bits, family, block)


def _blake2(name: str, size: int, block: int) -> Candidate:
    call = f"hashlib.{name}(key, digest_size={size}, usedforsecurity=False)"
    return _function(f"{name}-{size}", call, 8 * size, "blake", block)


NOT_CRYPTOGRAPHIC = "not a cryptographic function: whoever chooses keys can make them collide"
PLAIN = Candidate(
    name="none",
    title="the plain key",
    family="none",
    reach="process",
    options={"call": "", "bits": 0, "block_bytes": 0},
    note="not hashed; memcached takes 250 bytes at most, without spaces and control characters",
    recommendable=False,
)
FUNCTIONS = (
    PLAIN,
    _hashlib("md5", 128, "md5", 64),
    _hashlib("sha1", 160, "sha", 64),
    _hashlib("sha256", 256, "sha", 64),
    _hashlib("sha512", 512, "sha", 128),
    _hashlib("blake2b", 512, "blake", 128),
    _blake2("blake2b", 32, 128),
    _blake2("blake2b", 20, 128),
    _blake2("blake2b", 16, 128),
    _hashlib("blake2s", 256, "blake", 64),
    _blake2("blake2s", 20, 64),
    _blake2("blake2s", 16, 64),
    _function("blake3", "blake3.blake3(key)", 256, "blake", 64, BLAKE3),
    _function("xxh3-64", "xxhash.xxh3_64(key)", 64, "xxh", 64, XXHASH, NOT_CRYPTOGRAPHIC),
    _function("xxh3-128", "xxhash.xxh3_128(key)", 128, "xxh", 64, XXHASH, NOT_CRYPTOGRAPHIC),
    _function(
        "sha1-builtin",
        "_sha1.sha1(key)",
        160,
        "sha",
        64,
        note="CPython's own C code, used where OpenSSL is not",
    ),
)
GETS = tuple(choose(CANDIDATES, ["shm", "redis-hiredis-unix", "nearcache-redis-hiredis-unix"]))


def _claim(
    text: str, *, slow: str, fast: str, ratio: float, why: str = "", explains: Sequence[str] = ()
) -> Claim:
    """All of them are about what the article hashed."""
    return Claim(
        article="004",
        text=text,
        ratio=ratio,
        slow=slow,
        fast=fast,
        operation="hexdigest",
        payload=URLS,
        why=why,
        explains=explains,
    )


KEYS = Experiment(
    name="keys",
    question="What does hashing a cache key cost?",
    candidates=(*FUNCTIONS, *GETS),
    payloads={
        URLS: "URL paths as in the article, 50 bytes or so",
        **{str(length): f"keys of {length:,} bytes" for length in LENGTHS},
    },
    operations=(
        Operation(name="hexdigest", title="one key to its hex digest, empty loop included"),
        Operation(name="digest", title="one key to its raw digest, empty loop included"),
        Operation(name="make_key", title="str to str: encode, hash, hex digest; loop included"),
        Operation(name="get", title="get of a small object, for comparison", payload_free=True),
    ),
    baseline="md5",
    twins=("md5", "redis-hiredis-unix"),
    arm="nearcache.lab.experiments.keys.arm.KeysArm",
    plans={
        "full": Plan(repetitions=5, rounds=6, phase_ms=2, time_limit_s=280),
        "quick": Plan(
            repetitions=2,
            rounds=6,
            phase_ms=0.6,
            time_limit_s=38,
            payloads=(URLS, *(str(length) for length in QUICK_LENGTHS)),
        ),
    },
    contrasts={
        "OpenSSL or CPython's own": (("sha1", "sha1-builtin"),),
        "a shorter digest of the same function": (
            ("blake2b-16", "blake2b"),
            ("blake2s-16", "blake2s"),
        ),
        "BLAKE2s or BLAKE2b": (("blake2s", "blake2b"),),
    },
    claims=(
        _claim(
            "BLAKE2s is the fastest (Python 3.6), SHA-1 next",
            slow="sha1",
            fast="blake2s",
            ratio=11.58 / 10.97,
            why="for 50 bytes a call costs more than what it computes; compare sha1-builtin, which "
            "does not go through OpenSSL",
            explains=DIFFERS,
        ),
        _claim(
            "BLAKE2s beats BLAKE2b although the machine has 64 bits",
            slow="blake2b",
            fast="blake2s",
            ratio=12.67 / 10.97,
            why="50 bytes fill one block of either; BLAKE2b works through 128 bytes in 12 rounds, "
            "BLAKE2s through 64 in 10, and writes half as long a digest",
            explains=("holds", "larger"),
        ),
        _claim(
            "MD5 is a little faster than SHA-1 (Python 2.6)",
            slow="sha1",
            fast="md5",
            ratio=11.87 / 10.16,
        ),
        _claim(
            "SHA-512 takes nearly twice the time of MD5 (Python 2.6)",
            slow="sha512",
            fast="md5",
            ratio=18.09 / 10.16,
        ),
    ),
    cannot_answer=(
        "Keys of your own: lengths and alphabet here are made up.",
        "Memory and network: a digest may be longer or shorter than the key it replaces.",
        "Other interpreters: what is called costs as much as what is computed, for short keys.",
    ),
    views="nearcache.lab.experiments.keys.findings",
)
