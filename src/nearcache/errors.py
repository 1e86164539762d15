"""Everything this package raises on purpose.

* NearcacheError
  + OptionError            the settings are wrong; raised at start-up, never later
  + EngineError            the store could not answer
    - EngineUnavailable    transient: it did not answer in time, or not at all
      . EngineBusy         another process held the lock of this key's shard too long
      . ConnectionFailed   no connection: refused, reset, gone, or the handshake failed
      . ReplyTimeout       it was asked, and did not answer in time
      . CircuitOpen        it failed a moment ago: not asked at all
      . PoolTimeout        no connection of the pool became free in time
      . ServerNotReady     it answered that it cannot now: loading, failing over, full
    - EngineConfiguration  permanent: the store exists but must not or cannot be used
      . AuthenticationFailed  wrong user or password
      . NotPermitted          the server's ACL grants this user too little
      . ServerMisconfigured   wrong database, TLS mismatch, not a Redis, not that kind of one
      . RegionError        the shared-memory file cannot be opened, made or trusted
      . RegionFull         no room for the file (a small /dev/shm, a full disk)
    - DataError            it answered, and the value is not what the operation needs
  + LockError              a named lock
    - LockNotAcquired      somebody else held it for the whole wait
    - LockLost             it was held, and its time ran out or somebody took it over
  + SessionsAway           the cache of sessions did not answer; who is logged in stays so
  + LabError               a measurement cannot be made as asked
  + NginxError             the doctor of nginx cannot do what was asked
    - NotACacheFile        a file is no entry of an nginx cache, and is left alone

A missing key is not an error. Errors of client libraries are mapped to
:class:`EngineError` inside each engine and kept as ``__cause__``. Nothing here imports
Django: the adapter raises ``SettingsError``, which is an :class:`OptionError` and Django's
``ImproperlyConfigured`` at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def unknown_name(name: object, known: Iterable[str]) -> str:
    """What is wrong with a name that is none of those known: the nearest right one is in it."""
    if not isinstance(name, str):
        return "is no name; names are text"
    names = sorted(known)
    close = get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"
    return f"is unknown; {hint}"


class NearcacheError(Exception):
    """The root: catch this to catch everything below."""


class OptionError(NearcacheError):
    """An option in ``CACHES`` is unknown or out of range."""

    def __init__(self, backend: str, option: str, problem: str) -> None:
        super().__init__(f"{backend}: option {option!r} {problem}")
        self.backend = backend
        self.option = option
        self.problem = problem

    @classmethod
    def unknown(cls, backend: str, option: str, known: Iterable[str]) -> OptionError:
        """The error for a name that no option has, with the nearest right one."""
        return cls(backend, option, unknown_name(option, known))


class EngineError(NearcacheError):
    """The store could not answer."""


class EngineUnavailable(EngineError):
    """The store did not answer in time, or not at all; trying later may help."""

    uncertain = False
    """True if what was asked for may have been done all the same, and was not asked twice."""


class EngineBusy(EngineUnavailable):
    """A lock inside the store was not free in time: nothing was read, and nothing changed.

    Shared memory waits 5 s for an owner that runs or waits for a processor, and 0.25 s for one
    that was stopped or frozen.
    """


class ConnectionFailed(EngineUnavailable):
    """There is no connection to the server: refused, reset, or gone while it was used."""


class ReplyTimeout(EngineUnavailable):
    """The server was asked and did not answer in time."""


class CircuitOpen(EngineUnavailable):
    """The server failed a moment ago, and is not asked again before its pause is over."""


class PoolTimeout(EngineUnavailable):
    """No connection of the bounded pool became free in time."""


class ServerNotReady(EngineUnavailable):
    """The server answered that it cannot do it now: LOADING, READONLY, CLUSTERDOWN, OOM."""


class EngineConfiguration(EngineError):
    """The store cannot be used until somebody changes something."""


class AuthenticationFailed(EngineConfiguration):
    """The server knows no such user and password."""


class NotPermitted(EngineConfiguration):
    """The server's ACL does not grant this user the command, the key or the channel."""


class ServerMisconfigured(EngineConfiguration):
    """What answers is not the server that the settings describe."""


class RegionError(EngineConfiguration):
    """The shared-memory file cannot be opened, made or trusted."""


class RegionFull(RegionError):
    """There is no room for the shared-memory file."""


class DataError(EngineError):
    """The stored value is not what the operation needs."""


class LockError(NearcacheError):
    """A named lock could not do what was asked."""


class LockNotAcquired(LockError):
    """Somebody else held the lock for the whole wait."""


class LockLost(LockError):
    """The lock was held, and its time ran out or somebody took it over."""


class SessionsAway(NearcacheError):
    """A session could not be read or written, as its cache is away: nobody is logged out."""


class LabError(NearcacheError):
    """A measurement cannot be made as asked."""


class NginxError(NearcacheError):
    """The doctor of nginx cannot do what was asked; the message says what to do instead."""


class NotACacheFile(NginxError):
    """A file is not an entry of an nginx cache; nothing was done to it."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name} is not a cache file of nginx: {reason}")
        self.name = name
        self.reason = reason
