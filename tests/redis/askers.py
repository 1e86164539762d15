"""The same test by plain calls and from coroutines."""

from __future__ import annotations

import asyncio
from typing import Any

from nearcache.engines.redis.contract import ONCE, READ, SAFE
from nearcache.engines.redis.protocol.resp import pack

SAFETY = {"GET": READ, "MGET": READ, "ROLE": READ, "PING": READ, "SET": SAFE, "MSET": SAFE}
"""Everything else is ONCE."""

Words = tuple[Any, ...]


class Plain:
    """Calls a topology."""

    def __init__(self, topology: Any) -> None:
        self.topology = topology

    def __call__(self, *words: Any) -> Any:
        return self.run("ask", pack(*words), key_of(words), SAFETY.get(words[0], ONCE))

    def each(self, *commands: Words) -> Any:
        requests = [(pack(*words), key_of(words)) for words in commands]
        return self.run("ask_each", requests, SAFETY.get(commands[0][0], ONCE))

    def primaries(self) -> Any:
        return self.run("primaries")

    def run(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.topology, method)(*args, **kwargs)

    def close(self) -> None:
        self.topology.close()


class Awaited(Plain):
    """Awaits its ``a`` twins, in a loop of its own."""

    def __init__(self, topology: Any) -> None:
        super().__init__(topology)
        self.runner = asyncio.Runner()

    def run(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self.runner.run(getattr(self.topology, f"a{method}")(*args, **kwargs))

    def close(self) -> None:
        super().close()
        self.runner.close()


def key_of(words: Words) -> bytes | None:
    if len(words) < 2:
        return None
    return words[1] if isinstance(words[1], bytes) else str(words[1]).encode()
