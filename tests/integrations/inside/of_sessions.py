"""Sessions of Django's own engines and ours, log-ins, and messages kept in sessions."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client, override_settings

ENGINES = [
    "django.contrib.sessions.backends.cache",
    "django.contrib.sessions.backends.cached_db",
    "nearcache.sessions",
]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Any:
    with override_settings(SESSION_ENGINE=request.param):
        yield request.param


@pytest.fixture
def users() -> Any:
    yield [User.objects.create_user(name, password="secret") for name in ("ada", "bob")]
    User.objects.all().delete()
    Session.objects.all().delete()


def test_each_is_who_logged_in_until_the_log_out(cache: Any, engine: str, users: Any) -> None:
    clients = [Client(), Client()]
    for client, user in zip(clients, users, strict=True):
        client.get("/enter", {"user": user.username})
    assert [client.get("/who").json()["user"] for client in clients] == ["ada", "bob"]
    clients[0].get("/leave")
    assert [client.get("/who").json()["user"] for client in clients] == ["", "bob"]


def test_cached_db_keeps_people_logged_in_when_the_cache_lost_all(cache: Any, users: Any) -> None:
    with override_settings(SESSION_ENGINE="django.contrib.sessions.backends.cached_db"):
        client = Client()
        client.get("/enter", {"user": "ada"})
        cache.clear()
        assert client.get("/who").json()["user"] == "ada"
        assert cache.keys("*cached_db*"), "and it is cached anew"


@pytest.mark.parametrize("storage", ["session.SessionStorage", "fallback.FallbackStorage"])
def test_messages_are_heard_once_and_whole(cache: Any, engine: str, storage: str) -> None:
    text = "<b>größer</b> " * 300  # more than a cookie holds
    with override_settings(MESSAGE_STORAGE=f"django.contrib.messages.storage.{storage}"):
        client = Client()
        client.get("/say", {"text": "first"})
        client.get("/say", {"text": text})
        assert client.get("/hear").json()["heard"] == [
            ["first", "warning", "loud warning"],
            [text, "warning", "loud warning"],
        ]
        assert client.get("/hear").json()["heard"] == []
        assert Client().get("/hear").json()["heard"] == []
