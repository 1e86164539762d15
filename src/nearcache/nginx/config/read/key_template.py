"""The template of the key that a location of a configuration makes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from nearcache.errors import NginxError
from nearcache.nginx.config.read.locations import Location
from nearcache.nginx.keys.templates import check_template

# nginx's variables, as words of a template.
VARIABLES: Mapping[str, str] = {
    "scheme": "{scheme}",
    "request_method": "{method}",
    "host": "{host}",
    "server_name": "{host}",
    "http_host": "{host}{port}",
    "request_uri": "{uri}",
    "uri": "{path}",
    "document_uri": "{path}",
    "is_args": "{is_args}",
    "args": "{args}",
    "query_string": "{args}",
}
VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
ADDRESS = re.compile(r"(?P<scheme>https?)://(?P<host>[^/$]+)$")


def template_of(location: Location) -> str:
    """The template of a location's ``*_cache_key``, or of what nginx does without one.

    Raises:
        NginxError: it depends on what a URL does not tell.
    """
    address = ADDRESS.match(location.upstream)
    if location.key_is_default and location.protocol == "proxy":
        if not address:
            raise NginxError(
                f"{location.place}: the key has the URI that proxy_pass {location.upstream} makes"
            )
        # Not what is documented: nginx keeps the "://" between the two.
        return f"{_literal(address[0])}{{uri}}"
    known = dict(VARIABLES)
    if address:
        known |= {"proxy_host": _literal(address["host"]), "proxy_port": ""}
    at, parts = 0, []
    for found in VARIABLE.finditer(location.full_key):
        name = found[1] or found[2]
        if name not in known:
            raise NginxError(f"{location.place}: the key has ${name}, which no URL tells")
        parts += [_literal(location.full_key[at : found.start()]), known[name]]
        at = found.end()
    return check_template("".join(parts) + _literal(location.full_key[at:]))


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
