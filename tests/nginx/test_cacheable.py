"""``@cacheable`` behind a real nginx: what may be kept is, and nobody sees another's page."""

from __future__ import annotations

import asyncio
import logging
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cache
from http.cookies import SimpleCookie
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any
from urllib.parse import urlencode

import pytest
from django.conf import settings
from django.conf.urls.i18n import i18n_patterns
from django.core.exceptions import MiddlewareNotUsed
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest
from django.test import AsyncClient, Client, RequestFactory, override_settings
from django.urls import path as url_path
from django.utils.functional import SimpleLazyObject
from hypothesis import given
from hypothesis import strategies as st

from nearcache.errors import NginxError
from nearcache.nginx import cacheable
from nearcache.nginx.cachedir.directory import CacheDir
from nearcache.nginx.config.prove.sandbox import Reply, Sandbox, Served
from nearcache.nginx.config.write.answers import Answers
from nearcache.nginx.config.write.files import generate
from nearcache.nginx.django.arguments import spelled
from nearcache.nginx.keys.spelling import parse_spelling
from nearcache.nginx.middleware import VARY_HEADER, WhyUncacheableMiddleware
from tests.nginx import cacheable_site
from tests.nginx.cacheable_site import line
from tests.nginx.conftest import Nginx, StartNginx, wait_for
from tests.nginx.test_config import canonical

FILE = "tests/nginx/cacheable_site.py"
UNCACHEABLE = "X-Nearcache-Uncacheable"
WHY = f"{WhyUncacheableMiddleware.__module__}.{WhyUncacheableMiddleware.__qualname__}"


@pytest.fixture(autouse=True)
def _site() -> Iterator[None]:
    with override_settings(**cacheable_site.SETTINGS):
        yield


@pytest.fixture
def development() -> Iterator[None]:
    with override_settings(DEBUG=True, MIDDLEWARE=[WHY, *cacheable_site.SETTINGS["MIDDLEWARE"]]):
        yield


@pytest.fixture
def start(start_nginx: StartNginx) -> Iterator[Callable[[str], Sandbox]]:
    """The site behind what ``nearcache nginx config`` makes; the argument is ``--normalize``."""
    with Served(WSGIHandler()) as served, Sandbox() as box:

        def run(rules: str = "") -> Sandbox:
            made = generate(
                Answers(proxy=f"http://{served.address}", spelling=parse_spelling(rules),
                        listen=f"unix:{box.socket}", cache_path=f"{box.directory}/cache",
                        log_path=f"{box.directory}/log")
            )  # fmt: skip
            box.start(made.text)
            return box

        yield run


@pytest.fixture
def careless(start_nginx: StartNginx) -> Iterator[Nginx]:
    """nginx with nothing but a cache: only Django tells what is whose."""
    with Served(WSGIHandler()) as served:
        yield start_nginx(
            http="proxy_cache_path {cache} levels=1:2 keys_zone=z:1m inactive=1h;",
            server=f"""location / {{
                proxy_pass http://{served.address};
                proxy_cache z;
                proxy_cache_key $request_uri;
                proxy_cache_valid any 1h;
                add_header X-Cache $upstream_cache_status always;
            }}""",
        )


def is_kept(box: Sandbox, path: str) -> Reply:
    replies: list[Reply] = []

    def is_hit() -> bool:
        replies.append(box.ask(path))
        return replies[-1].cache == "HIT"

    assert wait_for(is_hit), f"{path}: {replies[-1]}"
    return replies[-1]


def is_not_kept(box: Sandbox, path: str) -> None:
    assert len({box.ask(path).body for _ in range(4)}) == 4


def test_queries_of_at_most_nine_characters_are_kept_and_no_others(
    start: Callable[..., Sandbox],
) -> None:
    box = start()
    assert box.ask("/autocomplete/?q=metallica").cache == "MISS"
    assert is_kept(box, "/autocomplete/?q=metallica").headers["Cache-Control"] == (
        "public, max-age=3600"
    )
    assert "X-Accel-Expires" not in box.ask("/autocomplete/?q=metallica+").headers
    is_not_kept(box, "/autocomplete/?q=metallicas")
    # Without the decorator the configuration's own time holds for all lengths.
    is_kept(box, "/undecorated/?q=metallicas")


