"""A Redis that is killed, frozen or restarted logs nobody out, and no answer says otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.sessions.backends.cache import SessionStore as DjangoStore
from django.core.exceptions import ImproperlyConfigured
from django.test import AsyncClient, Client, override_settings

from nearcache.errors import OptionError, SessionsAway
from nearcache.sessions import SessionStore, session_options
from tests.needs import need
from tests.redis.servers import Server, running, wait_for

OURS = "nearcache.sessions.SessionMiddleware"
DJANGOS = "django.contrib.sessions.middleware.SessionMiddleware"
REDIS = {
    "nearcache": ("nearcache.backends.RedisCache", {"connect_timeout": 2.0, "read_timeout": 2.0}),
    "django": (
        "django.core.cache.backends.redis.RedisCache",
        {"socket_timeout": 2.0, "socket_connect_timeout": 2.0},
    ),
}


@pytest.fixture
def server(redis_directory: Path) -> Iterator[Server]:
    need("redis-server")
    # It keeps what it answered for through a restart: with `everysec` it may answer a write that
    # waits for an fsync of the one before, and a kill loses it.
    with running(redis_directory, "--appendonly", "yes", "--appendfsync", "always") as server:
        yield server


@contextmanager
def site(server: Server, backend: str = "nearcache", **given: Any) -> Iterator[Client]:
    name, options = REDIS[backend]
    location = f"redis://127.0.0.1:{server.port}/0"
    with override_settings(
        **{
            "CACHES": {"default": {"BACKEND": name, "LOCATION": location, "OPTIONS": options}},
            "SESSION_ENGINE": "nearcache.sessions",
            "SESSION_CACHE_ALIAS": "default",
            "MIDDLEWARE": [OURS],
            "ROOT_URLCONF": "tests.sessions.site",
            "ALLOWED_HOSTS": ["testserver"],
            **given,
        }
    ):
        client = Client(raise_request_exception=False)
        assert client.get("/login?user=eve").content == b"in"
        assert client.get("/who").content == b"eve"
        yield client


def kill(server: Server) -> None:
    server.kill()


def freeze(server: Server) -> None:
    server.pause()


def mend(server: Server) -> None:
    """Until it answers; a killed one is started again with what it held."""
    if server.dead:
        server.start()
        server.wait_ready()
    else:
        server.resume()


def once_back(ask: Callable[[], bytes]) -> bytes:
    """What is answered as soon as the client trusts its server again."""
    found = b""

    def answered() -> bool:
        nonlocal found
        found = ask()
        return b"cannot be reached" not in found

    wait_for(answered)
    return found


@pytest.mark.parametrize("backend", REDIS)
@pytest.mark.parametrize("outage", [kill, freeze])
def test_an_outage_is_503_and_afterwards_everybody_is_still_logged_in(
    server: Server, outage: Callable[[Server], None], backend: str
) -> None:
    with site(server, backend) as client:
        cookie = client.cookies["sessionid"].value
        outage(server)
        for page in ("/who", "/change?basket=x", "/logout", "/login?user=mallory"):
            answer = client.get(page)
            assert answer.status_code == 503, page
            assert answer.headers["Retry-After"] == "5"
            assert answer.headers["Cache-Control"] == "no-store"
            assert not answer.cookies, page  # neither set nor deleted
        assert client.get("/plain").content == b"plain"
        mend(server)
        assert once_back(lambda: client.get("/who").content) == b"eve"
        assert client.cookies["sessionid"].value == cookie
        assert client.get("/basket").content == b"empty"


@pytest.mark.parametrize("outage", [kill, freeze])
def test_who_keeps_the_cookie_may_read_and_not_write(
    server: Server, outage: Callable[[Server], None]
) -> None:
    kept = {"WHILE_AWAY": "keep", "RETRY_AFTER": 30}
    with site(server, NEARCACHE_SESSIONS=kept, SESSION_SAVE_EVERY_REQUEST=True) as client:
        outage(server)
        answer = client.get("/who")
        assert (answer.status_code, answer.content) == (200, b"nobody")
        # With SAVE_EVERY_REQUEST Django sends the cookie again: it must be the same.
        assert client.cookies["sessionid"].value
        for page in ("/change?basket=x", "/logout", "/login?user=mallory"):
            answer = client.get(page)
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "30"), page
            assert not answer.cookies
        mend(server)
        assert once_back(lambda: client.get("/basket").content) == b"empty"
        wait_for(lambda: client.get("/who").content == b"eve")


def test_a_session_that_was_not_read_is_not_written_when_the_cache_is_back(server: Server) -> None:
    """Or the change of a moment would replace all that somebody has."""
    with site(server, NEARCACHE_SESSIONS={"WHILE_AWAY": "keep"}) as client:
        store = SessionStore(client.cookies["sessionid"].value)
        server.pause()
        assert store.get("user") is None
        server.resume()
        wait_for(lambda: client.get("/who").content == b"eve")
        store["basket"] = "x"
        with pytest.raises(SessionsAway):
            store.save()
        with pytest.raises(SessionsAway):
            store.cycle_key()
        assert client.get("/who").content == b"eve"


@pytest.mark.parametrize("cycle", [SessionStore.cycle_key, async_to_sync(SessionStore.acycle_key)])
def test_a_session_that_could_not_be_read_is_not_moved_to_another_key(
    server: Server, cycle: Callable[[SessionStore], None]
) -> None:
    """The new key would hold nothing, and then the old one be deleted: all of it would be lost."""
    with site(server, NEARCACHE_SESSIONS={"WHILE_AWAY": "keep"}) as client:

        class BackAtOnce(SessionStore):
            """Its cache answers again as soon as one read has failed."""

            def _unknown(self) -> dict[str, Any]:
                server.resume()
                wait_for(lambda: client.get("/who").content == b"eve")
                return super()._unknown()

        store = BackAtOnce(client.cookies["sessionid"].value)
        server.pause()
        with pytest.raises(SessionsAway):
            cycle(store)
        assert client.get("/who").content == b"eve"


def test_a_change_that_the_cache_does_not_take_is_503_and_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Shared memory has no `set` that raises for a value that is too large."""
    cache = {
        "BACKEND": "nearcache.backends.SharedMemoryCache",
        "LOCATION": str(tmp_path / "own" / "sessions"),
        "OPTIONS": {"size": "1MB"},
    }
    with override_settings(
        CACHES={"default": cache},
        SESSION_ENGINE="nearcache.sessions",
        SESSION_CACHE_ALIAS="default",
        MIDDLEWARE=[OURS],
        ROOT_URLCONF="tests.sessions.site",
        ALLOWED_HOSTS=["testserver"],
    ):
        client = Client(raise_request_exception=False)
        client.get("/login?user=eve")
        for page in ("/fill", "/afill"):
            answer = client.get(page)
            assert (answer.status_code, dict(answer.cookies)) == (503, {}), page
            assert client.get("/who").content == b"eve"
        assert "too large" in caplog.text
        caplog.clear()
        assert client.get("/strange").status_code == 503
        assert "local object" in caplog.text  # why, and where
        assert client.get("/who").content == b"eve"


