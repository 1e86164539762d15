"""From a cache key to its path, and from request headers to the file of a variant.

Source: ngx_http_file_cache_create_key, ngx_http_file_cache_vary and
ngx_create_hashed_filename in nginx. The path takes the characters of each level from
the end of the MD5 and moves to the left: with ``levels=1:2`` the key whose MD5 ends in
``...4461`` lies in ``1/46/``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import PurePosixPath

from nearcache.errors import NginxError

# The only headers whose values nginx brings into one form before it hashes them.
NORMALIZED = frozenset({"accept-encoding", "accept-language", "accept-charset"})
LEVELS = re.compile(r"[12](:[12]){0,2}")
EVERY_LEVELS = tuple(levels for depth in range(4) for levels in product((1, 2), repeat=depth))
"""All that nginx knows: 15."""


def parse_levels(text: str) -> tuple[int, ...]:
    """``"1:2"`` as ``(1, 2)``; an empty text, as where nginx has no ``levels``, as ``()``."""
    if not text:
        return ()
    if not LEVELS.fullmatch(text):
        raise NginxError(f"levels={text} is not what nginx takes: up to three of 1 or 2, as 1:2")
    return tuple(int(level) for level in text.split(":"))


def name_of(key: bytes) -> str:
    """The name of a key's file: 32 lower-case hexadecimal digits."""
    return hashlib.md5(key, usedforsecurity=False).hexdigest()


def path_of(name: str, levels: Sequence[int]) -> PurePosixPath:
    """Where a file of this name lies, below the root of the cache."""
    parts, end = [], len(name)
    for level in levels:
        parts.append(name[end - level : end])
        end -= level
    return PurePosixPath(*parts, name)


def variant_of(key: bytes, vary: bytes, headers: Mapping[str, str]) -> str:
    """The name of the file that holds the variant for these request headers.

    Args:
        vary: the ``Vary`` of the stored response, as its file has it.
        headers: of the request; names in any case. One that is absent counts as empty.
    """
    sent = {name.lower(): value for name, value in headers.items()}
    digest = hashlib.md5(hashlib.md5(key, usedforsecurity=False).digest(), usedforsecurity=False)
    for name in re.split(r"[ ,]+", vary.decode("latin-1").lower()):
        if name:
            value = sent.get(name, "")
            if name in NORMALIZED:
                value = ",".join(part for part in re.split(r"[ ,]+", value) if part)
            digest.update(f"{name}:{value}\r\n".encode("latin-1"))
    return digest.hexdigest()