def test_a_rule_for_keys_is_the_same_in_nginx_and_in_the_view(
    start: Callable[..., Sandbox],
) -> None:
    box = start("keep=q")
    first = is_kept(box, "/keyed/?q=abba")
    assert box.ask("/keyed/?utm_source=x&q=abba&q=b").body == first.body
    is_not_kept(box, "/keyed/?q=ABBA")
    assert is_kept(box, "/redirected/?q=ABBA+").headers["Location"] == "/redirected/?q=abba"


def test_what_browsers_keep_shorter_nginx_keeps_long(start: Callable[..., Sandbox]) -> None:
    reply = is_kept(start(), "/short-in-browsers/")
    assert reply.headers["Cache-Control"] == "public, max-age=0, s-maxage=3600"


PERSONAL = ["session", "user", "cart", "theme", "sets-theme", "form", "hello", "token", "greets",
            "messages", "stream", "varies/decorated", "own-words", "asession", "auser"]  # fmt: skip


def session_of(nginx: Nginx, user_id: int) -> str:
    return nginx.get(f"/login/?id={user_id}").headers["Set-Cookie"].partition(";")[0]


def test_two_users_never_see_each_others_page(careless: Nginx) -> None:
    visitors = [{"Cookie": f"{session_of(careless, n)}; theme=t{n}"} for n in (1, 2)]
    for name in PERSONAL:
        bodies = [careless.get(f"/{name}/", each).body for each in visitors * 2]
        if name != "hello":  # which has no number
            assert len(set(bodies)) == 4, name
    assert [careless.get("/user/", each).body.split()[1] for each in visitors] == [
        b"user1",
        b"user2",
    ]
    assert [careless.get("/hello/", each).body.strip() for each in visitors] == [
        b"hello user1",
        b"hello user2",
    ]
    own = {"Authorization": "Bearer secret"}
    assert careless.get("/plain/", own).body != careless.get("/plain/", own).body
    with CacheDir(careless.cache) as directory:
        assert list(directory.walk()) == []
    # And this nginx does keep what it may, with the other visitor's cookie in it:
    careless.fill("/theme/undecorated/", visitors[0])
    assert b"t1" in careless.get("/theme/undecorated/", visitors[1]).body
    careless.fill("/plain/", visitors[0])


def asked(path: str, **headers: str) -> Any:
    return Client(headers=headers).get(path)


@pytest.mark.parametrize(
    "path", ["/plain/", "/async/", "/page/", "/method/", "/template/", "/async-page/?q=a",
             "/by-language/", "/status/301/", "/keyed/?q=a", "/by-function/?q=a", "/by-function/"]
)  # fmt: skip
def test_every_kind_of_view_says_how_long(path: str) -> None:
    response = asked(path)
    assert response["Cache-Control"].startswith("public, max-age=")
    assert "X-Accel-Expires" not in response
    assert asyncio.run(AsyncClient().get(path))["Cache-Control"] == response["Cache-Control"]


@pytest.mark.parametrize("path", ["/status/404/", "/status/302/", "/status/500/"])
def test_other_statuses_are_left_to_the_configuration(path: str) -> None:
    assert "Cache-Control" not in asked(path)


def test_other_methods_are_left_alone() -> None:
    with override_settings(MIDDLEWARE=[]):
        response = Client().post("/page/?q=x")
    assert "Cache-Control" not in response
    assert "X-Accel-Expires" not in response


def test_a_file_is_kept_and_closed() -> None:
    response = asked("/file/")
    assert response.getvalue().startswith(b'"""A Django site')
    response.close()
    assert response["Cache-Control"] == "public, max-age=3600"


def test_the_shorter_time_of_the_view_holds() -> None:
    assert asked("/shorter/")["Cache-Control"] == "max-age=5, public"


@pytest.mark.parametrize("name", PERSONAL)
def test_what_is_somebodys_own_is_private(name: str) -> None:
    response = asked(f"/{name}/")
    assert "private" in response["Cache-Control"]
    assert "public" not in response["Cache-Control"]
    assert response["X-Accel-Expires"] == "0"
    assert UNCACHEABLE not in response  # DEBUG is off


def test_a_setting_that_sends_cookies_with_everything_is_known() -> None:
    with override_settings(SESSION_SAVE_EVERY_REQUEST=True):
        assert asked("/plain/")["Cache-Control"] == "public, max-age=3600"
        client = Client()
        client.get("/login/?id=1")
        assert client.get("/plain/")["Cache-Control"] == "private"


