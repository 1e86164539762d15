"""Rules about what one can see from outside and afterwards: response headers and logs."""

from __future__ import annotations

from collections.abc import Iterator

from nearcache.nginx.config.lint.model import Examined, Hit, zone_directive
from nearcache.nginx.config.read.configuration import AccessLog, variables
from nearcache.nginx.config.read.directives import Directive
from nearcache.nginx.config.read.locations import Location

STATUS = "upstream_cache_status"
# Without these the doctor cannot say what was saved, and when.
NEEDED = (STATUS, "upstream_response_time", "request_time")
INHERIT_SINCE = (1, 29, 3)
_LISTS = ("add_header", "proxy_set_header", "proxy_hide_header", "uwsgi_param", "uwsgi_hide_header",
          "fastcgi_param", "scgi_param")  # fmt: skip


def status_header(place: Location, examined: Examined) -> Iterator[Hit]:
    found = _status_headers(place, examined)
    if not found:
        yield Hit(
            zone_directive(place),
            "no response header says whether it came from the cache",
            f"add_header X-Cache ${STATUS} always;",
        )
    elif not any(directive.args[2:] == ("always",) for directive in found):
        yield Hit(
            found[0],
            "without `always` the header is left out of 404, 500 and others: it is missing just "
            "where something is wrong",
            f"{found[0]} always;",
        )


def _status_headers(place: Location, examined: Examined) -> list[Directive]:
    merged = place.text("add_header_inherit") == "merge"
    levels = [d for level in place.levels for d in level.all("add_header")]
    return [
        directive
        for directive in (levels if merged else place.all("add_header"))
        if STATUS in examined.configuration.variables_in(directive.text)
    ]


def lost(place: Location, examined: Examined) -> Iterator[Hit]:
    """The trap of lists: one directive of a name here, and all of the levels above are gone."""
    for name in _LISTS:
        own = place.directive.all(name)
        if not own or (name == "add_header" and place.text("add_header_inherit") == "merge"):
            continue
        outer = next((f for level in reversed(place.levels[:-1]) if (f := level.all(name))), [])
        kept = {directive.args[:1] for directive in own}
        gone = [directive for directive in outer if directive.args[:1] not in kept]
        if gone:
            yield Hit(
                own[0],
                f"because of it the {name} of the level above do not hold here: "
                + ", ".join(dict.fromkeys(d.args[0] for d in gone if d.args)),
                "\n".join(dict.fromkeys(f"{directive};" for directive in gone))
                + _merge_hint(name, examined),
            )


def _merge_hint(name: str, examined: Examined) -> str:
    if name != "add_header" or examined.version is None or examined.version < INHERIT_SINCE:
        return ""
    return "\n# or: add_header_inherit merge;"


def log_format(place: Location, examined: Examined) -> Iterator[Hit]:
    logs = [directive for directive in place.all("access_log") if directive.args]
    if any(directive.args[0] == "off" for directive in logs):
        yield Hit(
            logs[0],
            "this location caches and is not logged: nobody will know what it saves",
            "access_log /var/log/nginx/cache.log nearcache;",
        )
        return
    formats = examined.configuration.formats
    names = [_format_of(directive, examined) for directive in logs] or ["combined"]
    lacking = min(
        ([v for v in NEEDED if v not in variables(formats.get(name, ""))] for name in names),
        key=len,
    )
    if lacking and all(name in formats for name in names):
        yield Hit(
            logs[0] if logs else zone_directive(place),
            f"the log ({', '.join(names)}) has no {', '.join('$' + v for v in lacking)}: it "
            "cannot tell what the cache saves",
            "# the output of `nearcache nginx config --log-format`, and then\n"
            "access_log /var/log/nginx/cache.log nearcache;",
        )


def _format_of(directive: Directive, examined: Examined) -> str:
    logs: tuple[AccessLog, ...] = examined.configuration.logs
    return next((log.format for log in logs if log.directive is directive), "combined")
