"""Throttles of Django REST framework, and django-ratelimit: exact counts, each his own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache as default
from django.core.checks import Error, run_checks
from django.test import Client, override_settings


def statuses(path: str, times: int, **extra: Any) -> list[int]:
    return [Client().get(path, **extra).status_code for _ in range(times)]


def test_a_throttle_lets_three_through_of_each_address(cache: Any) -> None:
    assert statuses("/throttled", 5) == [200, 200, 200, 429, 429]
    assert statuses("/throttled", 4, REMOTE_ADDR="10.0.0.2") == [200, 200, 200, 429]


def test_a_throttle_tells_when_to_come_back(cache: Any) -> None:
    statuses("/throttled", 3)
    refused = Client().get("/throttled")
    assert 0 < int(refused.headers["Retry-After"]) <= 60


def test_a_throttle_of_users_knows_them_apart(cache: Any) -> None:
    users = [User.objects.create_user(name) for name in ("ada", "bob")]
    try:
        for user in users:
            client = Client()
            client.force_login(user)
            assert [client.get("/throttled-user").status_code for _ in range(3)] == [200, 200, 429]
    finally:
        User.objects.all().delete()


def test_ratelimit_lets_three_through_of_each_address(cache: Any) -> None:
    assert statuses("/limited", 5) == [200, 200, 200, 403, 403]
    assert statuses("/limited", 4, REMOTE_ADDR="10.0.0.2") == [200, 200, 200, 403]


def test_ratelimit_counts_everybody_who_comes_at_once(cache: Any) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: statuses("/limited", 1)[0], range(40)))
    assert sorted(found) == [200] * 3 + [403] * 37


def test_ratelimit_finds_no_error_in_the_settings(cache: Any) -> None:
    from django_ratelimit.checks import check_caches

    assert not [each for each in check_caches(None) if isinstance(each, Error)]


def test_the_project_passes_its_checks(cache: Any) -> None:
    default.set("used", 1)
    assert not [each for each in run_checks() if isinstance(each, Error)]


@pytest.mark.parametrize("alias", ["default", "limits"])
def test_ratelimit_takes_an_alias_of_its_own(cache: Any, alias: str, settings_for: Any) -> None:
    with override_settings(CACHES=settings_for("limits"), RATELIMIT_USE_CACHE=alias):
        assert statuses("/limited", 4) == [200, 200, 200, 403]
