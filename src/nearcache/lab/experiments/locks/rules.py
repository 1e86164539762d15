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
from nearcache.lab.experiments.locks.tasks import PATIENCE_S, Door, comes_in, follow, hold

if TYPE_CHECKING:
    from nearcache.lab.experiments.locks.arm import LockSubject

ONE_LOCK, TWO_LOCKS = "one lock", "two locks"
SAME_ARGUMENTS = "two functions, equal arguments"
SAME_CALL = "f(1) and f(argument=1)"
AFTER_CLEAR = "after cache.clear()"
AFTER_FLUSH = "after FLUSHALL"
STILL_HELD = "still held"
UNTOLD = "lost, and its holder is not told"
Body = Callable[[], None]


def rules(subject: LockSubject, round_id: str) -> dict[str, str]:
    """Facts about a candidate, in words."""
    found: dict[str, str] = {}
    name = f"{subject.setup.namespace}:{round_id}:rules"
    if open_locker(subject.options).by_arguments(print):
        found[SAME_ARGUMENTS] = _locks_of(subject, name, _first, _second)
        found[SAME_CALL] = _locks_of(subject, name, _first, _first_by_name)
    if subject.candidate.settings:
        found[AFTER_CLEAR] = _disturbed(subject, f"{name}:clear", _clear)
    if subject.candidate.server == "redis":
        found[AFTER_FLUSH] = _disturbed(subject, f"{name}:flush", _flush(subject))
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


def _locks_of(subject: LockSubject, name: str, one: Any, other: Any) -> str:
    """Whether a call through ``other`` waits for one through ``one``."""
    with Forked(hold(Door(subject.options, name, one)), subject.setup.cpu) as holder:
        holder.hear(PATIENCE_S)
        with Forked(follow(Door(subject.options, name, other)), subject.setup.cpu) as follower:
            apart = comes_in(follower)
            holder.say("leave")
            holder.hear(PATIENCE_S)
    return TWO_LOCKS if apart else ONE_LOCK


def _disturbed(subject: LockSubject, name: str, disturb: Callable[[Teller], Any]) -> str:
    """One holds, the cache is emptied, a second one tries: what becomes of both."""
    door = Door(subject.options, name)
    with Forked(hold(door), subject.setup.cpu) as holder:
        holder.hear(PATIENCE_S)
        with Forked(disturb, subject.setup.cpu) as other:
            other.hear(PATIENCE_S)
        with Forked(follow(door), subject.setup.cpu) as follower:
            came_in = comes_in(follower)
            holder.say("leave")
            told = holder.hear(PATIENCE_S)
    if not came_in:
        return STILL_HELD
    return f"lost: {told} at the end" if told else UNTOLD


def _clear(_teller: Teller) -> None:
    from django.core.cache import cache

    cache.clear()


def _flush(subject: LockSubject) -> Callable[[Teller], None]:
    def flush(_teller: Teller) -> None:
        import redis

        with redis.Redis(unix_socket_path=subject.setup.places["redis_socket"]) as client:
            client.flushall()

    return flush
