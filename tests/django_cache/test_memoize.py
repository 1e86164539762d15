"""@memoize: functions, methods, coroutines; keys, helpers, and what is refused."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from asgiref.sync import markcoroutinefunction
from django.core.cache import caches
from django.test import override_settings

from nearcache.base.clock import FakeClock
from nearcache.codec.envelope import opened
from nearcache.engines.memory import MemoryEngine
from nearcache.errors import OptionError
from nearcache.memoize import memoize
from tests.backends.classes import MemoryCache


class Cache(MemoryCache):
    """One clock for all, moved by the tests."""

    clock: Any = FakeClock()
    chance: Any = staticmethod(lambda: 0.5)
    store = MemoryEngine(clock)

    def open_engine(self) -> Any:
        return self.store


@pytest.fixture(autouse=True)
def _caches() -> Iterator[None]:
    ours = {"BACKEND": f"{__name__}.Cache", "LOCATION": "memoize"}
    settings = {
        "default": ours,
        "other": {**ours, "KEY_PREFIX": "other"},
        "foreign": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
        "dummy": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"},
    }
    with override_settings(CACHES=settings):
        Cache.store.clear()
        caches["foreign"].clear()
        yield


calls: list[Any] = []


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


@memoize
def bare(a: int, b: int = 2) -> int:
    """Adds."""
    calls.append((a, b))
    return a + b


@memoize(timeout=10, stale=60)
def described(a: Any, *more: Any, **named: Any) -> Any:
    calls.append(a)
    return {"a": a, "calls": len(calls)}


@memoize(timeout=10)
async def waiting(a: Any) -> Any:
    await asyncio.sleep(0)
    calls.append(a)
    return [a, len(calls)]


@memoize(10)
def nothing() -> None:
    calls.append(None)


class Plain:
    """No identity that outlives the process."""

    @memoize(timeout=10, ignore=("self",))
    def ignoring(self, a: int) -> int:
        calls.append(a)
        return a

    @memoize(timeout=10)
    def refused(self, a: int) -> int:
        return a

    @memoize(timeout=10)
    @classmethod
    def of_class(cls, a: int) -> str:
        calls.append(a)
        return f"{cls.__name__} {a}"

    @memoize(timeout=10)
    @staticmethod
    def of_nobody(a: int) -> int:
        calls.append(a)
        return a


class Child(Plain):
    pass


@dataclass(frozen=True)
class Shop:
    name: str

    @memoize(timeout=10)
    def total(self, tax: float = 0.0) -> list[Any]:
        """What it all costs."""
        calls.append((self.name, tax))
        return [self.name, tax]

    @memoize(timeout=10)
    async def slowly(self) -> str:
        calls.append(self.name)
        return self.name


def test_a_result_is_computed_once_however_the_arguments_are_given() -> None:
    assert [bare(1), bare(1, 2), bare(a=1), bare(b=2, a=1)] == [3] * 4
    assert calls == [(1, 2)]


def test_different_arguments_are_different_results() -> None:
    for argument in (1, 1.0, True, "1", b"1", None, (1,), [1], {"a": 1}, {1, 2}):
        assert described(argument)["a"] == argument
        assert type(described(argument)["a"]) is type(argument)
    assert len(calls) == 10


def test_none_is_a_result() -> None:
    assert nothing() is None
    assert nothing() is None
    assert calls == [None]


def test_an_exception_is_not_kept() -> None:
    failures = [KeyError("once")]

    @memoize(timeout=10, ignore=["failures"])
    def failing() -> str:
        if failures:
            raise failures.pop()
        return "well"

    with pytest.raises(KeyError, match="once"):
        failing()
    assert failing() == "well"


def test_results_are_not_shared_objects() -> None:
    first = described([1])
    first["a"].append(2)
    assert described([1])["a"] == [1]


def test_the_function_keeps_its_name_and_its_words() -> None:
    assert bare.__name__ == "bare"
    assert bare.__doc__ == "Adds."
    assert inspect.signature(bare) == inspect.signature(bare.uncached)
    assert Shop("a").total.__doc__ == "What it all costs."
    assert bare.key(1).startswith("tests.django_cache.test_memoize.bare:")


def test_helpers_forget_refresh_and_go_past_the_cache() -> None:
    assert described(1)["calls"] == 1
    assert described.uncached(1)["calls"] == 2
    assert described(1)["calls"] == 1
    assert described.refresh(1)["calls"] == 3
    assert described(1)["calls"] == 3
    assert described.invalidate(1)
    assert not described.invalidate(1)
    assert described(1)["calls"] == 4
    assert caches["default"].get(described.key(1)) == {"a": 1, "calls": 4}


def test_coroutine_functions_are_coroutine_functions() -> None:
    async def main() -> None:
        assert await waiting(1) == [1, 1]
        assert await waiting(1) == [1, 1]
        assert await waiting.refresh(1) == [1, 2]
        assert await waiting(1) == [1, 2]
        assert await waiting.ainvalidate(1)
        assert await waiting(1) == [1, 3]
        assert await waiting.uncached(1) == [1, 4]
        assert await bare.arefresh(1) == 3
        assert await bare.ainvalidate(1)
        assert await Shop("s").slowly() == "s"
        together = await asyncio.gather(*(waiting(2) for _ in range(20)))
        assert together == [[2, 7]] * 20

    from asgiref.sync import iscoroutinefunction

    assert iscoroutinefunction(waiting)
    assert iscoroutinefunction(Shop("s").slowly)
    assert not iscoroutinefunction(bare)
    asyncio.run(main())


def test_methods_tell_objects_apart_and_bind_their_helpers() -> None:
    a, b = Shop("a"), Shop("b")
    assert a.total() == ["a", 0.0]
    assert b.total(0.0) == ["b", 0.0]
    assert Shop("a").total(tax=0.0) == ["a", 0.0]
    assert calls == [("a", 0.0), ("b", 0.0)]
    assert a.total.key() == Shop.total.key(a, 0.0) != b.total.key()
    assert a.total.invalidate()
    assert not Shop.total.invalidate(a)
    assert a.total.refresh(0.5) == ["a", 0.5]
    assert a.total.uncached(1.0) == ["a", 1.0]
    assert not hasattr(a.total, "nonsense")


def test_self_is_left_out_only_if_asked() -> None:
    assert Plain().ignoring(1) == Plain().ignoring(1) == 1
    assert calls == [1]
    with pytest.raises(TypeError, match=r"refused\(\): argument 'self' .*ignore=\('self',\)"):
        Plain().refused(1)


def test_class_and_static_methods() -> None:
    assert Plain.of_class(1) == Plain().of_class(1) == "Plain 1"
    assert Child.of_class(1) == "Child 1"
    assert Plain.of_nobody(1) == Child().of_nobody(1) == 1
    assert calls == [1, 1, 1]
    assert Child.of_class.invalidate(1)
    assert Plain.of_class(1) == "Plain 1"
    assert calls == [1, 1, 1]


def test_a_key_of_one_s_own() -> None:
    @memoize(timeout=10, key=lambda request, page=1: (request["user"], page))
    def view(request: Any, page: int = 1) -> int:
        calls.append(page)
        return page

    class Request(dict[str, Any]):
        pass

    assert view(Request(user="a")) == view(Request(user="a", other=object()), 1) == 1
    assert view(Request(user="b")) == view(Request(user="a"), page=1) == 1
    assert calls == [1, 1]
    assert view.key(Request(user="a")).startswith(f"{__name__}.test_a_key_of_one_s_own")

    @memoize(timeout=10, key="all the same")
    def constant(request: Any) -> int:
        calls.append("constant")
        return 1

    assert constant(object()) == constant(object()) == 1
    assert calls == [1, 1, "constant"]


def test_another_version_or_alias_is_another_result() -> None:
    def numbered(version: Any, alias: str) -> Any:
        def function() -> int:
            calls.append(version)
            return len(calls)

        function.__qualname__ = "function"
        return memoize(timeout=10, version=version, alias=alias)(function)

    values = [numbered(version, alias)() for version in (1, 2) for alias in ("default", "other")]
    assert values == [1, 2, 3, 4]
    assert numbered(2, "other")() == 4


def test_results_are_protected_early_by_default_and_stale_if_asked(
    eventually: Callable[..., None],
) -> None:
    described(1)
    envelope = opened(Cache.store.get(f":1:{described.key(1)}".encode()) or b"")
    assert envelope
    assert envelope.grace_ms == 60_000
    assert envelope.delta_ms == 0
    Cache.clock.advance_ms(11_000)
    assert described(1)["calls"] == 1, "stale"
    eventually(lambda: described(1)["calls"] == 2)  # refreshed in the background


def test_a_number_is_protected_like_any_result() -> None:
    bare(1)
    assert opened(Cache.store.get(f":1:{bare.key(1)}".encode()) or b"")
    assert caches["default"].get(bare.key(1)) == 3


def test_early_may_be_turned_off() -> None:
    @memoize(timeout=10, early=False)
    def quick() -> str:
        return "quick"

    quick()
    assert caches["default"].engine.get(f":1:{quick.key()}".encode()) == b"\x81quick"


def test_other_packages_caches_do_without_the_protection() -> None:
    for alias, expected in (("foreign", [1, 1, 2]), ("dummy", [1, 2, 3])):
        calls.clear()

        def function(a: int, alias: str = alias) -> int:
            calls.append(alias)
            return len(calls)

        cached = memoize(timeout=10, alias=alias, stale=60)(function)
        assert [cached(1), cached(1), cached.refresh(1)] == expected

        async def coroutine(a: int) -> int:
            return function(a)

        acached = memoize(timeout=10, alias=alias)(coroutine)

        async def main(acached: Any = acached) -> list[int]:
            calls.clear()
            return [await acached(1), await acached(1), await acached.arefresh(1)]

        assert asyncio.run(main()) == expected


def test_what_cannot_be_memoized_is_refused_when_it_is_decorated() -> None:
    def generator() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError, match="generator"):
        memoize(generator)
    with pytest.raises(TypeError, match="no name of its own"):
        memoize(timeout=10)(lambda: 1)
    with pytest.raises(TypeError, match="no parameter request to ignore"):
        memoize(ignore=("request",))(bare.uncached)


def test_arguments_without_identity_are_refused_and_nothing_is_called() -> None:
    with pytest.raises(TypeError, match=r"argument 'a' cannot be part of a key .*give key="):
        described(object())
    with pytest.raises(TypeError, match="argument 'more'"):
        described(1, object())
    assert calls == []


def test_arguments_that_do_not_fit_are_python_s_own_error() -> None:
    with pytest.raises(TypeError, match="missing a required argument: 'a'"):
        bare()
    with pytest.raises(TypeError, match="unexpected keyword argument 'c'"):
        bare(1, c=2)


def test_formats_of_other_backends_leave_no_room_for_protection() -> None:
    from nearcache.codec import foreign_codec

    class Compatible(Cache):
        codec = foreign_codec("django")

    cache = Compatible("compatible", {})
    with pytest.raises(OptionError, match="compat"):
        cache.get_or_set("k", lambda: 1, stale=60)
    assert cache.get_or_set("k", lambda: "v", jitter=0.1) == "v"
    assert cache.touch("k", 100)


@memoize(10)
@markcoroutinefunction
def marked(a: int) -> Any:
    return waiting.uncached(a)


def test_a_plain_function_that_is_marked_as_a_coroutine_function_is_awaited() -> None:
    async def main() -> None:
        assert await marked(1) == [1, 1]
        assert await marked(1) == [1, 1]

    asyncio.run(main())


@memoize(10)
def unmarked(a: int) -> Any:
    return waiting.uncached(a)


def test_one_that_is_not_is_told_so() -> None:
    with pytest.raises(TypeError, match="markcoroutinefunction"):
        unmarked(1)
