"""``@locked``: which calls exclude each other, and what the function is told."""

from __future__ import annotations

import asyncio
import functools
import inspect
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import caches
from django.db import models
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory, override_settings
from django.utils.decorators import method_decorator
from django.views import View

from nearcache.errors import LockLost, LockNotAcquired
from nearcache.locked import current_lock, locked

MEMORY = "tests.backends.classes.MemoryCache"


@pytest.fixture(autouse=True)
def _caches(private_path: Path) -> Iterator[None]:
    location = str(private_path / "locks")
    settings = {
        "default": {"BACKEND": MEMORY, "LOCATION": location},
        "other": {"BACKEND": MEMORY, "LOCATION": location + "2"},
        "plain": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    }
    with override_settings(CACHES=settings):
        yield


def excludes(first: Callable[[], Any], second: Callable[[], Any]) -> bool:
    """Whether ``second``, locked with ``wait=0``, is refused while ``first`` is inside."""
    inside, leave = threading.Event(), threading.Event()
    probe.hook = lambda: (inside.set(), leave.wait(60))
    thread = threading.Thread(target=first)
    thread.start()
    try:
        assert inside.wait(60)
        probe.hook = lambda: None
        try:
            second()
        except LockNotAcquired:
            return True
        return False
    finally:
        leave.set()
        thread.join()


def probe(*args: Any, **kwargs: Any) -> str:
    """What every locked function here does inside."""
    probe.hook()  # type: ignore[attr-defined]
    return "done"


@pytest.fixture(autouse=True)
def _no_hook() -> None:
    probe.hook = lambda: None  # type: ignore[attr-defined]


@locked(wait=0)
def fetch(name: str, size: int = 10, *more: str, deep: bool = False) -> str:
    return probe(name)


@locked(wait=0)
def other(name: str, size: int = 10) -> str:
    return probe(name)


def test_the_same_arguments_exclude_each_other_however_they_are_passed() -> None:
    assert excludes(lambda: fetch("a"), lambda: fetch("a"))
    assert excludes(lambda: fetch("a", 10), lambda: fetch(size=10, name="a"))
    assert excludes(lambda: fetch("a"), lambda: fetch("a", deep=False))


def test_other_arguments_and_other_functions_do_not() -> None:
    assert not excludes(lambda: fetch("a"), lambda: fetch("b"))
    assert not excludes(lambda: fetch("1"), lambda: fetch(1))  # type: ignore[arg-type]
    assert not excludes(lambda: fetch("a", 1, "b"), lambda: fetch("a", 1, "b", "c"))
    assert not excludes(lambda: fetch("a"), lambda: other("a"))


def test_it_returns_what_the_function_returns_and_is_called_as_it() -> None:
    assert fetch("a") == "done"
    assert fetch.__name__ == "fetch"
    assert inspect.signature(fetch) == inspect.signature(inspect.unwrap(fetch))


def test_bare_or_with_parentheses() -> None:
    @locked
    def bare() -> int:
        return current_lock().token or 0

    @locked()
    def called() -> int:
        return current_lock().token or 0

    assert bare() > 0
    assert called() > 0


def test_text_is_the_whole_name_of_the_lock() -> None:
    @locked("nightly", wait=0)
    def one() -> str:
        return probe()

    @locked(key="nightly", wait=0)
    def two() -> str:
        return probe()

    assert excludes(one, two)
    with caches["default"].lock("nightly"), pytest.raises(LockNotAcquired):  # type: ignore[attr-defined]
        one()


def test_a_key_function_gets_the_arguments_and_its_text_is_the_function_s_own() -> None:
    seen = []

    def part_of(request: Any, part: str, deep: bool = False) -> str:
        seen.append((request, part, deep))
        return part

    @locked(key=part_of, wait=0)
    def stats(request: Any, part: str, deep: bool = False) -> str:
        return probe()

    @locked(key=part_of, wait=0)
    def other_stats(request: Any, part: str) -> str:
        return probe()

    thing = object()  # has no identity, and needs none
    assert excludes(lambda: stats(thing, "users"), lambda: stats(None, part="users", deep=True))
    assert seen == [(thing, "users", False), (None, "users", True)]
    assert not excludes(lambda: stats(thing, "users"), lambda: stats(thing, "visits"))
    assert not excludes(lambda: stats(thing, "users"), lambda: other_stats(thing, "users"))


def test_long_and_odd_texts_make_names_that_no_cache_minds() -> None:
    @locked(key=lambda text: text, wait=0)
    def odd(text: str) -> str:
        return probe()

    for text in ("two words", "tab\t", "ä" * 300, "x" * 300, ""):
        assert odd(text) == "done"  # warnings are errors here
        assert excludes(lambda text=text: odd(text), lambda text=text: odd(text))  # type: ignore[misc]
    assert not excludes(lambda: odd("x" * 300), lambda: odd("x" * 299))


def test_a_key_that_is_no_text_is_refused() -> None:
    @locked(key=lambda: 5)  # type: ignore[arg-type, return-value]
    def number() -> None: ...

    with pytest.raises(TypeError, match="must return text"):
        number()
    with pytest.raises(TypeError, match="write text, or a function"):
        locked(key=5)(fetch)  # type: ignore[call-overload]


def test_arguments_without_identity_are_refused_at_the_call() -> None:
    with pytest.raises(TypeError, match=r"'name'.*key="):
        fetch(object())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="name"):
        fetch()  # type: ignore[call-arg]


def test_a_function_without_a_name_needs_a_key() -> None:
    with pytest.raises(TypeError, match="key="):
        locked(lambda: 1)
    with pytest.raises(TypeError, match="key="):
        locked(functools.partial(fetch, "a"))
    assert locked("name")(lambda: 1)() == 1


