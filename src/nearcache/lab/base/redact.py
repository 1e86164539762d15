"""Secrets of the user's settings, kept out of everything that is printed or stored."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

HIDDEN = "***"
# scheme://user:password@host; the password may hold anything but white space.
_URL = re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]*://)[^\s/@'\"]*:[^\s'\"]*@")
_QUERY = re.compile(r"([?&](?:password|pass|token|secret)=)[^&\s'\"]+", re.IGNORECASE)
_NAME = re.compile(
    r"pass|secret|token|credential|auth|access_?key|sign_?key|private", re.IGNORECASE
)
SHORTEST = 4  # a shorter secret is in too many words to be replaced


def redact(text: str, settings: Any = None) -> str:
    """``text`` without passwords of URLs, and without any secret that ``settings`` hold."""
    for secret in sorted(set(secrets_in(settings)), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    text = _URL.sub(rf"\1{HIDDEN}@", text)
    return _QUERY.sub(rf"\1{HIDDEN}", text)


def secrets_in(settings: Any, name: str = "") -> Iterator[str]:
    """Texts in settings that are secret: by the name they have, or inside a URL."""
    if isinstance(settings, Mapping):
        for key, value in settings.items():
            yield from secrets_in(value, str(key))
    elif isinstance(settings, list | tuple | set):
        for value in settings:
            yield from secrets_in(value, name)
    elif isinstance(settings, bytes | str):
        text = settings.decode(errors="replace") if isinstance(settings, bytes) else settings
        if _NAME.search(name) and len(text) >= SHORTEST:
            yield text
        yield from _of_url(text)


def _of_url(text: str) -> Iterator[str]:
    if "://" not in text:
        return
    for each in re.split(r"[,;]", text):
        try:
            password = urlsplit(each.strip()).password
        except ValueError:
            continue
        for form in {password or "", unquote(password or "")}:
            if len(form) >= SHORTEST:
                yield form
