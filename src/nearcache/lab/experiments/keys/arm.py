"""Hash functions over keys, one statement at a time, and gets to hold them against.

A statement is compiled into a loop, as ``timeit`` does, so that no call of ours is timed
with it. The same loop with ``pass`` in it is timed after every batch; what both took is
reported, and the difference as a measure. A batch lasts some 100 microseconds, of which
two timestamps are a thousandth.

A candidate with an entry of ``CACHES`` is no hash: it is what a get takes.
"""

from __future__ import annotations

import platform
import random
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module, metadata
from pathlib import Path
from statistics import median
from time import perf_counter_ns as clock
from typing import Any

from nearcache.lab.arms.alias import AliasArm
from nearcache.lab.base.arm import Arm, Unavailable
from nearcache.lab.base.messages import Phase, Setup, Visit, Visited

BATCH_NS = 100_000
LEAST_BATCHES = 5
KEY_COUNT = 200  # distinct keys of one length
KEY_BYTES = 400_000  # of all keys together: they stay in the second-level cache
ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
# name of the function -> what it makes of b"abc": RFC 1321, FIPS 180-4, RFC 7693, the BLAKE3
# and xxHash repositories. Other digest sizes of BLAKE2 are other functions, and have none here.
KNOWN = {
    "md5": "900150983cd24fb0d6963f7d28e17f72",
    "sha1": "a9993e364706816aba3e25717850c26c9cd0d89d",
    "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    "sha512": "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
    "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
    "blake2b": "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1"
    "7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923",
    "blake2s": "508c5e8c327c14e2e1a72ba34eeb452f37458b209ed63a294d999b4c86675982",
    "blake3": "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85",
    "xxh3-64": "78af5f94892f3950",
    "xxh3-128": "06b05ab6733a618578af5f94892f3950",
}

Loop = Callable[[Sequence[Any]], None]


class WrongDigest(Exception):
    """A function does not give what it must; the message says for what."""


class KeysArm(Arm):
    """One hash function, or one cache whose gets the functions are held against."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        is_cache = bool(self.candidate.settings)
        self.inner: HashArm | AliasArm
        self.inner = AliasArm(setup) if is_cache else HashArm(setup)

    def begin(self) -> Mapping[str, str]:
        return self.inner.begin()

    def visit(self, visit: Visit) -> Visited:
        if isinstance(self.inner, HashArm):
            return self.inner.visit(visit)
        if "get" not in visit.operations:
            return Visited(phases=[])
        return self._gets(visit)

    def end(self) -> None:
        self.inner.end()

    def _gets(self, visit: Visit) -> Visited:
        """What the lab's loop for aliases takes for a small object; the set stays out."""
        found = self.inner.visit(
            Visit(
                payload="S",
                operations=["get"],
                round_id=visit.round_id,
                phase_ns=10 * visit.phase_ns,
                batch=visit.batch,
            )
        )
        return Visited(phases=[phase for phase in found.phases if phase.operation == "get"])


