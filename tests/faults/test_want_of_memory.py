"""RLIMIT_AS is reached inside the native code: MemoryError, never the end of the process.

A failed allocation of Rust's own aborts. So whatever grows with a value asks for its room first,
and what could not be read for want of memory is not taken for absent.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.faults.beside import run

VALUES = {
    "ascii": 'N * "a"',
    "wide": 'N * "\\u20ac"',
    "bytes": 'N * b"b"',
    "texts": '[f"{i}" * 9 for i in range(N // 50)]',
    "dict": '{f"key{i}": {"text": f"{i}" * 9, "n": i} for i in range(N // 100)}',
    "ints": "list(range(N // 4))",
    "floats": "[i / 3 for i in range(N // 8)]",
    "long text": '{"text": N * "a"}',
    "decimals": '[__import__("decimal").Decimal(i) for i in range(N // 20)]',
    "big int": "1 << (8 * N)",
    "pickled": 'range(N), N * "a"',
}
CODE = """
    import django.conf
    django.conf.settings.configure()
    from nearcache.backends import RedisCache, SharedMemoryCache
    from nearcache._core import decode, encode
    N = 300_000
    value, other = ({value}), "other"
    cache = SharedMemoryCache(sys.argv[1], {{"OPTIONS": {{"size": "64MB"}}}})
    redis = RedisCache("redis://127.0.0.1:1", {{}})
    raw = encode(value)
    def done(work, what):
        try:
            result = work()
        except MemoryError:
            return refused.append(what)
        well.append(what)
        return result
    def limited(more):
        pages = int(open("/proc/self/statm").read().split()[0])
        return resource.setrlimit(resource.RLIMIT_AS, (4096 * pages + more, -1))
    well, refused = [], []
    for more in range(0, 12 * N, N):
        cache.set("stored", value, None)
        cache.set("counted", 1, None)
        before = resource.getrlimit(resource.RLIMIT_AS)
        limited(more)
        try:
            done(lambda: cache.set("new", value), "set")
            done(lambda: cache.set_many({{"a": value, "b": value}}), "set_many")
            done(lambda: cache.add("added", value), "add")
            done(lambda: redis._set_command("key", value), "redis set")
            done(lambda: redis._set_many_command({{"a": value, "b": value}}), "redis set_many")
            done(lambda: encode(value), "encode")
            got = done(lambda: cache.get("stored", other), "get")
            many = done(lambda: cache.get_many(["stored", "counted"]), "get_many")
            plain = raw and done(lambda: decode(raw), "decode")
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)
        assert got is None or got == value, "get took want of memory for a miss"
        assert many is None or many == {{"stored": value, "counted": 1}}, "so did get_many"
        assert plain is None or plain == value
        del got, many, plain
        cache.clear()
    assert refused and "get" in well and "set" in well, (set(refused), set(well))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS of Linux")
@pytest.mark.parametrize("name", VALUES)
def test_want_of_memory_is_a_memory_error(name: str, base: Path) -> None:
    # What glibc keeps for threads, 64 MB each, is counted already, and would be used first.
    run(CODE.format(value=VALUES[name]), base, MALLOC_ARENA_MAX="1")
