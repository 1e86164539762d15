"""Lua that runs on the server, one registry line each.

A script is called by its SHA-1. A server that does not know it says NOSCRIPT, has done nothing,
and is then sent the text: once per server and restart. Scripts name one key, or keys of one
slot, so that they work on a cluster. Numbers come back as text: Lua's are floats.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from nearcache.engines.redis.protocol.resp import ErrorReply, pack

Word = bytes | int


@dataclass(frozen=True)
class Script:
    """One script, and its two forms as a command.

    ``flags`` are the server's: ``allow-oom`` runs it where memory is full. Redis before 7 knows
    none and does not compile what names them: ``unflagged`` is for that.
    """

    text: str
    flags: str = ""
    sha1: bytes = field(init=False)

    def __post_init__(self) -> None:
        if self.flags:
            object.__setattr__(self, "text", f"#!lua flags={self.flags}\n{self.text}")
        digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        object.__setattr__(self, "sha1", digest.encode())

    @property
    def unflagged(self) -> Script:
        return Script(self.text.partition("\n")[2]) if self.flags else self

    def by_name(self, keys: Sequence[bytes], arguments: Sequence[Word] = ()) -> bytes:
        """EVALSHA, packed."""
        return pack(b"EVALSHA", self.sha1, len(keys), *keys, *arguments)

    def in_full(self, keys: Sequence[bytes], arguments: Sequence[Word] = ()) -> bytes:
        """EVAL, packed: after NOSCRIPT."""
        return pack(b"EVAL", self.text, len(keys), *keys, *arguments)


def unknown(reply: object) -> bool:
    """Whether the server did not know the script, and did nothing."""
    return isinstance(reply, ErrorReply) and reply.code == "NOSCRIPT"


def not_compiled(reply: object) -> bool:
    """Whether the server knows no flags, and did nothing."""
    said = str(reply) if isinstance(reply, ErrorReply) else ""
    return "compiling script" in said or "script shebang" in said


# KEYS[1] the key; ARGV[1] what to add. nil if the key is absent. INCRBY itself refuses what is
# no plain number, and sums beyond 64 bits; pcall hands its error on as it is.
INCR = Script(
    """
if redis.call('EXISTS', KEYS[1]) == 0 then return false end
local done = redis.pcall('INCRBY', KEYS[1], ARGV[1])
if type(done) == 'table' then return done end
return redis.call('GET', KEYS[1])
"""
)

# KEYS[1] the key; ARGV[1] SHA-1 of the value it must have, ARGV[2] the new value, ARGV[3] the
# milliseconds it lives: 0 for none at all, -1 for ever.
CAS = Script(
    """
local now = redis.call('GET', KEYS[1])
if not now or redis.sha1hex(now) ~= ARGV[1] then return 0 end
if ARGV[3] == '0' then redis.call('DEL', KEYS[1])
elseif ARGV[3] == '-1' then redis.call('SET', KEYS[1], ARGV[2])
else redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
return 1
"""
)

# KEYS[1] a claim; ARGV[1] its owner.
UNCLAIM = Script(
    """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('UNLINK', KEYS[1]) end
return 0
"""
)
