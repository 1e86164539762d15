"""debug-toolbar's panel of the cache: every call of a request, hits and misses."""

from __future__ import annotations

from typing import Any

from debug_toolbar.panels.cache import CachePanel
from debug_toolbar.toolbar import DebugToolbar
from django.core.cache import cache as default
from django.core.cache import caches
from django.http import HttpResponse
from django.test import Client, RequestFactory, override_settings

MIDDLEWARE = ["debug_toolbar.middleware.DebugToolbarMiddleware"]


def panel_of(act: Any) -> Any:
    """The panel of one request that did this."""
    request = RequestFactory().get("/")
    toolbar = DebugToolbar(request, lambda request: HttpResponse())
    panel = toolbar.get_panel_by_id(CachePanel.panel_id)
    panel.enable_instrumentation()
    try:
        act()
    finally:
        panel.disable_instrumentation()
    return panel


def use() -> None:
    default.set("a", 1)
    default.get("a")
    default.get("missing")
    default.get_many(["a", "missing"])
    default.set_many({"c": 3, "d": 4})
    default.add("e", 5)
    default.incr("a")
    default.get_or_set("b", lambda: 2)
    default.touch("a")
    default.has_key("a")
    default.delete("a")
    default.delete_many(["c"])


CALLS = ["set", "get", "get", "get_many", "set_many", "add", "incr", "get_or_set", "touch"]
CALLS += ["has_key", "delete", "delete_many"]


def test_every_call_is_shown_once(cache: Any) -> None:
    panel = panel_of(use)
    assert [call["name"] for call in panel.calls] == CALLS
    assert (panel.hits, panel.misses) == (3, 2)
    assert {call["backend"].partition(" ")[0] for call in panel.calls} == {"default"}


def test_calls_of_a_cache_that_was_open_before_are_shown(cache: Any) -> None:
    caches["default"].get("a")
    assert [call["name"] for call in panel_of(use).calls] == CALLS


def test_nothing_is_shown_of_what_comes_after(cache: Any) -> None:
    panel = panel_of(use)
    use()
    assert len(panel.calls) == len(CALLS)


def test_a_page_has_the_toolbar_and_is_what_it_was(cache: Any) -> None:
    from django.conf import settings

    plain = Client().get("/cached").content
    with override_settings(MIDDLEWARE=[*MIDDLEWARE, *settings.MIDDLEWARE], DEBUG=True):
        shown = Client().get("/cached").content.decode()
    assert plain == b"<html><body>cached</body></html>"
    assert "djDebug" in shown
    assert "6 calls" in shown
