"""What the generator asks, checked: nothing that is in here can break the configuration."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from nearcache.errors import NginxError
from nearcache.nginx.config.read.configuration import Version
from nearcache.nginx.config.read.units import format_size, format_time, parse_size, parse_time
from nearcache.nginx.keys.spelling import Spelling

NODE_BYTES = 128  # of a key in the zone
USUAL_RESPONSE_BYTES = 16 << 10
MEGABYTE = 1 << 20
SMALLEST_ZONE = 10 * MEGABYTE
MIN_FREE = "512m"
SHORTEST_INACTIVE_S = 86400.0
_ADDRESS = re.compile(r"(?:unix:/[\w./@+-]+|[\w.-]+(?::\d+)?|\[[0-9a-fA-F:]+\](?::\d+)?)")
_PORT = re.compile(r":(\d+)$")
LAST_PORT = 65535
_WORD = re.compile(r"[\w./:@*~^\[\]-]+")
_COOKIE = re.compile(r"[\w-]+")
_PREFIX = re.compile(r"/[\w./-]*")


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Times and sizes are texts as nginx takes them. Raises NginxError for what it would not."""

    proxy: str | None = None  # http://127.0.0.1:8000, http://unix:/run/app.sock
    uwsgi: str | None = None  # 127.0.0.1:3031, unix:/run/app.sock
    server_names: Sequence[str] = ("_",)
    listen: str = "80"
    cache_path: str = "/var/cache/nginx-app"
    max_size: str = "1g"
    ttl: str = "10m"
    ttl_missing: str = "1m"  # of a 404
    session_cookie: str = "sessionid"
    static_prefix: str = ""
    static_root: str = ""
    log_path: str = "/var/log/nginx/cache.log"
    purge: str = "soft"  # or "none"
    spelling: Spelling = field(default_factory=Spelling)
    use_njs: bool = False
    version: Version | None = None

    def __post_init__(self) -> None:
        self._check_application()
        self._check_server()
        self._check_cache()

    def _check_application(self) -> None:
        if self.proxy is None and self.uwsgi is None:
            raise NginxError("give --proxy http://127.0.0.1:8000 or --uwsgi unix:/run/app.sock")
        if self.proxy is not None and self.uwsgi is not None:
            raise NginxError("--proxy and --uwsgi: the application is behind one of them")
        if self.proxy is not None and not self.proxy.startswith(("http://", "https://")):
            raise NginxError(f"--proxy {self.proxy} is no URL; write it as http://127.0.0.1:8000")
        self._check(_ADDRESS, "the address of the application", self.address)
        port = _PORT.search(self.address)
        if port and int(port[1]) > LAST_PORT:
            raise NginxError(f"the address of the application: there is no port {port[1]}")

    def _check_server(self) -> None:
        if not self.server_names:
            raise NginxError("--server-name: write one name or more, or _ for any")
        for name in self.server_names:
            self._check(_WORD, "--server-name", name)
        self._check(_WORD, "--listen", self.listen)
        self._check(_PREFIX, "--log-path", self.log_path)
        self._check(_COOKIE, "--session-cookie", self.session_cookie)
        if self.static_prefix:
            self._check(_PREFIX, "--static-prefix", self.static_prefix)
            if not self.static_prefix.strip("/"):
                raise NginxError("--static-prefix / is all of the site: nothing would be cached")
        if self.static_root:
            self._check(_PREFIX, "the directory of --static-prefix", self.static_root)

    def _check_cache(self) -> None:
        self._check(_PREFIX, "--cache-path", self.cache_path)
        if not parse_size(self.max_size):
            raise NginxError(f"--max-size {self.max_size} is no size; write it as 500m or 10g")
        seconds = parse_time(self.ttl)
        if not seconds or seconds % 1:
            raise NginxError(
                f"--ttl {self.ttl} is no time of whole seconds; write it as 10m or 1h30m"
            )
        if self.purge not in {"soft", "none"}:
            raise NginxError(f"--purge {self.purge}: there are soft and none")

    def _check(self, pattern: re.Pattern[str], what: str, value: str) -> None:
        if not pattern.fullmatch(value):
            raise NginxError(f"{what}: {value!r} is not what nginx takes there")

    @property
    def kind(self) -> str:
        return "proxy" if self.proxy is not None else "uwsgi"

    @property
    def scheme(self) -> str:
        """Of the application, with ``proxy``."""
        return "https" if (self.proxy or "").startswith("https://") else "http"

    @property
    def address(self) -> str:
        """For ``server`` in ``upstream``: without scheme and the last slash."""
        text = self.proxy if self.proxy is not None else (self.uwsgi or "")
        return re.sub(r"^(https?|uwsgi)://", "", text).removesuffix("/")

    @property
    def inactive(self) -> str:
        """At least the TTL, so that nothing is removed while it is valid; at least a day."""
        return format_time(max(parse_time(self.ttl) or 0, SHORTEST_INACTIVE_S))

    @property
    def zone_size(self) -> str:
        """Twice what the keys of ``max_size`` of usual responses take, in whole megabytes."""
        keys = (parse_size(self.max_size) or 0) // USUAL_RESPONSE_BYTES
        size = max(SMALLEST_ZONE, 2 * keys * NODE_BYTES)
        return format_size(-(-size // MEGABYTE) * MEGABYTE)

    @property
    def min_free(self) -> str:
        """Empty where nginx does not know it."""
        knows = self.version is not None and self.version >= (1, 19, 1)
        return MIN_FREE if knows else ""
