"""Who may purge: whose requests are signed, now, and for the first time."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from math import floor

from nearcache.base.options import Secret
from nearcache.nginx.agent.signing import Signature, is_right, read_signature, sign_answer

BELIEVED_S = 30  # how far two clocks may differ
MOST_NONCES = 100_000
RATE, BURST = 20.0, 100.0  # refusals that are answered a second, and at once, of one address
MOST_ADDRESSES = 1024


class Refused(Exception):
    """A request that gets nothing; ``status`` is that of the answer, which is signed for whoever
    has signed.
    """

    def __init__(self, status: int, reason: str, signature: Signature | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.signature = signature


@dataclass
class Buckets:
    """A bucket of tokens for each address; those not seen for longest are forgotten (full)."""

    clock: Callable[[], float] = time.monotonic
    rate: float = RATE
    burst: float = BURST
    _left: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def take(self, address: str) -> bool:
        now = self.clock()
        left, then = self._left.pop(address, (self.burst, now))
        left = min(self.burst, left + (now - then) * self.rate)
        self._left[address] = (left - 1 if left >= 1 else left, now)
        if len(self._left) > MOST_ADDRESSES:
            self._left.popitem(last=False)
        return left >= 1


class Guard:
    """Knows the secret, and what was sent before. ``clock`` is in Unix seconds."""

    def __init__(self, secret: Secret, clock: Callable[[], float] = time.time) -> None:
        self._secret = secret
        self._clock = clock
        self._started = floor(clock() * 1000) / 1000  # times are signed to the millisecond
        self._seen: OrderedDict[str, float] = OrderedDict()  # nonce -> when it was signed

    def check(self, header: str | None, path: str) -> Signature:
        """Raises Refused. Only who knows the secret learns more than 401."""
        signature = read_signature(header)
        if signature is None or not is_right(self._secret, path, signature):
            raise Refused(401, "not signed with the secret of this agent")
        signed, now = float(signature.time), self._clock()
        if abs(signed - now) > BELIEVED_S:
            said = f"the clocks differ by {signed - now:.0f} s; at most {BELIEVED_S} are taken"
            raise Refused(403, said, signature)
        if signed < self._started:
            # Nonces of before are not remembered: this may have been done already.
            raise Refused(403, "signed before this agent was started; send it anew", signature)
        while self._seen and next(iter(self._seen.values())) < now - 2 * BELIEVED_S:
            self._seen.popitem(last=False)
        if signature.nonce in self._seen:
            raise Refused(409, "this request was sent before", signature)
        if len(self._seen) >= MOST_NONCES:
            said = "too many requests at once to tell which were sent before"
            raise Refused(503, said, signature)
        self._seen[signature.nonce] = signed
        return signature

    def answer(self, signature: Signature, status: int, body: bytes) -> str:
        return sign_answer(self._secret, signature.nonce, status, body)
