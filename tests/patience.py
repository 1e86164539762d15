"""For programs that tests start beside processes that are stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nearcache.errors import EngineBusy


def again(call: Callable[..., Any], *arguments: Any) -> Any:
    """What it returns once nobody who is stopped is inside the store: nothing was done before."""
    while True:
        try:
            return call(*arguments)
        except EngineBusy:
            pass
