"""Rules about headers that the application gets and that are not in the key.

What a request says in a header or a cookie, and nginx sends on in a header, may decide the
answer. The key does not know it, so whoever comes first decides for all. ``Vary`` mends
that only for a header sent on as it came: nginx compares what *clients* sent under the
names in ``Vary``, and never what it sent itself.

Not here: arguments (``keys.py``), Host (``keys.py``), and the whole of Cookie and
Authorization (``privacy.py``). Nor what nginx sends on unasked, which is every other header:
no directive shows that the application reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nearcache.nginx.config.lint.advisories import Advisory
from nearcache.nginx.config.lint.inputs import ALL, header, keyed
from nearcache.nginx.config.lint.keys import has_host
from nearcache.nginx.config.lint.model import Examined, Hit, zone_directive
from nearcache.nginx.config.read.configuration import Configuration, variables
from nearcache.nginx.config.read.directives import Directive
from nearcache.nginx.config.read.locations import Location

_HOSTS = {"host", "http_host"}
_ARGUMENTS = {"args", "query_string", "request_uri", "request"}
_OF_CLIENT = ("http_", "cookie_", "arg_", "ssl_client_", "geoip_")
# Directives that make a variable from who asks; where its name stands among their arguments.
_MAKERS = {"geo": -1, "split_clients": -1, "auth_request_set": 0}
# Who asked, which connection, which trace: no answer is made by them.
_OF_NO_ANSWER = re.compile(
    r"x-forwarded-for|x-real-ip|(x|cf|true)-.*(client|connecting)-ip|remote-addr|connection|upgrade"
    r"|keep-alive|te|.*(trace|correlation|request-id|request-start|b3|baggage).*|request-uri"
    r"|query-string"
)
# An application takes them, where they are empty, as if there were none.
_EMPTY_IS_NONE = {"accept", "accept-charset", "accept-encoding", "accept-language", "cookie"}
DJANGO_EMPTY = Advisory(
    "CVE-2026-113593",
    # 5.1 and older were not evaluated by Django; their code is the same.
    [((1, 0, 0), (5, 2, 19)), ((6, 0, 0), (6, 0, 10)), ((6, 1, 0), (6, 1, 3))],
)


def unkeyed_header(place: Location, examined: Examined) -> Iterator[Hit]:
    for directive, name, value in _sent(place) if place.key else ():
        inputs = _unkeyed(place, name, value, examined.configuration)
        own = inputs == {_variable(name)}
        if not inputs or (own and not name.startswith(("x-", "forwarded"))):
            continue
        made_of = ", ".join(f"${each}" for each in sorted(inputs))
        helps = (
            "only a Vary of the application keeps them apart"
            if own
            else "and no Vary helps: nginx compares what clients sent, not what it sends itself"
        )
        yield Hit(
            directive,
            f"the application gets {name} from {made_of}, and the key does not have it: whoever "
            f"asks first decides what all others are served (poisoning), {helps}",
            _fix(place, directive, name, value),
        )


def empty_header(place: Location, examined: Examined) -> Iterator[Hit]:
    """Source: ngx_http_file_cache_vary_header, which hashes no header and an empty one alike."""
    cache = examined.configuration.cache_of(place)
    seen = examined.directories.get(cache.path) if cache else None
    flawed = examined.django is not None and DJANGO_EMPTY.holds(examined.django)
    varied = [
        name
        for name in (seen.varies_by if seen else ())
        if header(place, name) is None and (flawed or name not in _EMPTY_IS_NONE)
    ]
    if "vary" in place.ignore_headers or not (varied or (flawed and _passes_headers(place))):
        return
    why = (
        f"stored responses vary by {', '.join(varied)}: who sends it empty is served what was "
        "stored for who does not send it, and the other way round"
        if varied
        else "nginx sends empty headers of clients on"
    )
    if flawed:
        number = ".".join(map(str, examined.django or ()))
        why += (
            f". Django {number}, which is installed here, has {DJANGO_EMPTY.cve}: what it caches "
            "itself (cache_page, UpdateCacheMiddleware) it mixes up alike"
        )
    yield Hit(
        zone_directive(place),
        why,
        "\n".join(_without_empty(place, name) for name in varied)
        + ("\n" if varied and flawed else "")
        + ('# pip install --upgrade django: 5.2.19, 6.0.10 and 6.1.3 have it mended'
           if flawed else ""),
        "warning" if flawed and varied else None,
    )  # fmt: skip


def _sent(place: Location) -> Iterator[tuple[Directive, str, str]]:
    """What nginx is told to send: each directive with the header's name and its value."""
    told = "proxy_set_header" if place.protocol == "proxy" else place.other("param")
    for directive in place.all(told):
        if len(directive.args) > 1:
            name = directive.args[0].lower().replace("_", "-").removeprefix("http-")
            yield directive, name, directive.args[1]


