"""What a request says, and which of it is in the key and which goes to the application.

What goes there and is not in the key is an *unkeyed input*: two requests that differ only
in it share one entry, so whoever comes first decides what the other gets. What is in the
key and does not go there only splits one response into several entries.

A text is described by where its arguments come from: ``all`` (as they were sent), ``args``
(as ``set $args`` or ``rewrite`` left them), ``arg_q``, or ``$name`` for a variable made
from them by a map or by code.
"""

from __future__ import annotations

import re

from nearcache.nginx.config.read.configuration import Configuration, variables
from nearcache.nginx.config.read.locations import Location

ALL = "all"
CHANGED = "args"
_WHOLE = {"request_uri", "request"}
_ARGS = {"args", "query_string"}
_PATHS = {"uri", "document_uri", "request_uri", "request", "request_filename"}
# Variables whose value is computed by code that cannot be read here.
_CODE = {"js_set", "js_var", "perl_set", "set_by_lua", "set_by_lua_block", "set_by_lua_file"}
_ADDRESS = re.compile(r"^\w+://(?:unix:[^:]+:)?")
# Where a URI can begin: a slash, or a variable, which may also be part of the address.
_BEGINS = re.compile(r"/|\$(?:\{(\w+)\}|(\w+))")


def keyed(place: Location, configuration: Configuration) -> set[str]:
    """Where the arguments in the key come from."""
    return _sources(place.key, place, configuration)


def sent(place: Location, configuration: Configuration) -> set[str]:
    """Where the arguments that the application gets come from."""
    if place.protocol == "proxy":
        return _sources(_proxied(place, configuration), place, configuration)
    # Applications read one or the other: both are sent.
    query = param(place, "QUERY_STRING")
    whole = param(place, "REQUEST_URI") or ""
    text = f"{'$query_string' if query is None else query} {whole}"
    return _sources(text, place, configuration)


def unkeyed(place: Location, configuration: Configuration) -> set[str]:
    """Arguments that are sent and not in the key."""
    key = keyed(place, configuration)
    return set() if ALL in key else sent(place, configuration) - key


def split(place: Location, configuration: Configuration) -> set[str]:
    """Arguments that are in the key and not sent."""
    forwarded = sent(place, configuration)
    return set() if ALL in forwarded else keyed(place, configuration) - forwarded


def has_path(place: Location, configuration: Configuration) -> bool:
    """Is the path in the key, as it is or changed?"""
    return bool(configuration.variables_in(place.key) & _PATHS)


def param(place: Location, name: str) -> str | None:
    """The value of a ``uwsgi_param`` or the like, None if it is not set."""
    params = place.all(place.other("param"))
    found = [d.args[1] for d in params if d.args[:1] == (name,) and len(d.args) > 1]
    return found[-1] if found else None


def header(place: Location, name: str) -> str | None:
    """The value that the application gets for a header; None: that of the client."""
    if place.protocol != "proxy":
        own = param(place, "HTTP_" + name.upper().replace("-", "_"))
        return _unless_passed(place) if own is None else own
    for directive in place.all("proxy_set_header"):
        if directive.args[:1] and directive.args[0].lower() == name.lower():
            return directive.args[1]
    return "$proxy_host" if name.lower() == "host" else _unless_passed(place)


def _unless_passed(place: Location) -> str | None:
    return None if place.is_on(place.other("pass_request_headers"), default=True) else ""


def _proxied(place: Location, configuration: Configuration) -> str:
    """What ``proxy_pass`` makes of the URI, as a text with variables."""
    uri = _uri_of(place.expanded(place.upstream), configuration)
    if "$" in uri:
        return uri  # with variables it is sent as written
    if uri or _is_changed(place):
        return "$uri$is_args$args"
    return "$request_uri"


def _uri_of(upstream: str, configuration: Configuration) -> str:
    """The URI in a ``proxy_pass``; empty if it names an address only, as ``http://app_$color``."""
    after = _ADDRESS.sub("", upstream)
    for found in _BEGINS.finditer(after):
        behind = configuration.variables_in(found[0])
        if found[0] == "/" or behind & _PATHS:
            return after[found.start() :]
    return ""


def _is_changed(place: Location) -> bool:
    """Does ``set $args`` or a ``rewrite`` with arguments run before?"""
    for level in place.levels[1:]:
        for directive in level.walk() if level is place.directive else level.block or ():
            if directive.name == "set" and directive.args[:1] in {("$args",), ("$query_string",)}:
                return True
            if directive.name == "rewrite" and "?" in "".join(directive.args[1:2]):
                return True
    return False


def _sources(text: str, place: Location, configuration: Configuration) -> set[str]:
    changed = _is_changed(place)
    found = set()
    for name in variables(place.expanded(text)):
        if name in _WHOLE or (name in _ARGS and not changed):
            found.add(ALL)
        elif name in _ARGS:
            found.add(CHANGED)
        elif name.startswith("arg_"):
            found.add(name)
        elif _is_made_of_arguments(name, configuration):
            found.add(f"${name}")
    return found


def _is_made_of_arguments(name: str, configuration: Configuration) -> bool:
    behind = configuration.variables_in(f"${name}")
    if any(each in _WHOLE | _ARGS or each.startswith("arg_") for each in behind):
        return True
    return any(
        directive.args[:1] == (f"${name}",)
        for directive in configuration.tree.main.walk()
        if directive.name in _CODE
    )
