"""The serializer of seed 000 that django-redis has not: ujson. For comparison only."""

from __future__ import annotations

from importlib import import_module
from typing import Any

ujson: Any = import_module("ujson")


class UJSONSerializer:
    """As the article's own class was; django-redis asks for these three methods."""

    def __init__(self, options: dict[str, Any]) -> None:
        pass

    def dumps(self, value: Any) -> bytes:
        return bytes(ujson.dumps(value).encode())

    def loads(self, value: bytes) -> Any:
        return ujson.loads(value.decode())