class HashArm(Arm):
    """Statements of one hash function. Proves the function by its published digest."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.call: str = self.candidate.options["call"]
        self.module: Any = None
        self.batches: dict[tuple[str, str], int] = {}

    def begin(self) -> Mapping[str, str]:
        if not self.call:
            return {"implementation": "none: the key as it is", "statement": "made = key"}
        name = self.call.partition(".")[0]
        try:
            self.module = import_module(name)
        except ImportError as error:
            raise Unavailable(f"{name} does not import: {error}", "another Python") from error
        self._prove_function()
        return {
            "implementation": implementation_of(self._object(b"abc")),
            "statement": f"made = {self.call}.hexdigest()",
            "SHA instructions": sha_instructions(),
        }

    def visit(self, visit: Visit) -> Visited:
        raw = keys_of(visit.payload, self.setup.seed)
        self._check(raw)
        texts = [key.decode() for key in raw]
        statements: dict[str, tuple[str, list[Any]]] = {
            "hexdigest": (self._statement("hexdigest()"), list(raw)),
            "digest": (self._statement("digest()"), list(raw)),
            "make_key": (self._statement("hexdigest()", "key.encode()"), list(texts)),
        }
        return Visited(
            phases=[
                self._phase(name, statement, keys, visit)
                for name, (statement, keys) in statements.items()
                if name in visit.operations
            ]
        )

    def _statement(self, method: str, key: str = "key") -> str:
        if not self.call:
            return "made = key"
        # A whole word of the call: "key" is the only one of them.
        return f"made = {self.call.replace('(key', f'({key}')}.{method}"

    def _phase(self, operation: str, statement: str, keys: list[Any], visit: Visit) -> Phase:
        timed, empty = self._loop(statement), self._loop("pass")
        batch = self._batch(visit.payload, operation, timed, keys)
        phase = Phase(operation, batch)
        keys = (keys * -(-batch // len(keys)))[:batch]
        spent = 0
        timings: list[float] = []
        empties: list[float] = []
        while spent < visit.phase_ns or len(timings) < LEAST_BATCHES:
            elapsed = _time(timed, keys)
            empties.append(_time(empty, keys) / batch)
            timings.append(elapsed / batch)
            phase.samples.append(round(elapsed / batch))
            phase.calls += batch
            spent += elapsed
        loop_ns, gross_ns = median(empties), median(timings)
        phase.point = gross_ns  # samples are whole nanoseconds, which is coarse for the fastest
        net_ns = max(0.0, gross_ns - loop_ns)
        phase.measures = {"empty loop": (loop_ns, "ns"), "without the loop": (net_ns, "ns")}
        phase.parts = {"empty loop": loop_ns, operation: net_ns}
        return phase

    def _batch(self, payload: str, operation: str, loop: Loop, keys: Sequence[Any]) -> int:
        """As many keys as take BATCH_NS; found once, so that rounds are alike."""
        if (payload, operation) not in self.batches:
            few = keys[:20]
            _time(loop, few)
            per_key = max(1.0, min(_time(loop, few) for _ in range(3)) / len(few))
            self.batches[payload, operation] = max(1, min(5000, int(BATCH_NS / per_key)))
        return self.batches[payload, operation]

    def _loop(self, statement: str) -> Loop:
        source = f"def loop(keys):\n    for key in keys:\n        {statement}\n"
        names: dict[str, Any] = {}
        if self.module is not None:
            names[self.module.__name__] = self.module
        exec(source, names)  # noqa: S102 - our own text, as timeit does
        made: Loop = names["loop"]
        return made

    def _object(self, key: bytes) -> Any:
        names = {self.module.__name__: self.module, "key": key}
        return eval(self.call, names)  # noqa: S307 - our own text

    def _prove_function(self) -> None:
        name = self.candidate.twin_of or self.candidate.name
        known = KNOWN.get(name.removesuffix("-builtin"))
        found = self._object(b"abc").hexdigest()
        if known is not None and found != known:
            raise WrongDigest(f"{name} of 'abc' is {found}, which is not its published digest")
        bits = self.candidate.options["bits"]
        if 4 * len(found) != bits:
            raise WrongDigest(f"{name} gives {4 * len(found)} bits, not {bits}")

    def _check(self, keys: Sequence[bytes]) -> None:
        """In two pieces it must give the same, and different keys different digests."""
        if not self.call:
            return
        made = [self._object(key).hexdigest() for key in keys]
        for key, digest in zip(keys, made, strict=True):
            pieces = self._object(key[:3])
            pieces.update(key[3:])
            if pieces.hexdigest() != digest or pieces.digest().hex() != digest:
                raise WrongDigest(f"a key of {len(key)} bytes has two digests")
        if len(set(made)) < len(set(keys)):
            raise WrongDigest("two keys have one digest")


def keys_of(payload: str, seed: int) -> list[bytes]:
    """Distinct keys of one length, or paths like those of the article. Same seed, same keys."""
    rng = random.Random(f"{seed}:keys:{payload}")
    if not payload.isdigit():
        return [_path(rng) for _ in range(KEY_COUNT)]
    length = int(payload)
    count = max(4, min(KEY_COUNT, KEY_BYTES // length))
    return ["".join(rng.choices(ALPHABET, k=length)).encode() for _ in range(count)]


def _path(rng: random.Random) -> bytes:
    """Like /updates/Django-1.3.1/Django-1.3.4/7858/ : a name, two versions, a number."""
    name = "".join(rng.choices(ALPHABET, k=rng.randint(4, 16))).capitalize()
    versions = [f"{name}-{rng.randint(0, 9)}.{rng.randint(0, 30)}" for _ in range(2)]
    return f"/updates/{'/'.join(versions)}/{rng.randint(1000, 99999)}/".encode()


def implementation_of(made: Any) -> str:
    """Whose code a hash object runs, and of which version."""
    module = type(made).__module__
    if module == "_hashlib":
        import ssl  # the same library; only this module names its version

        return ssl.OPENSSL_VERSION
    if module.startswith("_"):
        return f"CPython {platform.python_version()}, {module}"
    package = module.partition(".")[0]
    return f"{package} {metadata.version(package)}"


def sha_instructions() -> str:
    """What the processor says of itself; functions use them only if built to."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return "not shown"
    words = set(text.split())
    found = [flag for flag in ("sha_ni", "sha1", "sha2", "sha512") if flag in words]
    return ", ".join(found) or "none"


def _time(loop: Loop, keys: Sequence[Any]) -> int:
    start = clock()
    loop(keys)
    return clock() - start