def test_generators_are_refused_when_they_are_decorated() -> None:
    def lines() -> Iterator[int]:
        yield 1

    async def alines() -> Any:
        yield 1

    for function in (lines, alines):
        with pytest.raises(TypeError, match="generator"):
            locked(function)


def test_the_order_of_decorators_is_told() -> None:
    with pytest.raises(TypeError, match="below @classmethod"):
        locked(classmethod(lambda cls: 1))  # type: ignore[arg-type]


class Service:
    @locked(wait=0)
    def run(self, job: str) -> str:
        return probe()

    @classmethod
    @locked(wait=0)
    def setup(cls) -> str:
        return probe()

    @staticmethod
    @locked(wait=0)
    def helper(self: str) -> str:
        return probe()


class SpecialService(Service): ...


def test_methods_exclude_each_other_whatever_object_they_are_called_on() -> None:
    assert excludes(lambda: Service().run("a"), lambda: Service().run(job="a"))
    assert not excludes(lambda: Service().run("a"), lambda: Service().run("b"))
    assert excludes(Service.setup, Service.setup)
    assert not excludes(Service.setup, SpecialService.setup)


class Order(models.Model):
    class Meta:
        app_label = "tests"

    @locked(wait=0)
    def pay(self) -> str:
        return probe()


def test_a_model_s_method_is_locked_per_row() -> None:
    assert excludes(Order(pk=1).pay, Order(pk=1).pay)
    assert not excludes(Order(pk=1).pay, Order(pk=2).pay)
    with pytest.raises(TypeError, match="unsaved"):
        Order().pay()


@locked(wait=0)
def view(request: HttpRequest, part: str = "") -> HttpResponse:
    return HttpResponse(probe())


class Page(View):
    @locked(wait=0)
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(probe())


@method_decorator(locked(wait=0), name="dispatch")
class LockedPage(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(probe())


@pytest.mark.parametrize("page", [view, Page.as_view(), LockedPage.as_view()])
def test_views_are_locked_per_method_path_and_query(page: Any) -> None:
    get = RequestFactory().get
    assert page(get("/a/")).content == b"done"
    assert excludes(lambda: page(get("/a/?x=1&y=2")), lambda: page(get("/a/?y=2&x=1")))
    assert not excludes(lambda: page(get("/a/?x=1")), lambda: page(get("/a/?x=2")))
    assert not excludes(lambda: page(get("/a/")), lambda: page(get("/b/")))


def test_a_view_is_locked_per_method_and_argument() -> None:
    factory = RequestFactory()
    assert not excludes(lambda: view(factory.get("/a/")), lambda: view(factory.post("/a/")))
    assert not excludes(lambda: view(factory.get("/a/"), "x"), lambda: view(factory.get("/a/")))


def test_another_alias_is_another_lock() -> None:
    @locked("name", "other", wait=0)
    def elsewhere() -> str:
        return probe()

    with caches["default"].lock("name"):  # type: ignore[attr-defined]
        assert elsewhere() == "done"


def test_a_cache_without_locks_is_named() -> None:
    @locked(alias="plain")
    def function() -> None: ...

    with pytest.raises(TypeError, match=r"CACHES\['plain'\] has no locks"):
        function()


def test_the_function_gets_at_its_lock() -> None:
    @locked("outer")
    def outer() -> None:
        mine = current_lock()
        assert inner() != mine.token
        assert current_lock() is mine
        mine.check()

    @locked("inner")
    def inner() -> int | None:
        return current_lock().token

    outer()
    with pytest.raises(RuntimeError, match="no @locked function"):
        current_lock()


def test_an_error_comes_out_and_frees_the_lock() -> None:
    @locked("name", wait=0)
    def failing() -> None:
        raise KeyError("inside")

    for _ in range(2):
        with pytest.raises(KeyError, match="inside"):
            failing()


def test_a_lock_that_is_lost_inside_is_an_error_outside() -> None:
    @locked("name")
    def long() -> None:
        lock = current_lock()
        lock.engine.lock_release(lock.name, lock.token or 0)

    with pytest.raises(LockLost):
        long()


def test_recursion_has_to_be_asked_for() -> None:
    @locked("deep", reentrant=True)
    def deep(levels: int) -> int:
        return deep(levels - 1) + 1 if levels else 0

    @locked("shallow", wait=0)
    def shallow(levels: int) -> int:
        return shallow(levels - 1) + 1 if levels else 0

    assert deep(5) == 5
    assert deep(1) == 1
    with pytest.raises(LockNotAcquired):
        shallow(1)


def test_coroutines_are_awaited_under_the_lock_one_by_one() -> None:
    inside = 0

    @locked
    async def alone(name: str) -> int:
        nonlocal inside
        assert inside == 0
        inside += 1
        await asyncio.sleep(0.001)
        inside -= 1
        return current_lock().token or 0

    async def main() -> list[int]:
        assert asyncio.iscoroutinefunction(alone)
        return await asyncio.gather(*(alone("a") for _ in range(5)))

    tokens = asyncio.run(main())
    assert len(set(tokens)) == 5


def test_the_name_is_the_same_in_every_process() -> None:
    script = """
import os, sys, django
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
django.setup()
from nearcache.locked import current_lock, locked
@locked
def named(a, *rest, b=frozenset({"x", "y", "z"}), **more):
    return current_lock().name
print(named("a", {"k": 1, "l": 2}, q=2.5))
"""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert "__main__.named:" in outputs.pop()
