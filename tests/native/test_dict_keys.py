"""The keys of decoded dicts: shared while they recur, and free when nobody has them any more."""

from __future__ import annotations

import gc
import sys

from nearcache import _core

KEYS_OF_A_DICT = 100
MANY_KEYS = 2_000_000
# As many interned keys take 120 MB and more.
GROWTH_BYTES_MAX = 24 << 20


def decoded_key(key: str) -> str:
    (found,) = _core.decode(_core.encode({key: 1}))
    assert found == key
    return found


def resident_bytes() -> int:
    gc.collect()
    with open("/proc/self/status") as status:
        (line,) = (line for line in status if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def decode_many(first: int, keys: int) -> None:
    for start in range(first, first + keys, KEYS_OF_A_DICT):
        payload = _core.encode({f"user-{start + at}": at for at in range(KEYS_OF_A_DICT)})
        assert len(_core.decode(payload)) == KEYS_OF_A_DICT


def test_a_key_that_recurs_is_one_object() -> None:
    assert decoded_key("recurring_name") is decoded_key("recurring_name")


def test_a_decoded_key_is_not_interned() -> None:
    name = "named nowhere else"
    key = decoded_key(name)
    assert sys.intern(name[:5] + name[5:]) is not key


def test_dicts_whose_keys_are_ids_take_no_more_memory_with_every_id() -> None:
    decode_many(0, 20_000)
    before = resident_bytes()
    decode_many(20_000, MANY_KEYS)
    assert resident_bytes() - before < GROWTH_BYTES_MAX
