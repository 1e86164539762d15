"""Claims of single flight over Redis: one key each, which dies with its computation.

    key     ``<key that is computed>\\xffnearcache:claim``
    value   the owner's number, in digits
    life    PX

The name begins with that of the computed key, so the user's ACL allows it. No key of a user's has
such a name, because UTF-8 has no byte ``\\xff``. On a cluster the claim is in the slot of its key.

To claim is ``SET NX PX`` and ``GET`` in one write. The owner finds its own number there also if
its first answer got lost, so both may be sent twice. To give up is a script that compares on the
server. For a user without the right to scripts this process compares: between ``GET`` and
``UNLINK`` the claim might run out and become another owner's, and then a third caller computes too.
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
"""In the names of our own keys: ``clear`` and ``scan`` pass over these keys."""
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
            # A full server refuses the SET; an owner that asks again is found by the GET.
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
