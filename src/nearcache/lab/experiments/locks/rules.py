"""What a lock does beside being fast: tried once, told in words.

arguments   do two functions with equal arguments exclude each other? and one function
            that is called with its argument once by position, once by name?
clear       is it still held after ``cache.clear()``?
flush       and after FLUSHALL, which to a lock is what an eviction or a restart is?
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nearcache.lab.arms.forked import Forked, Teller
from nearcache.lab.experiments.locks.lockers import Locker, open_locker
from nearcache.lab.experiments.locks.tasks import PATIENCE_S, LockUse, comes_in, follow, hold

if TYPE_CHECKING:
    from nearcache.lab.experiments.locks.arm import LockArm

ONE_LOCK, TWO_LOCKS = "one lock", "two locks"
SAME_ARGUMENTS = "two functions, equal arguments"
SAME_CALL = "f(1) and f(argument=1)"
AFTER_CLEAR = "after cache.clear()"
AFTER_FLUSH = "after FLUSHALL"
STILL_HELD = "still held"
UNTOLD = "lost, and its holder is not told"
Body = Callable[[], None]


def rules(arm: LockArm, round_id: str) -> dict[str, str]:
    """Facts about a candidate, in words."""
    found: dict[str, str] = {}
    name = f"{arm.setup.namespace}:{round_id}:rules"
    if open_locker(arm.options).by_arguments(print):
        found[SAME_ARGUMENTS] = _locks_of(arm, name, _first, _second)
        found[SAME_CALL] = _locks_of(arm, name, _first, _first_by_name)
    if arm.candidate.settings:
        found[AFTER_CLEAR] = _disturbed(arm, f"{name}:clear", _clear)
    if arm.candidate.server == "redis":
        found[AFTER_FLUSH] = _disturbed(arm, f"{name}:flush", _flush(arm))
    return found


def _first(locker: Locker, body: Body, _name: str) -> Callable[[], Any]:
    call = _decorated_first(locker, body)
    return lambda: call(1)


def _first_by_name(locker: Locker, body: Body, _name: str) -> Callable[[], Any]:
    call = _decorated_first(locker, body)
    return lambda: call(argument=1)


def _decorated_first(locker: Locker, body: Body) -> Any:
    def first(argument: int) -> None:  # noqa: ARG001 - it names the lock
        body()

    return locker.by_arguments(first)


def _second(locker: Locker, body: Body, _name: str) -> Callable[[], Any]:
    def second(argument: int) -> None:  # noqa: ARG001 - it names the lock
        body()

    call: Any = locker.by_arguments(second)
    return lambda: call(1)


def _locks_of(arm: LockArm, name: str, one: Any, other: Any) -> str:
    """Whether a call through ``other`` waits for one through ``one``."""
    with Forked(hold(LockUse(arm.options, name, one)), arm.setup.cpu) as holder:
        holder.hear(PATIENCE_S)
        with Forked(follow(LockUse(arm.options, name, other)), arm.setup.cpu) as follower:
            apart = comes_in(follower)
            holder.say("leave")
            holder.hear(PATIENCE_S)
    return TWO_LOCKS if apart else ONE_LOCK


def _disturbed(arm: LockArm, name: str, disturb: Callable[[Teller], Any]) -> str:
    """One holds, the cache is emptied, a second one tries: what becomes of both."""
    use = LockUse(arm.options, name)
    with Forked(hold(use), arm.setup.cpu) as holder:
        holder.hear(PATIENCE_S)
        with Forked(disturb, arm.setup.cpu) as other:
            other.hear(PATIENCE_S)
        with Forked(follow(use), arm.setup.cpu) as follower:
            came_in = comes_in(follower)
            holder.say("leave")
            told = holder.hear(PATIENCE_S)
    if not came_in:
        return STILL_HELD
    return f"lost: {told} at the end" if told else UNTOLD


def _clear(_teller: Teller) -> None:
    from django.core.cache import cache

    cache.clear()


def _flush(arm: LockArm) -> Callable[[Teller], None]:
    def flush(_teller: Teller) -> None:
        import redis

        with redis.Redis(unix_socket_path=arm.setup.places["redis_socket"]) as client:
            client.flushall()

    return flush