def test_a_language_that_was_chosen_by_a_cookie_is_nobody_elses() -> None:
    chose = {"cookie": "django_language=de"}
    response = asked("/plain/", **chose)
    assert (response["Cache-Control"], response["X-Accel-Expires"]) == ("private", "0")
    assert response["Vary"] == "Accept-Language"  # is all that Django says
    without = [each for each in settings.MIDDLEWARE if "Locale" not in each]
    with override_settings(MIDDLEWARE=without):
        assert asked("/plain/", **chose)["Cache-Control"] == "public, max-age=3600"


@pytest.mark.parametrize(
    ("path", "default_has_prefix", "said"),
    [("/de/x/", True, "public"), ("/x/", True, "private"), ("/x/", False, "public")],
)
def test_a_language_in_the_path_is_in_the_key(
    path: str, default_has_prefix: bool, said: str
) -> None:
    view = cacheable(max_age=60)(cacheable_site.plain)
    localized = i18n_patterns(url_path("x/", view), prefix_default_language=default_has_prefix)
    urls = ModuleType("urls_in_languages")
    urls.urlpatterns = [*localized, url_path("x/", view)]  # type: ignore[attr-defined]
    with override_settings(ROOT_URLCONF=urls):
        response = asked(path, cookie="django_language=de")
    assert response["Cache-Control"].startswith(said)


def test_a_cookie_that_a_middleware_sets_later_takes_the_answer_back() -> None:
    response = asked("/visitor/")
    assert (response["Cache-Control"], response["X-Accel-Expires"]) == (
        "max-age=3600, private",
        "0",
    )
    assert response.cookies["visitor"].value == "1"


def test_django_can_still_keep_the_answer_in_its_own_cache() -> None:
    response = cacheable(60)(cacheable_site.plain)(RequestFactory().get("/"))
    back = pickle.loads(pickle.dumps(response))
    back.set_cookie("a", "b")
    assert (back.content, type(back.cookies)) == (response.content, SimpleCookie)


def somebody(request: HttpRequest) -> None:
    request.user = cacheable_site.Backend().get_user(7)


def read_lazily(request: HttpRequest) -> None:
    request.user = SimpleLazyObject(lambda: cacheable_site.Backend().get_user(7))
    request.user.get_username()


def nonce(request: HttpRequest) -> None:
    request._csp_nonce = "r4nd0m"  # of Django's own middleware, and of django-csp


@pytest.mark.parametrize("before", [somebody, read_lazily, nonce])
def test_what_other_middleware_leaves_at_the_request_counts(before: Any) -> None:
    request = RequestFactory().get("/")
    before(request)
    response = cacheable(60)(cacheable_site.plain)(request)
    assert (response["Cache-Control"], response["X-Accel-Expires"]) == ("private", "0")


@pytest.mark.usefixtures("development")
def test_a_middleware_of_django_that_reads_every_session_is_named() -> None:
    with override_settings(CSRF_USE_SESSIONS=True):
        told = asked("/plain/")[UNCACHEABLE]
    assert told == (
        "@cacheable: request.session was read at django.middleware.csrf.CsrfViewMiddleware"
    )


# -- key=


@pytest.mark.parametrize("client", ["sync", "async"])
def test_another_spelling_is_answered_from_the_key_alone_and_not_kept(client: str) -> None:
    path = "/keyed/?utm_source=x&q=+ABBA"
    response = asked(path) if client == "sync" else asyncio.run(AsyncClient().get(path))
    assert response.content.decode().split(maxsplit=1)[1] == "q=abba"
    assert response["X-Accel-Expires"] == "0"
    assert "Cache-Control" not in response


@pytest.mark.parametrize("path", ["/redirected/", "/async-page/"])
def test_another_spelling_is_redirected_once(path: str) -> None:
    response = asked(f"{path}?x=1&q=%20%C3%84", Host="testserver")
    assert (response.status_code, response["Location"]) == (301, f"{path}?q=%C3%A4")
    assert response["Cache-Control"] == "public, max-age=60"
    assert asked(response["Location"]).status_code == 200
    later = asyncio.run(AsyncClient().get(f"{path}?q=A"))
    assert (later.status_code, later["Location"]) == (301, f"{path}?q=a")


