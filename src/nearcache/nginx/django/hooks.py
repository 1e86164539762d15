"""Where the witness looks: the small events inside of Django that make a response somebody's own.

    a session's accessed and modified become true   (so does request.user: it reads the session)
    a storage of messages is used, or added to
    a CSRF token is asked for
    a cookie is put into a response
    Cache-Control, Vary or X-Accel-Expires is written

For development alone: ``install`` changes classes of Django for the whole process. Attributes and
methods that are public or as old as Django; where one is not used any more, a place is missing
and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from http.cookies import SimpleCookie
from typing import Any

from django.contrib.messages.storage.base import BaseStorage
from django.contrib.sessions.backends.base import SessionBase
from django.http.request import HttpRequest
from django.http.response import HttpResponseBase, ResponseHeaders

from nearcache.nginx.django.personal import CSRF_FLAG
from nearcache.nginx.django.witness import note, note_header, note_session


class Flag:
    """An attribute of a class of Django whose becoming true is noted."""

    def __init__(self, name: str, becomes_true: Callable[[], None]) -> None:
        self.name = name
        self.becomes_true = becomes_true

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        try:
            return instance.__dict__[self.name]
        except KeyError:
            raise AttributeError(self.name) from None

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self.name] = value
        if value:
            self.becomes_true()


class Cookies(SimpleCookie):
    """Of a response: notes who puts one in."""

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        note(f"cookie {name}")


class Meta(dict[str, Any]):
    """Of a request: notes who asks for a CSRF token."""

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        if name == CSRF_FLAG:
            note("csrf")

    def update(self, *given: Any, **more: Any) -> None:
        for name, value in dict(*given, **more).items():
            self[name] = value


def watch_request(request: HttpRequest) -> None:
    request.META = Meta(request.META)


def install() -> None:
    """Idempotent."""
    if isinstance(SessionBase.__dict__.get("accessed"), Flag):
        return
    _watch_flags(SessionBase, {"accessed": note_session,
                               "modified": lambda: note("session changed")})  # fmt: skip
    _watch_flags(BaseStorage, {"used": lambda: note("messages read"),
                               "added_new": lambda: note("messages added")})  # fmt: skip
    _watch_responses()


def _watch_flags(owner: type, flags: Mapping[str, Callable[[], None]]) -> None:
    for name, becomes_true in flags.items():
        setattr(owner, name, Flag(name, becomes_true))


def _watch_responses() -> None:
    make, write = HttpResponseBase.__init__, ResponseHeaders.__setitem__

    @wraps(make)
    def made(self: HttpResponseBase, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        self.cookies = Cookies()

    @wraps(write)
    def written(self: ResponseHeaders, name: str, value: Any) -> None:
        write(self, name, value)
        note_header(str(name), value)

    setattr(HttpResponseBase, "__init__", made)  # noqa: B010 - mypy knows no other way
    setattr(ResponseHeaders, "__setitem__", written)  # noqa: B010
