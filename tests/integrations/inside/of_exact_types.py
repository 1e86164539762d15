"""What goes in comes out: of the same type, equal, and with what the type adds to its value."""

from __future__ import annotations

import asyncio
import datetime
import json
import math
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import Group, User
from django.http import HttpResponse, JsonResponse
from django.template import Context, Template, engines
from django.template.response import SimpleTemplateResponse
from django.test import override_settings
from django.utils import timezone, translation
from django.utils.functional import Promise
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext_lazy

from tests.integrations.inside import made_of

PAGE = engines["django"].from_string("<p>{{ a }}")
BERLIN = ZoneInfo("Europe/Berlin")
VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**63 - 1, -(2**63), 2**63, 2**200, 0.1, -0.0, math.inf, 1j),
    *("", "größer", "\x00", "\U0001f600", "a" * 5000, b"", b"\x00\xff", bytearray(b"ab")),
    *(mark_safe("<b>"), made_of.Text("more")),
    *((), (1,), [1], {1}, frozenset({1}), {}, {1: "a", "1": "b", (1, 2): None, None: 0}),
    *([(1, [2, (3,)])], ({"a": {"b": [True, 1, 1.0]}},), range(3), slice(1, 2), ...),
    *(OrderedDict(b=1, a=2), defaultdict(list, a=[1]), deque([1, 2], maxlen=3)),
    *(Decimal("1.10"), Decimal("-0"), Decimal("1E+3"), Fraction(1, 3)),
    *(UUID(int=1), UUID("12345678-1234-5678-1234-567812345678"), PurePosixPath("/a/b")),
    *(datetime.date(2024, 2, 29), datetime.time(1, 2, 3, 4), datetime.timedelta(-1, 1, 1)),
    *(datetime.datetime(2024, 1, 2, 3), datetime.datetime.min, datetime.datetime.max),  # noqa: DTZ001, DTZ901
    datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC),
    datetime.datetime(2024, 1, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=5.5), "X")),
    datetime.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN),
    datetime.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1),
    datetime.time(1, tzinfo=datetime.UTC, fold=1),
    *(BERLIN, datetime.UTC, timezone.get_fixed_timezone(90)),
    *(made_of.Colour.RED, made_of.Rank.LOW, made_of.Flags.A | made_of.Flags.B, made_of.Name.ADA),
    *(made_of.Size.BIG, made_of.Step.FIRST),
    *(made_of.Plain("a", ["b"]), made_of.Frozen(Decimal("1.10"), made_of.Rank.LOW)),
    made_of.Point(1, 2.0),
    made_of.Order(id=UUID(int=1), price=Decimal("1.10"), tags={"a"}, more={"b": (1,)}),
    *(made_of.Plain, len, json.dumps, int),
]
WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "set and get": lambda cache, value: (cache.set("k", value), cache.get("k", "missing"))[1],
    "many": lambda cache, value: (cache.set_many({"k": value}), cache.get_many(["k"])["k"])[1],
    "get_or_set": lambda cache, value: (
        cache.get_or_set("k", lambda: value),
        cache.get("k", "missing"),
    )[1],
    "stale values": lambda cache, value: (
        cache.get_or_set("k", lambda: value, 60, stale=60),
        cache.get("k", "missing"),
    )[1],
    "async": lambda cache, value: asyncio.run(there_and_back(cache, value)),
}


async def there_and_back(cache: Any, value: Any) -> Any:
    await cache.aset("k", value)
    return await cache.aget("k", "missing")


def same(found: Any, value: Any) -> bool:
    """Of one type and equal, and so is all that is in it."""
    if type(found) is not type(value) or found != value:
        return False
    if isinstance(value, dict):
        pairs = zip(found.items(), value.items(), strict=True)
        return all(same(a, c) and same(b, d) for (a, b), (c, d) in pairs)
    if isinstance(value, list | tuple | deque):
        return all(same(a, b) for a, b in zip(found, value, strict=True))
    return repr(found) == repr(value)


@pytest.mark.parametrize("way", WAYS)
def test_values_come_back_as_they_were(cache: Any, way: str) -> None:
    for value in VALUES:
        cache.delete("k")
        # Under a timeout: without one, get_or_set of None means that there is nothing.
        found = WAYS[way](cache, value)
        assert same(found, value), f"{value!r} came back as {found!r}"


