"""Sessions of either kind, and exceptions that come from outside into whatever is running."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.decorators import sync_and_async_middleware

from nearcache.sessions import SessionMiddleware


class EitherSession(SessionMiddleware):
    """The client says by which engine its session is kept; the cookie is the same."""

    def process_request(self, request: HttpRequest) -> None:
        super().process_request(request)
        name = request.headers.get("X-Sessions", settings.SESSION_ENGINE)
        store = import_module(name).SessionStore
        request.session = store(request.session.session_key)


class Alarm(BaseException):
    """Raised by a signal, wherever the main thread is."""


@sync_and_async_middleware
def Interrupted(get_response: Callable[..., Any]) -> Callable[..., Any]:  # noqa: N802
    """``X-Interrupt: 0.01`` ends the request after that time by an exception in its midst.

    By gevent.Timeout under gevent, SIGALRM in a main thread, cancellation in a task.
    """
    if iscoroutinefunction(get_response):

        async def amiddleware(request: HttpRequest) -> HttpResponse:
            seconds = float(request.headers.get("X-Interrupt", 0)) or None
            try:
                async with asyncio.timeout(seconds):
                    response = await get_response(request)
            except TimeoutError:
                response = JsonResponse({"interrupted": "task"}, status=504)
            return echoed(request, response)

        return amiddleware

    def middleware(request: HttpRequest) -> HttpResponse:
        seconds = float(request.headers.get("X-Interrupt", 0))
        try:
            with interrupting(seconds):
                response = get_response(request)
        except Alarm:
            response = JsonResponse({"interrupted": "signal"}, status=504)
        except BaseException as error:
            if type(error).__name__ != "Timeout":
                raise
            response = JsonResponse({"interrupted": "greenlet"}, status=504)
        return echoed(request, response)

    return middleware


def echoed(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """With what the client wrote, which an answer to another request lacks; and its length, so
    that one that was cut off by the end of a worker is seen.
    """
    response.headers["Content-Length"] = str(len(response.content))
    response.headers["X-Asked"] = request.headers.get("X-Asked", "")
    return response


@contextlib.contextmanager
def interrupting(seconds: float) -> Iterator[None]:
    if not seconds:
        yield
    elif patched():
        import gevent

        with gevent.Timeout(seconds):
            yield
    elif threading.current_thread() is threading.main_thread():
        with alarm(seconds):
            yield
    else:
        yield


def patched() -> bool:
    return "gevent" in sys.modules and sys.modules["gevent.monkey"].is_module_patched("threading")


@contextlib.contextmanager
def alarm(seconds: float) -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise Alarm

    # The handler stays: a signal that comes a moment late would otherwise end the process.
    signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
