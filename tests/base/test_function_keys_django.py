"""The names of calls with what Django hands around: rows of tenants, users, lazy objects."""

from __future__ import annotations

import datetime as dt
import enum
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext_lazy

from nearcache.base.function_keys import call_key, canonical
from nearcache.memoize import memoize

TENANTS = """
from django.conf import settings
settings.configure(
    SECRET_KEY="for tests only",
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth"],
    DATABASES={
        alias: {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
        for alias in ("default", "acme", "globex")
    },
    CACHES={"default": {
        "BACKEND": "nearcache.backends.SharedMemoryCache",
        "LOCATION": PATH, "OPTIONS": {"size": "2MB"},
    }},
)
import django; django.setup()
from django.contrib.auth.models import Group
from django.core.management import call_command
from nearcache.base.function_keys import call_key
from nearcache.memoize import memoize

@memoize(timeout=60)
def name_of(group):
    return Group.objects.using(group._state.db).get(pk=group.pk).name

for alias in ("acme", "globex"):
    call_command("migrate", database=alias, verbosity=0)
    Group.objects.using(alias).create(pk=1, name="of " + alias)
"""


def in_tenants(code: str, private_path: Path) -> str:
    script = TENANTS.replace("PATH", repr(str(private_path / "cache")))
    done = subprocess.run(
        [sys.executable, "-c", script + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": ""},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_rows_of_two_tenants_are_two_calls(private_path: Path) -> None:
    code = """
    groups = [Group.objects.using(alias).get(pk=1) for alias in ("acme", "globex")]
    print([name_of(each) for each in groups])
    deferred = Group.objects.using("acme").only("pk").get()
    again = Group.objects.using("acme").get()
    assert name_of.key(deferred) == name_of.key(again) == name_of.key(groups[0])
    """
    assert in_tenants(code, private_path) == "['of acme', 'of globex']"


def test_what_is_no_row_is_refused(private_path: Path) -> None:
    code = """
    from django.utils.functional import SimpleLazyObject
    refused = []
    for each in (Group(), Group.objects.all(), Group.objects):
        try:
            name_of.key(each)
        except TypeError as error:
            refused.append(str(error).partition("(")[2][2:20])
    print(len(refused))
    made_up = [Group(pk=1, name=name) for name in "abb"]
    assert len({name_of.key(each) for each in made_up}) == 2, "what is no row is what it holds"
    row = Group.objects.using("acme").get()
    print(name_of.key(SimpleLazyObject(lambda: row)) == name_of.key(row), name_of.key(Group) != 1)
    """
    assert in_tenants(code, private_path) == "3\nTrue True"


def total(item: Any = None) -> None: ...


def key(value: Any) -> str:
    return call_key(total, (value,))


class User:
    def __init__(self, pk: int) -> None:
        self.pk = pk

    def name(self) -> None: ...


def test_a_lazy_object_is_what_it_stands_for() -> None:
    assert key(SimpleLazyObject(lambda: "a")) == key("a") != key(SimpleLazyObject(lambda: "b"))
    assert key(SimpleLazyObject(lambda: SimpleLazyObject(lambda: 5))) == key(5)
    with pytest.raises(TypeError, match="has no identity"):
        key(SimpleLazyObject(lambda: User(1)))
    with pytest.raises(TypeError, match="has no identity"):
        key(gettext_lazy("a text of the reader's language"))


def test_visitors_who_are_nobody_are_one(private_path: Path) -> None:
    code = """
    from django.contrib.auth.models import AnonymousUser
    from django.utils.functional import SimpleLazyObject
    nobody, lazy = AnonymousUser(), SimpleLazyObject(AnonymousUser)
    print(name_of.key(nobody) == name_of.key(lazy), name_of.key(nobody) != name_of.key(None))
    try:
        name_of.key(nobody.has_perm)
    except TypeError:
        print("refused")
    """
    assert in_tenants(code, private_path) == "True True\nrefused"


class Right(enum.IntFlag):
    READ = 1
    WRITE = 2


class Other(enum.IntEnum):
    READ = 1


class Place(dt.tzinfo):
    def utcoffset(self, when: Any) -> dt.timedelta:
        return dt.timedelta(0)


class Labelled(str):
    __slots__ = ("label",)


def labelled(label: str) -> Labelled:
    text = Labelled("x")
    text.label = label
    return text


def test_numbers_and_moments_that_compare_as_equal_are_told_apart() -> None:
    berlin, paris = ZoneInfo("Europe/Berlin"), ZoneInfo("Europe/Paris")
    values = [
        Right(1),
        Right(3),
        Right(8),
        Right(9),
        Other(1),
        dt.datetime(2026, 1, 1),  # noqa: DTZ001
        dt.datetime(2026, 1, 1, tzinfo=berlin),
        dt.datetime(2026, 1, 1, tzinfo=paris),
        dt.datetime(2026, 10, 25, 2, 30, tzinfo=berlin),
        dt.datetime(2026, 10, 25, 2, 30, tzinfo=berlin, fold=1),
    ]
    assert len({key(each) for each in values}) == len(values)


@pytest.mark.parametrize(
    "value",
    [
        dt.datetime(2026, 1, 1, tzinfo=Place()),
        dt.time(1, tzinfo=Place()),
        labelled("a"),
        "abc".upper,
        User(1).name,
    ],
    ids=["zone", "time", "slots", "method of text", "method"],
)
def test_what_its_spelling_does_not_tell_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="cannot be part of a key"):
        key(value)


def made(tenant: str) -> Any:
    def name() -> str:
        return tenant

    return name


def a_class() -> type:
    class Local: ...

    return Local


def test_functions_and_classes_of_one_name_are_not_taken_for_each_other() -> None:
    assert key(made) == key(made) != key(a_class)
    for each in (made("a"), a_class()):
        with pytest.raises(TypeError, match="cannot be found by that name"):
            key(each)


def test_what_a_function_captured_is_an_argument() -> None:
    def of(tenant: Any) -> Any:
        @memoize(timeout=60)
        def total() -> str:
            return f"of {tenant}"

        return total

    acme, globex = of("acme"), of("globex")
    assert acme.key() == of("acme").key() != globex.key()
    assert [acme(), globex()] == ["of acme", "of globex"]
    with pytest.raises(TypeError, match="captured variable 'tenant' cannot be part of a key"):
        of(object()).key()


def test_functions_behind_one_decorator_are_not_taken_for_each_other() -> None:
    def loud(function: Any) -> Any:
        def wrapper() -> str:  # without functools.wraps
            return f"{function()}!"

        return wrapper

    @memoize(timeout=60)
    @loud
    def one() -> str:
        return "one"

    @memoize(timeout=60)
    @loud
    def two() -> str:
        return "two"

    assert [one(), two()] == ["one!", "two!"]


def test_methods_that_call_super_capture_nothing() -> None:
    class Base:
        def name(self) -> str:
            return "base"

    class Child(Base):
        @memoize(timeout=60, ignore=("self",))
        def name(self) -> str:
            return super().name()

    assert Child().name() == "base"


def test_a_function_that_calls_itself_is_one() -> None:
    @memoize(timeout=60)
    def factorial(n: int) -> int:
        return n * factorial(n - 1) if n else 1

    assert factorial(4) == 24
    assert canonical(1)
