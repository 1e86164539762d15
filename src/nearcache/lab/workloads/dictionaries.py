"""A zstd dictionary for the lab: trained on values of the same kinds, never on the measured ones.

A dictionary knows by heart what it was trained with. Were those the values that are then
measured, they would shrink to almost nothing, and no user would ever see that again. So
the training values come from other seeds: the same shapes and words, other content.
"""

from __future__ import annotations

from nearcache.lab.workloads import PAYLOADS

KINDS = {"S": 60, "H": 30, "D": 30}  # payload -> how many values of it
SIZE_BYTES = 16 * 1024
LEVEL = 3


def train_on_other_values(serializer: str, seed: int) -> bytes:
    """A dictionary for what ``serializer`` writes. The same for the same seed."""
    from nearcache.codec import HeaderCodec, make_codec
    from nearcache.codec.training import train

    codec = make_codec(serializer)
    assert isinstance(codec, HeaderCodec)
    values = [
        PAYLOADS[kind](seed + 1 + number).make(f"training:{number}", number)
        for kind, count in KINDS.items()
        for number in range(count)
    ]
    return train([codec.payload(value)[1] for value in values], SIZE_BYTES, LEVEL).dictionary
