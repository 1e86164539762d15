"""Which line of code did it: the stack at the moment when a response became somebody's own.

    with watching() as seen:           # one request
        response = get_response(request)
    seen.first["session"]              # shop/views.py:12 in detail

Outside of ``watching()`` a note is a look at one ``ContextVar``. What is noted: hooks.py.

Whose line it is: the innermost one that is the project's own, or the template's, *within the
layer* in which it happened. Every middleware's ``__call__`` is on the stack of all that lies
below it, so the search ends where Django wraps a layer (``convert_exception_to_response``).
Where a layer has no line of the project, the view that a decorator of Django stands around is
named, or the middleware, which is a line of the settings.
"""

from __future__ import annotations

import inspect
import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import asgiref
import django
from django.template.base import Node

import nearcache

HEADERS = ("cache-control", "vary", "x-accel-expires")
HOOKS = {"process_request", "process_view", "process_template_response", "process_response",
         "__call__", "__acall__"}  # fmt: skip


def _directory(module: Any) -> str:
    return os.path.dirname(os.path.abspath(str(module.__file__))) + os.sep


DJANGO = _directory(django)
MACHINERY = (DJANGO, _directory(asgiref), _directory(nearcache))
STANDARD = tuple(sysconfig.get_paths()[name] + os.sep for name in ("stdlib", "platstdlib"))
PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


@dataclass
class Seen:
    """What happened in one request, and where it happened first."""

    first: dict[str, str] = field(default_factory=dict)  # "session" -> a place
    written: list[tuple[str, str, str]] = field(default_factory=list)  # header, value, place
    read_user: bool = False  # was the session read for request.user?

    def who_wrote(self, header: str, word: str) -> str:
        """Where a word came into a header, and was not taken out again; empty if nobody saw it."""
        place = ""
        for name, value, where in self.written:
            if name == header:
                place = (place or where) if word in words_of(value) else ""
        return place


def words_of(value: str) -> set[str]:
    """The parts of ``Cache-Control`` or ``Vary``, in lower case."""
    return {word for part in value.split(",") if (word := part.strip().lower())}


_seen: ContextVar[Seen | None] = ContextVar("nearcache_seen", default=None)


@contextmanager
def watching() -> Iterator[Seen]:
    seen = Seen()
    token = _seen.set(seen)
    try:
        yield seen
    finally:
        _seen.reset(token)


def note(kind: str) -> None:
    """This just happened; costs next to nothing where nobody is watching."""
    seen = _seen.get()
    if seen is not None and kind not in seen.first:
        seen.first[kind] = place_of(sys._getframe(1))


def note_session() -> None:
    seen = _seen.get()
    if seen is not None and "session" not in seen.first:
        here = sys._getframe(1)
        seen.read_user = any(_is_djangos_user(frame) for frame in _layer(here))
        seen.first["session"] = place_of(here)


def _is_djangos_user(frame: FrameType) -> bool:
    """Is this what request.user and request.auser evaluate?"""
    code = frame.f_code
    return code.co_name in {"get_user", "auser"} and code.co_filename.startswith(DJANGO)


def note_header(name: str, value: str) -> None:
    seen = _seen.get()
    if seen is not None and name.lower() in HEADERS:
        seen.written.append((name.lower(), str(value), place_of(sys._getframe(1))))


# -- From a stack to a line


def place_of(frame: FrameType | None) -> str:
    """``shop/views.py:12 in detail``, or the best that can be said."""
    package = ""
    layer = list(_layer(frame))
    for each in layer:
        if template := _template_line(each):  # Jinja's frames have the file, but other lines
            return template
        if _is_the_projects(each.f_code.co_filename):
            return _line(each)
        if not package and _is_a_package(each.f_code.co_filename):
            package = _line(each)
    return package or _decorated_view(layer) or _middleware(layer) or _djangos(layer)


def _layer(frame: FrameType | None) -> Iterator[FrameType]:
    """From the innermost frame to where this middleware, or the view, begins."""
    while frame is not None and not _begins_layer(frame):
        yield frame
        frame = frame.f_back


def _begins_layer(frame: FrameType) -> bool:
    code = frame.f_code
    return code.co_name == "inner" and code.co_filename.endswith("core/handlers/exception.py")


def _is_the_projects(file: str) -> bool:
    return not (file.startswith((*MACHINERY, *STANDARD, "<")) or _is_installed(file))


def _is_a_package(file: str) -> bool:
    return _is_installed(file) and not file.startswith(MACHINERY)


def _is_installed(file: str) -> bool:
    return any(part in file for part in PACKAGES)


def _line(frame: FrameType) -> str:
    code = frame.f_code
    return f"{_shown(code.co_filename)}:{frame.f_lineno} in {code.co_name}"


def _shown(file: str) -> str:
    """From the current directory, or from where packages are."""
    for directory in PACKAGES:
        file = file.rpartition(directory)[2]
    return file.removeprefix(os.getcwd() + os.sep)


def _template_line(frame: FrameType) -> str:
    """The tag or variable that is being rendered here; a template of Jinja is a function."""
    compiled = frame.f_globals.get("__jinja_template__")
    if compiled is not None:
        number = compiled.get_corresponding_lineno(frame.f_lineno)
        has_file = not compiled.filename.startswith("<")
        return f"{_shown(compiled.filename) if has_file else compiled.name}:{number}"
    node = frame.f_locals.get("self")
    if frame.f_code.co_name != "render_annotated" or not isinstance(node, Node):
        return ""
    origin, token = getattr(node, "origin", None), getattr(node, "token", None)
    return f"{_shown(str(origin))}:{getattr(token, 'lineno', '?')}" if origin else ""


def _decorated_view(layer: list[FrameType]) -> str:
    """For decorators of Django, which act when the view is not on the stack, or no more."""
    for frame in layer:
        file = frame.f_code.co_filename
        if file.startswith(DJANGO) and "decorators" in file:
            for local in ("view_func", "viewfunc", "func"):
                if callable(view := frame.f_locals.get(local)):
                    name = frame.f_code.co_qualname.partition(".")[0]
                    return f"{name} around {_defined(inspect.unwrap(view))}"
    return ""


def _defined(view: Any) -> str:
    code = getattr(view, "__code__", None)
    if code is None:
        return repr(view)
    return f"{_shown(code.co_filename)}:{code.co_firstlineno} {code.co_name}"


def _middleware(layer: list[FrameType]) -> str:
    for frame in layer:
        owner = frame.f_locals.get("self")
        if frame.f_code.co_name in HOOKS and owner is not None:
            return f"{type(owner).__module__}.{type(owner).__qualname__}"
    return ""


def _djangos(layer: list[FrameType]) -> str:
    """Its own doing, as a page that shows an error: where that began."""
    own = [frame for frame in layer if frame.f_code.co_filename.startswith(DJANGO)]
    return _line(own[-1]) if own else "unknown"
