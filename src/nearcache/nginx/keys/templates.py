"""The shape of a key, and the key that it makes of a URL.

    {scheme}{host}{uri}            $scheme$host$request_uri
    http://127.0.0.1:8000{uri}     the default of proxy_cache: scheme, upstream, URI

Words in braces: scheme, method, host (in lower case, without a port, as nginx's ``$host``),
port (``:8080`` where the URL has one, for ``$http_host``), uri (path and arguments as they are
sent), path (as ``$uri``: decoded, slashes merged, dots resolved), is_args and args. No others, so
that a typing error shows.
"""

from __future__ import annotations

from string import Formatter
from urllib.parse import SplitResult, unquote, urlsplit

from nearcache.errors import NginxError

WORDS = ("scheme", "method", "host", "port", "uri", "path", "is_args", "args")
OF_THE_SITE = ("scheme", "host", "port")  # what a path alone does not tell


def check_template(template: str) -> str:
    """The template itself; NginxError if it has words that there are not."""
    try:
        words = [name for _, name, _, _ in Formatter().parse(template) if name is not None]
    except ValueError as error:
        raise NginxError(f"the key {template!r} is no template: {error}") from error
    unknown = [word for word in words if word not in WORDS]
    if unknown:
        known = ", ".join(f"{{{word}}}" for word in WORDS)
        raise NginxError(f"the key {template!r} has {{{unknown[0]}}}; there are {known}")
    if not {"uri", "path"} & set(words):
        raise NginxError(f"the key {template!r} has neither {{uri}} nor {{path}}")
    return template


def needs_site(template: str) -> bool:
    """Does it need a whole URL, or is a path enough?"""
    return any(f"{{{word}}}" in template for word in OF_THE_SITE)


def key_for(url: str, template: str, scheme: str | None = None) -> bytes:
    """The key that a template makes of a URL, or of a path if it needs no more.

    The URL is taken as it is written, since nginx keys what is sent: percent signs included.
    ``scheme`` replaces that of the URL.
    """
    parts = split_url(url)
    if not parts.netloc and needs_site(template):
        raise NginxError(f"{url} has no scheme and host, and keys like {template} need them")
    uri = parts.path + (f"?{parts.query}" if parts.query else "")
    filled = template.format(
        scheme=scheme or parts.scheme,
        method="GET",
        host=(parts.hostname or "").lower(),
        port=f":{parts.port}" if parts.port else "",
        uri=uri,
        path=decoded(parts.path),
        is_args="?" if parts.query else "",
        args=parts.query,
    )
    return key_bytes(filled)


def decoded(path: str) -> str:
    """What nginx makes of a path for ``$uri``. Source: ngx_http_parse_complex_uri."""
    whole: list[str] = []
    *parts, last = unquote(path, errors="surrogateescape").split("/")
    for part in parts + ([last, ""] if last in {".", ".."} else [last]):
        if part == "..":
            del whole[-1:]
        elif part not in {"", "."}:
            whole.append(part)
    slash = "/" if whole and last in {"", ".", ".."} else ""
    return "/" + "/".join(whole) + slash


def key_bytes(text: str) -> bytes:
    """A key that was written as text; NginxError for what UTF-8 cannot write."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise NginxError(f"{text!r} is no text: half a character at {error.start}") from None


def split_url(url: str) -> SplitResult:
    """The parts of ``https://host/path?arguments`` or ``/path?arguments``, or NginxError."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises for what is no number
    except ValueError as error:
        raise NginxError(f"{url!r} is no URL: {error}") from error
    is_whole = parts.scheme in ("http", "https") and parts.netloc
    is_path = not parts.scheme and not parts.netloc and parts.path.startswith("/")
    if not (is_whole or is_path) or any(ord(c) <= 32 or ord(c) == 127 for c in url):
        raise NginxError(f"{url!r} is no URL: write https://example.com/path, or /path")
    return parts._replace(path=parts.path or "/", fragment="")