def test_async_pages_are_answered_alike(server: Server) -> None:
    with site(server) as client:
        cookie = client.cookies["sessionid"].value

        async def ask(page: str) -> Any:
            asking = AsyncClient(raise_request_exception=False)
            asking.cookies["sessionid"] = cookie
            return await asking.get(page)

        assert asyncio.run(ask("/awho")).content == b"eve"
        assert asyncio.run(ask("/achange?basket=new")).content == b"changed"
        assert client.get("/basket").content == b"new"
        server.kill()
        for page in ("/awho", "/achange?basket=x"):
            answer = asyncio.run(ask(page))
            assert (answer.status_code, bool(answer.cookies)) == (503, False), page
        mend(server)
        assert once_back(lambda: asyncio.run(ask("/awho")).content) == b"eve"


def test_under_django_s_middleware_it_is_a_500_and_nobody_is_logged_out(server: Server) -> None:
    with site(server, MIDDLEWARE=[DJANGOS]) as client:
        server.kill()
        answer = client.get("/who")
        assert (answer.status_code, bool(answer.cookies)) == (500, False)


def test_django_s_own_engine_does_log_people_out(server: Server) -> None:
    """What this engine is for: if Django ever mends it, this fails."""
    engine = "django.contrib.sessions.backends.cache"
    with site(server, SESSION_ENGINE=engine, MIDDLEWARE=[DJANGOS]) as client:
        server.kill()
        answer = client.get("/who")
        assert (answer.status_code, answer.content) == (200, b"nobody")
        assert answer.cookies["sessionid"]["max-age"] == 0


def test_what_is_not_there_is_not_there(server: Server) -> None:
    """An unknown or impossible cookie is no outage: it goes, as with Django's engine."""
    with site(server):
        for key in ("0123456789abcdef0123456789abcdef", "with a space in it", "x" * 400):
            client = Client()
            client.cookies["sessionid"] = key
            answer = client.get("/who")
            assert (answer.status_code, answer.content) == (200, b"nobody")
            assert answer.cookies["sessionid"]["max-age"] == 0


def test_logout_deletes_the_session_and_its_cookie(server: Server) -> None:
    with site(server) as client:
        key = client.cookies["sessionid"].value
        answer = client.get("/logout")
        assert (answer.content, answer.cookies["sessionid"]["max-age"]) == (b"out", 0)
        assert not SessionStore().exists(key)


def test_both_engines_read_each_other_s_sessions(server: Server) -> None:
    with site(server) as client:
        key = client.cookies["sessionid"].value
        assert DjangoStore(key).get("user") == "eve"
        theirs = DjangoStore()
        theirs["user"] = "adam"
        theirs.save()
        assert SessionStore(theirs.session_key).get("user") == "adam"


def test_a_cache_that_answers_an_outage_with_misses_is_refused(server: Server) -> None:
    location = f"redis://127.0.0.1:{server.port}/0"
    forgiving = {"on_error": "miss"}
    entry = {"BACKEND": REDIS["nearcache"][0], "LOCATION": location, "OPTIONS": forgiving}
    with (
        override_settings(CACHES={"default": entry}),
        pytest.raises(ImproperlyConfigured, match="answers an outage with misses"),
    ):
        SessionStore()


def test_a_wrong_option_is_named() -> None:
    with (
        override_settings(NEARCACHE_SESSIONS={"WHILE_AWY": "keep"}),
        pytest.raises(OptionError, match="WHILE_AWAY"),
    ):
        session_options()
