"""RedisCache in a test run: a namespace of the run's own, in front of all of its keys.

The namespace stands behind the user's ``KEY_PREFIX``, where a server's access rules let it be.
``clear`` deletes what begins with it, and so does a flush, which would empty the live database.
The keys are deleted when the run ends; those of a run that was killed have their timeouts.

Which worker of the run a process is may be known later than the cache is made or has moved: a
process that Django forks for ``--parallel`` has its number only a moment afterwards. So a cache
that has moved asks when it makes its first key, by a key function that is there until then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from nearcache.django_cache.adapter import SettingsError
from nearcache.django_cache.placement import test_run
from nearcache.errors import EngineError


def keep_apart(cache: Any, configured_prefix: str) -> None:
    """Puts the namespace into the prefix of this cache; SettingsError if it would be left out."""
    namespace = test_run.namespace()
    cache.key_prefix = ":".join(filter(None, (configured_prefix, namespace)))
    if namespace not in cache.make_key("x"):
        raise SettingsError(
            type(cache).__name__,
            "KEY_FUNCTION",
            "leaves the KEY_PREFIX out, so a test run's keys cannot be kept apart from the live"
            ' ones; set the option tests to "live" if they may meet',
        )
    keys = cache.key_prefix, cache.key_func
    test_run.at_end(f"{id(cache.engine)} {cache.key_prefix}", lambda: _end(cache, *keys))


def keep_apart_at_use(cache: Any, configured_prefix: str, key_func: Callable[..., str]) -> None:
    """:func:`keep_apart`, when this cache makes its next key."""

    def ask_first(key: Any, _: str, version: Any) -> str:
        cache.key_func = key_func
        keep_apart(cache, configured_prefix)
        return key_func(key, cache.key_prefix, version)

    cache.key_func = ask_first


def _end(cache: Any, key_prefix: str, key_func: Callable[..., str]) -> None:
    cache.key_prefix, cache.key_func = key_prefix, key_func  # as they were; it may have moved since
    # Nobody connects to delete what nobody has written.
    if any(number for name, number in cache.engine.topology.stats().items() if "connects" in name):
        with contextlib.suppress(EngineError):
            cache.engine.clear_matching(prefix=cache._common_prefix())
