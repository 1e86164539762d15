"""Rules about what changed in nginx from 1.18 to today: what is gone, what is not there yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nearcache.nginx.config.lint.model import Examined, Hit
from nearcache.nginx.config.read.configuration import Version
from nearcache.nginx.config.read.directives import Directive


@dataclass(frozen=True)
class Change:
    """A directive (with a word among its arguments, if ``word``) and what became of it."""

    directive: str
    word: str
    version: Version
    fix: str

    def fits(self, directive: Directive) -> bool:
        words = {word.partition("=")[0] for word in directive.args}
        return directive.name == self.directive and (not self.word or self.word in words)


# Source: nginx.org/en/CHANGES.
GONE: Sequence[Change] = (
    Change("listen", "http2", (1, 25, 1), "http2 on;"),
    Change("listen", "spdy", (1, 9, 5), "http2 on;"),
    Change("ssl", "", (1, 25, 1), "listen 443 ssl;"),
    Change("http2_push", "", (1, 25, 1), "# 103 Early Hints, or nothing"),
    Change("http2_push_preload", "", (1, 25, 1), "# 103 Early Hints, or nothing"),
    Change("http2_max_field_size", "", (1, 19, 7), "large_client_header_buffers 4 16k;"),
    Change("http2_max_header_size", "", (1, 19, 7), "large_client_header_buffers 4 16k;"),
    Change("http2_max_requests", "", (1, 19, 7), "keepalive_requests 1000;"),
    Change("http2_idle_timeout", "", (1, 19, 7), "keepalive_timeout 75s;"),
    Change("http2_recv_timeout", "", (1, 19, 7), "client_header_timeout 60s;"),
)
NEW: Sequence[Change] = (
    Change("http2", "on", (1, 25, 1), "listen 443 ssl http2;"),
    *(Change(f"{kind}_cache_path", "min_free", (1, 19, 1), "# without min_free")
      for kind in ("proxy", "uwsgi", "fastcgi", "scgi")),
    Change("add_header_inherit", "", (1, 29, 3), "# repeat the add_header of the level above"),
    Change("proxy_http_version", "2", (1, 29, 4), "proxy_http_version 1.1;"),
    Change("ssl_reject_handshake", "", (1, 19, 4), "ssl_ciphers aNULL; return 444;"),
    Change("proxy_cookie_flags", "", (1, 19, 3), "# set them in Django: SESSION_COOKIE_SECURE"),
)  # fmt: skip


def gone(examined: Examined) -> Iterator[Hit]:
    for directive, change in _found(GONE, examined):
        if examined.knows(change.version):
            since = ".".join(map(str, change.version))
            what = f"`{change.word}` of it" if change.word else "it"
            yield Hit(directive, f"{what} is deprecated or gone since nginx {since}", change.fix)


def not_yet(examined: Examined) -> Iterator[Hit]:
    for directive, change in _found(NEW, examined):
        if not examined.knows(change.version):
            since = ".".join(map(str, change.version))
            what = f"`{change.word}` of it" if change.word else "it"
            yield Hit(directive, f"{what} came with nginx {since}: this one refuses it", change.fix)


def _found(changes: Sequence[Change], examined: Examined) -> Iterator[tuple[Directive, Change]]:
    for directive in examined.configuration.tree.main.walk():
        for change in changes:
            if change.fits(directive):
                yield directive, change