def test_not_a_number_comes_back(cache: Any) -> None:
    cache.set("k", [math.nan])
    assert math.isnan(cache.get("k")[0])


def test_fold_and_zone_of_a_datetime_come_back(cache: Any) -> None:
    moment = datetime.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1)
    cache.set("k", moment)
    found = cache.get("k")
    assert (found.fold, found.tzinfo, found.utcoffset()) == (1, BERLIN, moment.utcoffset())


def test_what_is_safe_stays_safe_and_what_is_not_does_not(cache: Any) -> None:
    cache.set_many({"safe": mark_safe("<b>"), "plain": "<b>"})
    assert type(cache.get("safe")) is SafeString
    assert type(cache.get("plain")) is str
    shown = Template("{{ safe }}{{ plain }}").render(Context(cache.get_many(["safe", "plain"])))
    assert shown == "<b>&lt;b&gt;"


def test_a_lazy_string_stays_lazy(cache: Any) -> None:
    cache.set("k", {"label": gettext_lazy("Sunday")})
    found = cache.get("k")["label"]
    assert isinstance(found, Promise)
    with translation.override("de"):
        assert str(found) == "Sonntag"
    with translation.override("fr"):
        assert str(found) == "dimanche"


def test_a_dict_with_a_default_goes_on_making_them(cache: Any) -> None:
    cache.set("k", defaultdict(list))
    assert cache.get("k")["new"] == []


@pytest.mark.parametrize("kind", ["plain", "json", "template"])
def test_a_response_comes_back_whole(cache: Any, kind: str) -> None:
    response = {
        "plain": lambda: HttpResponse(b"\xff\x00", status=418, content_type="x/y"),
        "json": lambda: JsonResponse({"a": 1}),
        "template": lambda: SimpleTemplateResponse(PAGE, {"a": "<"}).render(),
    }[kind]()
    response.headers["X-Own"] = "1"
    response.set_cookie("name", "value", max_age=5, httponly=True)
    cache.set("k", response)
    found = cache.get("k")
    assert type(found) is type(response)
    assert (found.status_code, found.content) == (response.status_code, response.content)
    assert dict(found.headers) == dict(response.headers)
    assert found.cookies.output() == response.cookies.output()


def test_a_row_comes_back_with_its_state(cache: Any) -> None:
    user = User.objects.create_user("ada", email="a@b.c")
    try:
        cache.set("k", {"saved": user, "new": Group(name="new")})
        found = cache.get("k")
        assert found["saved"] == user
        assert found["saved"]._state.db == "default"
        assert (found["saved"]._state.adding, found["new"]._state.adding) == (False, True)
        found["saved"].email = "b@b.c"
        found["saved"].save()
        assert User.objects.get(pk=user.pk).email == "b@b.c"
        assert cache.get("k")["saved"].email == "a@b.c", "what is cached is nobody's to change"
        cache.set("k", User.objects.only("username").get(pk=user.pk))
        assert cache.get("k").get_deferred_fields() >= {"email", "password"}
    finally:
        User.objects.all().delete()


def test_a_queryset_comes_back_with_its_rows(cache: Any) -> None:
    Group.objects.bulk_create([Group(name="a"), Group(name="b")])
    try:
        cache.set("k", Group.objects.filter(name__gte="a").order_by("-name"))
        cache.set("values", Group.objects.order_by("name").values_list("name", flat=True))
        Group.objects.filter(name="a").delete()
        found = cache.get("k")
        assert [group.name for group in found] == ["b", "a"], "as they were when it was cached"
        assert [group.name for group in found.filter(name="a")] == [], "and asked for anew, not"
        assert list(cache.get("values")) == ["a", "b"]
    finally:
        Group.objects.all().delete()


def test_what_is_changed_after_it_was_stored_changes_nothing(cache: Any) -> None:
    value = {"list": [1], "plain": made_of.Plain("a")}
    cache.set("k", value)
    value["list"].append(2)  # type: ignore[attr-defined]
    cache.get("k")["list"].append(3)
    assert cache.get("k") == {"list": [1], "plain": made_of.Plain("a")}


def test_the_time_zone_of_the_reader_does_not_matter(cache: Any) -> None:
    with override_settings(TIME_ZONE="Asia/Tokyo"):
        moment = timezone.localtime(datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC))
        cache.set("k", moment)
    found = cache.get("k")
    assert found == moment
    assert found.utcoffset() == datetime.timedelta(hours=9)
