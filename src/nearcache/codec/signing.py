"""Pickles with a signature before them: who cannot sign cannot make us unpickle.

    +----------------+--------------------------------------+
    | signature (16) | pickle                               |
    +----------------+--------------------------------------+

The signature is HMAC-SHA256 over the pickle, cut to 16 bytes, checked before a byte of the
pickle is looked at. The key is derived from the secret and the purpose written below, so the
secret may be one that signs other things as well, such as Django's ``SECRET_KEY``, and no
signature made for one purpose serves another. Compression is around all of it: what comes out
of a decompressor is bounded, and proves itself only here.

Not signed: values that are no pickles. Whoever may write the cache may put a forged string or
dict under any key; what the signature keeps from them is running code.

Not bound to the cache key, for the same reason: it would stop nobody from putting a plain value
of their own in the place of another, and it would cost `incr_version`, copies between tiers and
every tool that moves values as bytes. A pickle that we signed may thus be copied to another
key; give caches that must not trust each other's pickles a secret each.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from hashlib import sha256

SIGNATURE_BYTES = 16
_PURPOSE = b"nearcache: signed pickle, format 1\0"


class Signer:
    """Signs with the first secret, accepts every one."""

    __slots__ = ("_keys",)

    def __init__(self, secrets: Iterable[bytes]) -> None:
        self._keys = tuple(sha256(_PURPOSE + secret).digest() for secret in secrets)

    def sign(self, payload: bytes) -> bytes:
        return self._signature(self._keys[0], payload) + payload

    def verified(self, signed: bytes) -> bytes:
        """The payload; raises ValueError if none of the secrets signed it."""
        signature, payload = signed[:SIGNATURE_BYTES], signed[SIGNATURE_BYTES:]
        for key in self._keys:
            if hmac.compare_digest(signature, self._signature(key, payload)):
                return payload
        raise ValueError("not signed by any sign_key")

    @staticmethod
    def _signature(key: bytes, payload: bytes) -> bytes:
        return hmac.digest(key, payload, "sha256")[:SIGNATURE_BYTES]
