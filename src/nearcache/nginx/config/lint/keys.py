"""Rules about keys: what shares an entry that must not, and what does not share that could."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nearcache.nginx.config.lint.inputs import (
    has_path,
    header,
    keyed,
    param,
    split,
    unkeyed,
)
from nearcache.nginx.config.lint.model import Examined, Hit, zone_directive
from nearcache.nginx.config.read.configuration import Configuration, variables
from nearcache.nginx.config.read.locations import Location

_HOSTS = {"host", "http_host"}
_SCHEMES = {"scheme", "https", "server_port", "http_x_forwarded_proto", "ssl_protocol"}
_DECODED_THEN_ARGS = re.compile(r"\$\{?(?:uri|document_uri)\}?(\?|\$\{?is_args|\$\{?args)")


def no_key(place: Location, _: Examined) -> Iterator[Hit]:
    if not place.key:
        name = place.named("key")
        yield Hit(
            zone_directive(place),
            f"there is no {name}, and {place.protocol} has no default: the key is empty, "
            "and all URLs share one entry",
            f"{name} $scheme://$host$request_uri;",
        )


def key_without_path(place: Location, examined: Examined) -> Iterator[Hit]:
    if place.key and place.kind != "=" and not has_path(place, examined.configuration):
        yield Hit(
            place.first(place.named("key")) or zone_directive(place),
            "the path is not in the key: all paths of this location share entries",
            f"{place.named('key')} $scheme://$host$request_uri;",
        )


def key_without_host(place: Location, examined: Examined) -> Iterator[Hit]:
    names = {name for other in examined.sharing(place) for name in other.server_names}
    sees_host = variables(header(place, "Host") or "$host") & _HOSTS
    if not place.key or not sees_host or has_host(place, examined.configuration):
        return
    several = len(names) > 1 or any("*" in name or name.startswith("~") for name in names)
    yield Hit(
        place.first(place.named("key")) or zone_directive(place),
        (f"the servers {', '.join(sorted(names))} share the zone {place.zone}"
         if several else "the application gets the Host that the client sent")
        + ", and the key has no host: one host is answered with what was stored for another",
        f"{place.named('key')} $scheme://$host$request_uri;",
        "error" if several else "warning",
    )  # fmt: skip


def has_host(place: Location, configuration: Configuration) -> bool:
    """Does the key tell hosts apart?"""
    found = configuration.variables_in(place.key)
    single = len(place.server_names) == 1 and place.server_names[0][:1] not in {"*", ".", "~"}
    return bool(found & _HOSTS) or ("server_name" in found and single)


def host_port(place: Location, examined: Examined) -> Iterator[Hit]:
    found = examined.configuration.variables_in(place.key)
    value = header(place, "Host")
    raw = value is None or "http_host" in variables(value)
    if not place.key or "http_host" in found or "host" not in found or not raw:
        return
    fix = (
        "proxy_set_header Host $host;"
        if place.protocol == "proxy"
        else f"{place.other('param')} HTTP_HOST $host;"
    )
    yield Hit(
        place.first(place.named("key")) or zone_directive(place),
        "the key has $host, which is without port, but the application gets the Host as it was "
        "sent: with `Host: name:1337` anybody stores links to another port for all",
        fix,
    )


def key_without_scheme(place: Location, examined: Examined) -> Iterator[Hit]:
    listens = [text for other in examined.sharing(place) for text in other.server.listens]
    tls = [text for text in listens if re.search(r"\bssl\b|\bquic\b", text)]
    both = bool(tls) and len(tls) < len(listens)
    if place.key and both and not examined.configuration.variables_in(place.key) & _SCHEMES:
        yield Hit(
            place.first(place.named("key")) or zone_directive(place),
            f"http and https share the zone {place.zone}, and the key has no $scheme: a stored "
            "redirect to https is served to https too, and never ends",
            f"{place.named('key')} $scheme://$host$request_uri;",
        )


def unkeyed_arguments(place: Location, examined: Examined) -> Iterator[Hit]:
    lost = unkeyed(place, examined.configuration) if place.key else set()
    if lost:
        kept = keyed(place, examined.configuration)
        what = f"of them only {_named(kept)} are" if kept else "they are not"
        yield Hit(
            place.first(place.named("key")) or zone_directive(place),
            f"the application gets arguments ({_named(lost)}), and {what} in the key: anybody "
            "can store the answer to one argument for those who ask with another (poisoning)",
            f"{place.named('key')} $scheme://$host$request_uri;\n"
            "# or forward what is in the key, as `nearcache nginx config --normalize` does",
        )


def split_arguments(place: Location, examined: Examined) -> Iterator[Hit]:
    more = split(place, examined.configuration) if place.key else set()
    if more:
        yield Hit(
            place.first(place.named("key")) or zone_directive(place),
            f"arguments are in the key ({_named(more)}) that the application never gets: one "
            "response is stored several times",
            "# put into the key what is forwarded, and nothing else",
        )


def decoded_path(place: Location, _: Examined) -> Iterator[Hit]:
    if _DECODED_THEN_ARGS.search(place.full_key):
        yield Hit(
            place.first(place.named("key")) or zone_directive(place),
            "$uri is decoded: /a%3Fb=1 and /a?b=1 have one key and are two pages, so anybody can "
            "store a 404 or another page under a real URL",
            f"{place.named('key')} $scheme://$host$request_uri;\n"
            "# or the arguments before the path: arguments have no space, a path may\n"
            f'{place.named("key")} "$scheme://$host $args $uri";',
        )


def methods(place: Location, examined: Examined) -> Iterator[Hit]:
    more = place.methods - {"GET", "HEAD"}
    found = examined.configuration.variables_in(place.key)
    lacks = [name for name in ("request_method", "request_body") if name not in found]
    if more and lacks:
        yield Hit(
            place.first(place.named("methods")) or zone_directive(place),
            f"{', '.join(sorted(more))} is answered from the cache, without "
            f"{' and '.join('$' + name for name in lacks)} in the key: what one user sent decides "
            "what another gets",
            f"{place.named('methods')} GET HEAD;",
        )


def head(place: Location, examined: Examined) -> Iterator[Hit]:
    converts = place.is_on("proxy_cache_convert_head", default=True)
    found = examined.configuration.variables_in(place.key)
    if place.protocol == "proxy" and not converts and "request_method" not in found:
        yield Hit(
            place.first("proxy_cache_convert_head") or zone_directive(place),
            "HEAD is not made a GET, and the method is not in the key: a HEAD stores an empty "
            "body, which GET is then served",
            "proxy_cache_convert_head on;\n# or $request_method in proxy_cache_key",
        )


def slices(place: Location, examined: Examined) -> Iterator[Hit]:
    size = place.first("slice")
    if size is None or size.text == "0":
        return
    range_sent = header(place, "Range") or param(place, "HTTP_RANGE") or ""
    keyed_too = "slice_range" in examined.configuration.variables_in(place.key)
    if keyed_too and "slice_range" in variables(range_sent):
        return
    ask = (
        "proxy_set_header Range $slice_range;"
        if place.protocol == "proxy"
        else f"{place.other('param')} HTTP_RANGE $slice_range;"
    )
    yield Hit(
        size,
        "slices are asked for and stored one by one only with $slice_range in the key and in "
        "Range; without, the first slice is served as the whole",
        f"{place.named('key')} $scheme://$host$request_uri$slice_range;\n{ask}\n"
        f"{place.named('valid')} 200 206 1h;",
    )


def _named(sources: set[str]) -> str:
    words = {"all": "all of them", "args": "$args"}
    return ", ".join(sorted(words.get(each, each.removeprefix("arg_")) for each in sources))