def _unkeyed(place: Location, name: str, value: str, configuration: Configuration) -> set[str]:
    """What a request decides of the value, and the key does not have; variables without $."""
    if _OF_NO_ANSWER.fullmatch(name):
        return set()
    known = _known(place, configuration)
    inputs = {each for each in _leaves(place, value, known, configuration)
              if _is_of_client(each, configuration)}  # fmt: skip
    if known & _HOSTS or has_host(place, configuration) or header(place, "Host") != "$proxy_host":
        inputs.discard("host")  # keyed, or told by key-without-host
    if name == "host":
        inputs -= _HOSTS
    if name in {"cookie", "authorization"}:
        inputs.discard(_variable(name))
    if "http_cookie" in known:
        inputs = {each for each in inputs if not each.startswith("cookie_")}
    sources = keyed(place, configuration)
    return {
        each
        for each in inputs
        if not (each in sources or (ALL in sources and (each in _ARGUMENTS or "arg_" in each)))
    }


def _known(place: Location, configuration: Configuration) -> set[str]:
    """Variables that two requests for one entry have alike: those in the key, and those that
    keep a request from being answered and stored.
    """
    found = set[str]()
    left = variables(place.full_key)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            # What a value is made of, and not what it was chosen by: two can choose the same.
            for text in configuration.said_for(name):
                left |= variables(text)
    bypass = configuration.variables_in(" ".join(place.bypass))
    return found | (bypass & configuration.variables_in(" ".join(place.no_cache)))


def _leaves(place: Location, text: str, known: set[str], configuration: Configuration) -> set[str]:
    """The variables a text is made of in the end, but for those that are known."""
    seen = set[str]()
    leaves = set[str]()
    left = variables(place.expanded(text))
    while left:
        name = left.pop()
        if name not in seen and name not in known:
            seen.add(name)
            behind = configuration.behind(name)
            left |= behind
            if not behind:
                leaves.add(name)
    return leaves


def _is_of_client(name: str, configuration: Configuration) -> bool:
    return (
        name.startswith(_OF_CLIENT)
        or name in _ARGUMENTS | _HOSTS
        or any(
            directive.args[_MAKERS[directive.name]] == f"${name}"
            for directive in configuration.tree.main.walk()
            if directive.name in _MAKERS and directive.args
        )
    )


def _passes_headers(place: Location) -> bool:
    return place.is_on(place.other("pass_request_headers"), default=True)


def _variable(name: str) -> str:
    """The variable of a request header: ``http_x_device`` of ``x-device``."""
    return "http_" + name.replace("-", "_")


def _fix(place: Location, directive: Directive, name: str, value: str) -> str:
    if name == "x-forwarded-host" and "host" in variables(place.full_key):
        return f"{directive.name} {directive.args[0]} $host;"
    return f'{place.named("key")} "{place.key} {value}";'


def _without_empty(place: Location, name: str) -> str:
    """What sends a header on unless it is empty."""
    if place.protocol == "proxy":  # proxy_set_header leaves out what is empty
        return f"proxy_set_header {name.title()} ${_variable(name)};"
    param = "HTTP_" + name.upper().replace("-", "_")
    return f"{place.other('param')} {param} ${_variable(name)} if_not_empty;"
