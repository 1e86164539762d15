"""Claims of single flight over Redis: one key each, which dies with its computation.

    key     what is computed: ``<key>\\xffnearcache:claim``
    value   the owner's number, in digits
    life    PX

The name begins with the key's own, so it lies where the user's ACL lets keys lie, and text has
no byte ``\\xff`` in UTF-8, so no key of a user's is named like that. On a cluster it is in the
slot of its key.

Claiming is ``SET NX PX`` and ``GET`` in one write: the owner sees its own number also when its
first answer got lost, so both may be sent twice. Giving up compares on the server by a script.
A user without the right to scripts compares here: between ``GET`` and ``UNLINK`` the claim
might run out and become another's, and then a third one computes as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nearcache.base.sans_io import Flow, Host, call, twins
from nearcache.engines.redis.contract import SAFE, Reply, Topology
from nearcache.engines.redis.protocol.faults import no_scripts
from nearcache.engines.redis.protocol.resp import ErrorReply, pack
from nearcache.engines.redis.protocol.scripts import UNCLAIM
from nearcache.errors import NotPermitted

MARK = b"\xffnearcache:"
"""In the name of each key beside a user's: clear and scan pass over them."""
CLAIM = MARK + b"claim"

if TYPE_CHECKING:
    from nearcache.engines.redis.protocol.scripts import Script, Word

    class Base(Host):
        def _one(self, safety: int, key: bytes, *words: Word) -> Flow[Reply]: ...
        def _told(self, reply: Reply, packed: bytes = b"") -> Reply: ...
        def _script(
            self, script: Script, keys: Sequence[bytes], arguments: Sequence[Word], safety: int
        ) -> Flow[Reply]: ...
else:
    Base = object


class RedisClaims(Base):
    """``claim`` and ``unclaim`` of :class:`~nearcache.engines.contract.Engine`, and their ``a``
    twins."""

    topology: Topology
    _may_script = True

    def _claim(self, key: bytes, owner: int, ttl_ms: int) -> Flow[bool]:
        name, mine = self._claim_key(key), b"%d" % owner
        words = [(b"SET", name, mine, b"NX", b"PX", ttl_ms), (b"GET", name)]
        requests = [(pack(*each), name) for each in words]
        taken, found = yield call(self.topology, "ask_each", requests, SAFE)
        if found != mine:
            # A full server refuses the SET, and not the owner who asks again.
            self._told(taken, requests[0][0])
            self._told(found, requests[1][0])
            return False
        if taken is None or isinstance(taken, ErrorReply):
            yield from self._one(SAFE, name, b"PEXPIRE", name, ttl_ms)
        return True

    claim, aclaim = twins(_claim)

    def _unclaim(self, key: bytes, owner: int) -> Flow[None]:
        name, mine = self._claim_key(key), b"%d" % owner
        if self._may_script:
            try:
                yield from self._script(UNCLAIM, [name], [mine], SAFE)
            except NotPermitted as error:
                if not no_scripts(error):
                    raise
                self._may_script = False
            else:
                return
        if (yield from self._one(SAFE, name, b"GET", name)) == mine:
            yield from self._one(SAFE, name, b"UNLINK", name)

    unclaim, aunclaim = twins(_unclaim)

    def _claim_key(self, key: bytes) -> bytes:
        if self.topology.sharded and b"{" not in key:
            return b"%b%b{%b}" % (key, CLAIM, key)
        return key + CLAIM