def test_a_key_that_respells_its_own_spelling_never_redirects() -> None:
    response = asked("/never-content/?q=a")
    assert (response.status_code, response["X-Accel-Expires"]) == (200, "0")


def test_a_key_that_gives_no_mapping_says_what_to_give() -> None:
    with pytest.raises(NginxError, match="the arguments that matter, by name"):
        asked("/no-mapping/?q=a")


@given(st.lists(st.tuples(st.text(max_size=3), st.text(max_size=6)), max_size=5))
def test_the_decorator_spells_as_the_generated_middleware(pairs: list[tuple[str, str]]) -> None:
    for rules in ("lower,strip,sort-args", "keep=a|q,lower", "drop=utm_*"):
        once = spelled(pairs, parse_spelling(rules))
        assert spelled(once, parse_spelling(rules)) == once
    generated = middleware_of("keep=a|q,lower,strip")
    ours = spelled(pairs, parse_spelling("keep=a|q,lower,strip"))
    assert generated.spelled(urlencode(pairs)) == urlencode(ours)


@cache
def middleware_of(rules: str) -> Any:
    with TemporaryDirectory() as directory:
        return canonical(rules, Path(directory))


# -- What is refused


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"max_age": "1h"}, "max_age='1h' is no whole number"),
        ({"max_age": True}, "write seconds"),
        ({"max_age": 0}, "below 1"),
        ({"max_age": 1.5}, "no whole number"),
        ({"max_age": lambda request: None}, r"@cacheable\(max_age=3600\)"),
        ({"max_age": timedelta(hours=-1)}, "below"),
        ({"max_age": 1, "browser_max_age": -1}, "browser_max_age=-1 is below 0"),
        ({"max_age": 1, "when": 9}, "when=lambda request"),
        ({"max_age": 1, "key": ["q"]}, "keep=q"),
        ({"max_age": 1, "key": ""}, "names no rule"),
        ({"max_age": 1, "key": "upper"}, r"@cacheable: key= 'upper' is no rule; there are lower"),
        ({"max_age": 1, "redirect": True}, "needs key="),
    ],
)
def test_a_wrong_argument_is_refused_where_it_stands(arguments: Any, said: str) -> None:
    with pytest.raises(NginxError, match=said):
        cacheable(**arguments)


def test_times_are_seconds_or_a_timedelta() -> None:
    view = cacheable(timedelta(minutes=2))(cacheable_site.plain)
    assert view(RequestFactory().get("/"))["Cache-Control"] == "public, max-age=120"


def test_what_is_no_view_is_refused() -> None:
    with pytest.raises(NginxError, match="method_decorator"):
        cacheable(60)(cacheable_site.Page)
    with pytest.raises(NginxError, match="method_decorator"):
        cacheable(60)(cacheable_site.Page.get)(cacheable_site.Page(), RequestFactory().get("/"))


