"""The group of a key: keys that differ only in ids are one.

``http://127.0.0.1:8000/song/5246889/amazon`` is ``/song/<n>/amazon``. The words are those
of the groups of logs (crates/nearcache-nginx/src/groups.rs), so that reports can be laid
side by side; rare shapes may be called differently there.
"""

from __future__ import annotations

import re

NUMBERS = re.compile(r"\d[\d\-_.,:]*")
HEX = re.compile(r"(?=.*[0-9])(?=.*[a-fA-F])[0-9a-fA-F]{8,}")
UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
MIXED = re.compile(r"(?=.*\d)(?=.*[a-z])(?=.*[A-Z])[\w-]{10,}")
PLAIN = re.compile(r"[!-~]*")
MOST_SEGMENTS, MOST_ARGUMENTS, LONGEST = 12, 8, 48
TRACKING = re.compile(
    r"utm_.*|gclid|gbraid|wbraid|dclid|fbclid|msclkid|yclid|igshid|mc_[ce]id|_ga|_gl"
)


def split_key(key: str) -> tuple[str, str]:
    """(what stands before the path, path with arguments); the latter is empty without a slash."""
    scheme_ends = key.find("://")
    begin = key.find("/", scheme_ends + 3 if 0 <= scheme_ends < key.find("/") else 0)
    return (key[:begin], key[begin:]) if begin >= 0 else (key, "")


def shape_of(key: str) -> str:
    _, uri = split_key(key)
    if not uri:
        return "(keys without a path)"
    path, _, arguments = uri.partition("?")
    segments = path.split("/")
    shown = [_segment(segment) for segment in segments[: MOST_SEGMENTS + 1]]
    if len(segments) > MOST_SEGMENTS + 1:
        shown.append("<more>")
    return "/".join(shown) + _arguments(arguments)


def _segment(segment: str) -> str:
    if not PLAIN.fullmatch(segment) or "%" in segment or "+" in segment:
        return "<text>"
    if NUMBERS.fullmatch(segment):
        return "<n>"
    return ".".join(_piece(piece) for piece in segment.split("."))


def _piece(piece: str) -> str:
    if piece.isdigit():
        return "<n>"
    if UUID.fullmatch(piece):
        return "<uuid>"
    if HEX.fullmatch(piece):
        return "<hex>"
    if len(re.findall("[-_]", piece)) >= 3 or len(piece) > LONGEST:
        return "<slug>"
    return "<id>" if MIXED.fullmatch(piece) else piece


def _arguments(text: str) -> str:
    names = {argument.partition("=")[0] for argument in text.split("&") if argument}
    kept = sorted(name for name in names if not TRACKING.fullmatch(name))[:MOST_ARGUMENTS]
    shown = [name if PLAIN.fullmatch(name) and len(name) <= LONGEST else "<text>" for name in kept]
    return f"?{'&'.join(shown)}" if shown else ""
