"""Rules about what is somebody's own: credentials, sessions, cookies, and who may do what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nearcache.nginx.config.lint.inputs import header
from nearcache.nginx.config.lint.model import Examined, Hit, zone_directive
from nearcache.nginx.config.read.directives import Directive
from nearcache.nginx.config.read.locations import Location

_COOKIES = ("cookie_", "http_cookie")
_PERSONAL = (*_COOKIES, "http_authorization", "remote_user")
_GUARDS = ("auth_basic", "auth_request")


def authorization(place: Location, examined: Examined) -> Iterator[Hit]:
    in_key = "http_authorization" in examined.configuration.variables_in(place.key)
    if header(place, "Authorization") == "" or in_key:
        return
    missing = _without(place, examined, "http_authorization")
    if missing:
        yield Hit(
            place.first(next(iter(missing))) or zone_directive(place),
            f"nginx does not look at Authorization: without it in {' and '.join(missing)} what "
            "was made for one user is stored and served to all",
            _with("$http_authorization", missing),
        )


def session(place: Location, examined: Examined) -> Iterator[Hit]:
    in_key = examined.configuration.variables_in(place.key)
    if header(place, "Cookie") == "" or any(name.startswith(_COOKIES) for name in in_key):
        return
    missing = _without(place, examined, *_COOKIES)
    if missing:
        yield Hit(
            place.first(next(iter(missing))) or zone_directive(place),
            f"no cookie is in {' and '.join(missing)}: only a Vary or Cache-Control of the "
            "application keeps the page of somebody who is logged in from others",
            _with("$cookie_sessionid", missing),
        )


def _without(place: Location, examined: Examined, *starts: str) -> dict[str, Sequence[str]]:
    """Of ``*_no_cache`` and ``*_cache_bypass`` those that look at no such variable."""
    lists = {place.other("no_cache"): place.no_cache, place.named("bypass"): place.bypass}
    return {
        name: words
        for name, words in lists.items()
        if not any(
            variable.startswith(starts)
            for variable in examined.configuration.variables_in(" ".join(words))
        )
    }


def _with(word: str, lists: dict[str, Sequence[str]]) -> str:
    # All on one line: a second directive in an inner level would drop those of the outer one.
    return "\n".join(f"{name} {' '.join([*words, word])};" for name, words in lists.items())


def bypass_only(place: Location, examined: Examined) -> Iterator[Hit]:
    bypass, no_cache = set(place.bypass), set(place.no_cache)
    for word in sorted(bypass - no_cache):
        personal = any(
            name.startswith(_PERSONAL) for name in examined.configuration.variables_in(word)
        )
        yield Hit(
            place.first(place.named("bypass")) or zone_directive(place),
            f"with {word} the application is asked, and its answer is stored for everybody"
            + ("" if personal else " (right if that is meant to refresh the page)"),
            f"{place.other('no_cache')} {word};",
            "error" if personal else "note",
        )


def no_cache_only(place: Location, _: Examined) -> Iterator[Hit]:
    for word in sorted(set(place.no_cache) - set(place.bypass)):
        if word.startswith(("$upstream_http_", "$sent_http_")):
            continue  # of the answer: there is nothing to bypass by
        yield Hit(
            place.first(place.other("no_cache")) or zone_directive(place),
            f"with {word} nothing is stored, but what is stored already is served",
            f"{place.named('bypass')} {word};",
        )


def open_bypass(place: Location, examined: Examined) -> Iterator[Hit]:
    for word in place.bypass:
        found = examined.configuration.variables_in(word)
        asked = {n for n in found if n.startswith(("arg_", "http_"))} - {
            "http_authorization",
            "http_cookie",
        }
        if asked and not found & (_trusted(examined) | {"remote_addr", "ssl_client_verify"}):
            yield Hit(
                place.first(place.named("bypass")) or zone_directive(place),
                f"{word} is the client's to send: anybody can have every request go to the "
                "application",
                "geo $trusted { default 0; 127.0.0.1 1; }  # http level\n"
                'map "$trusted:$http_x_refresh" $refresh { default 0; "1:1" 1; }\n'
                f"{place.named('bypass')} $refresh;",
            )


def set_cookie(place: Location, _: Examined) -> Iterator[Hit]:
    if "set-cookie" in place.ignore_headers and "set-cookie" not in place.hide_headers:
        yield Hit(
            place.first(place.other("ignore_headers")) or zone_directive(place),
            "responses with Set-Cookie are stored with it: everybody is given the session of "
            "whoever came first",
            f"{place.other('hide_header')} Set-Cookie;\n# better: not to ignore it",
        )


def cache_control(place: Location, _: Examined) -> Iterator[Hit]:
    ignored = place.ignore_headers & {"cache-control", "expires", "x-accel-expires"}
    if ignored:
        yield Hit(
            place.first(place.other("ignore_headers")) or zone_directive(place),
            f"what the application says in {' and '.join(sorted(ignored))} is ignored: what is "
            "private or no-store is stored and served to all",
            "# take them out, and give what has none a time by *_cache_valid",
        )


def vary(place: Location, _: Examined) -> Iterator[Hit]:
    if "vary" in place.ignore_headers:
        yield Hit(
            place.first(place.other("ignore_headers")) or zone_directive(place),
            "Vary is ignored: a compressed page goes to who cannot read it, one language to all",
            "# take Vary out, or put what the page depends on into the key",
        )


def open_purge(examined: Examined) -> Iterator[Hit]:
    for place in examined.configuration.locations:
        for directive in _purges(place):
            if not _is_guarded(place, directive, examined):
                yield Hit(
                    directive,
                    f"anybody can purge here ({place.name})",
                    "allow 127.0.0.1;\ndeny all;",
                )


def _purges(place: Location) -> Iterator[Directive]:
    for directive in place.directive.block or ():
        if directive.name.endswith("_cache_purge") and directive.text != "off":
            yield directive


def _is_guarded(place: Location, directive: Directive, examined: Examined) -> bool:
    if any(rule.text == "all" for rule in place.all("deny")):
        return True
    if place.first("internal") or any(place.text(name, "off") != "off" for name in _GUARDS):
        return True
    if "from" in directive.args and "all" not in directive.args:
        return True
    return bool(examined.configuration.variables_in(directive.text) & _trusted(examined))


def _trusted(examined: Examined) -> set[str]:
    """Variables that tell by the address who asks: those of ``geo``."""
    return {
        directive.args[-1].lstrip("$")
        for directive in examined.configuration.tree.main.walk()
        if directive.name == "geo" and directive.args
    }