def test_it_is_imported_without_settings_and_whatever_was_imported_before() -> None:
    script = (
        "import sys, nearcache.nginx\n"
        "assert 'django' not in sys.modules\n"
        "import nearcache.nginx.django.decorators\n"
        "from nearcache.nginx import cacheable, purge_url\n"
        "print(cacheable(60).func.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "_decorate\n", done.stderr


# -- The development middleware

SESSION, USER = "request.session was read", "request.user was read"
BLAMED = [
    ("/session/", f"@cacheable: {SESSION} at {FILE}:%d in session",
     "reads the session"),
    ("/session/undecorated/", f"Vary: Cookie: {SESSION} at {FILE}:%d in session",
     "reads the session"),
    ("/user/undecorated/", f"Vary: Cookie: {USER} at {FILE}:%d in user", "reads the user"),
    ("/auser/", f"@cacheable: {USER} at {FILE}:%d in auser", "reads the user, async"),
    ("/cart/", f"@cacheable: the session was changed at {FILE}:%d in cart", "changes the session"),
    ("/cart/undecorated/", f"Set-Cookie: sessionid: the session was changed at {FILE}:%d in cart",
     "changes the session"),
    ("/theme/", f"@cacheable: request.COOKIES was read at {FILE}:%d in theme", "reads a cookie"),
    ("/sets-theme/", f"the cookie theme is set at {FILE}:%d in sets_theme", "sets a cookie"),
    ("/sets-theme/undecorated/", f"Set-Cookie: theme: set at {FILE}:%d in sets_theme",
     "sets a cookie"),
    ("/token/", f"@cacheable: a CSRF token was made at {FILE}:%d in token", "makes a token"),
    ("/greets/undecorated/", f"Set-Cookie: messages: a message was added at {FILE}:%d in greets",
     "adds a message"),
    ("/messages/", f"@cacheable: messages were read at {FILE}:%d in lists_messages",
     "reads messages"),
    ("/varies/", f"Vary: Cookie: {FILE}:%d in varies", "varies by hand"),
    ("/visitor/", f"@cacheable: the cookie visitor is set after the view at {FILE}:%d in after",
     "middleware's cookie"),
]  # fmt: skip
BLAMED_ELSEWHERE = [
    ("/form/", "@cacheable: a CSRF token was made at form.html:2"),
    ("/form/undecorated/", "Set-Cookie: csrftoken: a CSRF token was made at form.html:2"),
    ("/hello/undecorated/", f"Vary: Cookie: {USER} at hello.html:3"),
    ("/never/", "Cache-Control: private, no-store, no-cache, max-age=0: never_cache around tests/"),
    ("/jinja/", f"Vary: Cookie: {USER} at hello.jinja:4"),
    ("/members/", f"Vary: Cookie: {USER} by user_passes_test around tests/nginx/cacheable_site.py"),
    ("/own-words/", "@cacheable: the view says Cache-Control: no-store by cache_control around"),
    ("/varies/decorated/", "@cacheable: the view says Vary: Cookie by vary_on_headers around"),
    ("/autocomplete/?q=1234567890", "@cacheable: when= says no"),
    ("/keyed/?q=A", "@cacheable: the one spelling is /keyed/?q=a"),
]  # fmt: skip


def blame(path: str, how: str) -> Any:
    return asked(path) if how == "sync" else asyncio.run(AsyncClient().get(path))


@pytest.mark.usefixtures("development")
@pytest.mark.parametrize("how", ["sync", "async"])
def test_the_line_is_named_in_a_header_and_in_the_log(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "nearcache.nginx")
    for path, said, comment in BLAMED:
        caplog.clear()
        header = blame(path, how).headers.get(UNCACHEABLE, "")
        assert said % line(comment) in header, path
        assert said % line(comment) in caplog.text, path
    for path, said in BLAMED_ELSEWHERE:
        assert said in blame(path, how).headers.get(UNCACHEABLE, ""), path


@pytest.mark.usefixtures("development")
def test_one_cause_is_told_once() -> None:
    for path, *_ in (*BLAMED, *BLAMED_ELSEWHERE):
        told = asked(path)[UNCACHEABLE]
        assert told.count(" at ") + told.count(" around ") <= 1 or path == "/messages/", told


@pytest.mark.usefixtures("development")
@pytest.mark.parametrize("how", ["sync", "async"])
def test_what_is_stored_once_for_each_language_says_who_made_it_so(how: str) -> None:
    response = blame("/plain/", how)
    assert UNCACHEABLE not in response
    assert response[VARY_HEADER] == "Accept-Language: django.middleware.locale.LocaleMiddleware"


@pytest.mark.usefixtures("development")
def test_a_warning_is_for_who_wrote_cacheable(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nearcache.nginx")
    for path in ("/session/", "/session/undecorated/", "/autocomplete/?q=1234567890"):
        asked(path)
    assert [record.levelname for record in caplog.records if record.name == "nearcache.nginx"] == [
        "WARNING", "INFO", "INFO",
    ]  # fmt: skip


def test_without_debug_it_is_not_there() -> None:
    with pytest.raises(MiddlewareNotUsed, match="DEBUG"):
        WhyUncacheableMiddleware(lambda request: None)


def test_behind_others_it_says_that_it_does_not_see_them(caplog: pytest.LogCaptureFixture) -> None:
    with override_settings(DEBUG=True, MIDDLEWARE=["a.Gzip", WHY]):
        WhyUncacheableMiddleware(lambda request: None)
    assert "does not see what a.Gzip do; put it first" in caplog.text


def test_in_debug_the_decorator_alone_says_why() -> None:
    with override_settings(DEBUG=True):
        assert asked("/theme/")[UNCACHEABLE] == "request.COOKIES was read"
