"""Lua that runs on the server, one registry line each.

A script is called by its SHA-1. A server that does not know the script does nothing and says
NOSCRIPT. It then gets the text, once after each start. A script names one key, or keys of one slot,
so that it works on a cluster. Numbers come back as text, because Lua's numbers are floats.
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

    ``flags`` are flags of the server: with ``allow-oom`` a script runs where memory is full. Redis
    before 7 knows no flags, and compiles no script that names some: ``unflagged`` is for that.
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
    """True if the server did not know the script. It then did nothing."""
    return isinstance(reply, ErrorReply) and reply.code == "NOSCRIPT"


def not_compiled(reply: object) -> bool:
    """True if the server knows no flags. It then did nothing."""
    said = str(reply) if isinstance(reply, ErrorReply) else ""
    return "compiling script" in said or "script shebang" in said


# KEYS[1] the key; ARGV[1] what to add. Replies nil if the key is absent. INCRBY refuses a value
# that is no plain number, and a sum beyond 64 bits; pcall makes its error the reply.
INCR = Script(
    """
if redis.call('EXISTS', KEYS[1]) == 0 then return false end
local done = redis.pcall('INCRBY', KEYS[1], ARGV[1])
if type(done) == 'table' then return done end
return redis.call('GET', KEYS[1])
"""
)

# KEYS[1] the key; ARGV[1] SHA-1 of the value that it must have, ARGV[2] the new value, ARGV[3] its
# life in milliseconds: 0 deletes the key, -1 is for ever.
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
