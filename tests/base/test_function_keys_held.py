"""What tells two functions of one name, or two objects of one class, apart must be in the key."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from nearcache.base.function_keys import call_key, canonical
from nearcache.memoize import memoize


def of_tenant(tenant: str) -> Callable[[Any], Any]:
    """A decorator with an argument."""

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def inside(*args: Any) -> Any:
            return tenant, function(*args)

        return inside

    return decorate


def with_default(tenant: str) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def inside(*args: Any, _tenant: str = tenant) -> Any:
            return _tenant, function(*args)

        return inside

    return decorate


def total() -> str:
    return "total"


def decorated(tenant: str) -> Any:
    return of_tenant(tenant)(total)


def decorated_by_a_default(tenant: str) -> Any:
    return with_default(tenant)(total)


def decorated_twice(tenant: str) -> Any:
    return of_tenant("all")(of_tenant(tenant)(total))


def capturing_a_default(tenant: str) -> Any:
    def load(whose: str = tenant) -> str:
        return whose

    def loaded() -> str:
        return load()

    return loaded


def capturing_a_decorated(tenant: str) -> Any:
    load = of_tenant(tenant)(total)

    def loaded() -> Any:
        return load()

    return loaded


def capturing_a_memoized(tenant: str) -> Any:
    load = memoize(of_tenant(tenant)(total))

    def loaded() -> Any:
        return load.uncached()

    return loaded


def capturing_a_partial(tenant: str) -> Any:
    load = functools.update_wrapper(functools.partial(str.upper, tenant), total)

    def loaded() -> Any:
        return load()

    return loaded


@pytest.mark.parametrize(
    "make",
    [
        decorated,
        decorated_by_a_default,
        decorated_twice,
        capturing_a_default,
        capturing_a_decorated,
        capturing_a_memoized,
        capturing_a_partial,
    ],
)
def test_two_functions_of_one_name_and_two_tenants_have_two_keys(make: Any) -> None:
    one, again, other = make("one"), make("one"), make("other")
    assert one() != other()
    assert call_key(one) == call_key(again) != call_key(other)


NOTHING_TO_NAME = object()


def logging_to(what: Any) -> Any:
    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def inside(*args: Any) -> Any:
            assert what
            return function(*args)

        return inside

    return decorate


@memoize
@logging_to(NOTHING_TO_NAME)
def named() -> str:
    return "named"


class Shop:
    @memoize(ignore=["self"])
    @logging_to(NOTHING_TO_NAME)
    def named(self) -> str:
        return "named"


def test_a_function_that_its_name_leads_to_needs_nothing_of_its_decorators() -> None:
    assert named.key().startswith(f"{__name__}.named:")
    assert Shop().named.key() == Shop().named.key()


def test_what_was_captured_and_has_no_identity_can_be_ignored() -> None:
    def inside() -> str:
        return str(NOTHING_TO_NAME)

    wrapped = logging_to(NOTHING_TO_NAME)(inside)
    with pytest.raises(TypeError, match=r"captured variable 'what'.*ignore=\('what',\)"):
        memoize(wrapped).key()
    assert memoize(ignore=["what"])(wrapped).key()
    with pytest.raises(TypeError, match="no parameter whatever"):
        memoize(ignore=["whatever"])(wrapped)


def test_a_captured_lambda_can_be_ignored() -> None:
    first = lambda: 1  # noqa: E731

    def inside() -> int:
        return first()

    with pytest.raises(TypeError, match=r"ignore=\('first',\)"):
        memoize(inside).key()
    assert memoize(ignore=["first"])(inside).key()


@dataclasses.dataclass
class Query:
    year: int

    @functools.cached_property
    def shown(self) -> str:
        return f"{self.year}"


class OfTenant(Query):
    def __init__(self, year: int, tenant: str) -> None:
        super().__init__(year)
        self.tenant = tenant


class Slotted(Query):
    __slots__ = ("__tenant",)

    def __init__(self, year: int, tenant: str) -> None:
        super().__init__(year)
        self.__tenant = tenant


@pytest.mark.parametrize("kind", [OfTenant, Slotted])
def test_what_is_derived_from_a_dataclass_is_all_that_it_holds(kind: Any) -> None:
    assert canonical(kind(2026, "one")) == canonical(kind(2026, "one"))
    assert canonical(kind(2026, "one")) != canonical(kind(2026, "other"))


def test_what_a_cached_property_keeps_makes_no_difference() -> None:
    used = Query(2026)
    assert used.shown == "2026"
    assert canonical(used) == canonical(Query(2026))


class Masked(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "***"


class Hidden(bytes):
    def __bytes__(self) -> bytes:
        return b"***"


class Rounded(float):
    def __float__(self) -> float:
        return 0.0


class Same(int):
    def __int__(self) -> int:
        return 0


class Empty(tuple[Any, ...]):
    __slots__ = ()

    def __iter__(self) -> Any:
        return iter(())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Masked("one"), Masked("other")),
        (Hidden(b"one"), Hidden(b"other")),
        (Rounded(1.5), Rounded(2.5)),
        (Same(1), Same(2)),
        (Empty((1,)), Empty((2,))),
        (Rounded(0.0), Rounded(-0.0)),
        (Decimal("1.0"), Decimal("1.00")),
    ],
)
def test_a_class_that_shows_something_else_is_what_it_holds(one: Any, other: Any) -> None:
    assert canonical(one) != canonical(other)
