"""Rules about fetching: who waits, who gets something old, what is stored and for how long."""

from __future__ import annotations

from collections.abc import Iterator

from nearcache.nginx.config.lint.model import Examined, Hit, zone_directive
from nearcache.nginx.config.read.locations import Location

FAILURES = {"error", "timeout"}


def lock(place: Location, _: Examined) -> Iterator[Hit]:
    if not place.lock:
        name = place.named("lock")
        yield Hit(
            place.first(name) or zone_directive(place),
            "whoever asks for a page that is not stored goes to the application, all at once. "
            "(With a lock the others ask every 500 ms whether it is there: background_update "
            "spares them that for pages that were stored before)",
            f"{name} on;\n{name}_age 5s;\n{name}_timeout 5s;",
        )


def stale(place: Location, _: Examined) -> Iterator[Hit]:
    name = place.named("use_stale")
    missing = FAILURES - place.use_stale
    if missing:
        yield Hit(
            place.first(name) or zone_directive(place),
            f"a page that is stored is not served while the application fails: "
            f"{' and '.join(sorted(missing))} are not in {name}",
            _use_stale(place),
        )


def _use_stale(place: Location) -> str:
    # Of gateways only proxy knows: the others speak to the application itself.
    failures = "http_500 http_502 http_503 http_504"
    if place.protocol != "proxy":
        failures = "http_500 http_503"
    return f"{place.named('use_stale')} error timeout updating {failures};"


def background(place: Location, _: Examined) -> Iterator[Hit]:
    if "updating" in place.use_stale and place.background_update:
        return
    name = place.named("background_update")
    lacks = [] if "updating" in place.use_stale else [f"{place.named('use_stale')} updating"]
    lacks += [] if place.background_update else [f"{name} on"]
    yield Hit(
        place.first(name) or zone_directive(place),
        f"when a page expires, users wait for the new one: without {' and '.join(lacks)} nobody "
        "gets the old one meanwhile",
        f"{_use_stale(place)}\n{name} on;",
    )


def errors_kept(place: Location, _: Examined) -> Iterator[Hit]:
    for rule in place.valid:
        bad = [s for s in rule.statuses if s == "any" or s.startswith("5")]
        if bad and rule.seconds > 0:
            yield Hit(
                rule.directive,
                "failures of the application are stored"
                if bad != ["any"]
                else "any is every status, also 500, 502, 401 and 403: failures are stored",
                f"{place.named('valid')} 200 301 302 10m;\n{place.named('valid')} 404 1m;",
            )


def errors_in_memory(place: Location, _: Examined) -> Iterator[Hit]:
    """Source: ngx_http_upstream_intercept_errors, and ``error`` in ngx_http_file_cache_free."""
    name = place.other("intercept_errors")
    kept = {status for rule in place.valid if rule.seconds > 0 for status in rule.statuses}
    own = {word for page in place.all("error_page") for word in page.args if word.isdigit()}
    both = sorted(own if "any" in kept else own & kept)
    if place.is_on(name) and both:
        codes = " ".join(both)
        yield Hit(
            place.first(name) or zone_directive(place),
            f"with an error_page nginx remembers {codes} in memory and stores no file: no purge "
            "finds it, and a page that is there again is missing until the time is over",
            f"{name} off;\n# or a time that one can wait, as first {place.named('valid')}:\n"
            f"{place.named('valid')} {codes} 10s;",
        )


def no_ttl(place: Location, _: Examined) -> Iterator[Hit]:
    if not place.valid:
        yield Hit(
            zone_directive(place),
            f"without {place.named('valid')} only responses are stored that say how long: "
            "X-Accel-Expires, Cache-Control or Expires. Django sends none by itself",
            f"{place.named('valid')} 200 10m;",
        )


def buffering(place: Location, _: Examined) -> Iterator[Hit]:
    name = place.other("buffering")
    if not place.is_on(name, default=True):
        yield Hit(
            place.first(name) or place.directive,
            f"with {name} off nothing is stored: this location does not cache at all",
            f"{name} on;",
        )


def uses(place: Location, _: Examined) -> Iterator[Hit]:
    if place.min_uses > 1:
        yield Hit(
            place.first(place.named("min_uses")) or zone_directive(place),
            f"the first {place.min_uses - 1} requests for a page are misses that store nothing, "
            "and look like any other miss in the log",
            f"{place.named('min_uses')} 1;",
        )


def open_files(place: Location, _: Examined) -> Iterator[Hit]:
    if place.open_file_cache:
        yield Hit(
            place.first("open_file_cache") or place.directive,
            "nginx keeps entries open: one that is unlinked (`nearcache nginx purge --hard`, rm) "
            "is served until open_file_cache_valid, 60 s, is over. A soft purge works",
            "open_file_cache off;",
        )


def http2(place: Location, _: Examined) -> Iterator[Hit]:
    if place.protocol == "proxy" and place.text("proxy_http_version") == "2":
        yield Hit(
            place.first("proxy_http_version") or place.directive,
            "over HTTP/2 the stored heads are frames and not text: tools cannot read them, and "
            "caching of it was mended only in 1.31",
            "proxy_http_version 1.1;",
        )
