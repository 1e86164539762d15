"""Rules for arguments: ``lower,strip,sort-args,drop=utm_*|fbclid,keep=q|page``.

    lower      values in lower case
    strip      values without spaces around them
    sort-args  arguments in the order of their names
    drop=      without these arguments; * stands for anything
    keep=      only these arguments, in the order of their names, the first of each

nginx's own maps can do ``drop`` and ``keep``. They cannot lower-case, strip or sort: that
takes njs, or a redirect by the application.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from nearcache.errors import NginxError

WORDS = ("lower", "strip", "sort-args", "drop=...", "keep=...")
_GLOB = re.compile(r"[\w.*\[\]~-]+")
_PLAIN = re.compile(r"\w+")  # what can be part of the variable $arg_name


@dataclass(frozen=True)
class Spelling:
    lower: bool = False
    strip: bool = False
    sort: bool = False
    drop: Sequence[str] = ()
    keep: Sequence[str] = ()

    def __bool__(self) -> bool:
        return self.needs_code or bool(self.drop or self.keep)

    @property
    def needs_code(self) -> bool:
        """Is there something that maps cannot do? (``keep`` sorts by itself.)"""
        return self.lower or self.strip or (self.sort and not self.keep)

    def __str__(self) -> str:
        words = [
            "lower" * self.lower,
            "strip" * self.strip,
            "sort-args" * self.sort,
            f"drop={'|'.join(self.drop)}" * bool(self.drop),
            f"keep={'|'.join(self.keep)}" * bool(self.keep),
        ]
        return ",".join(filter(None, words))


def parse_spelling(text: str) -> Spelling:
    """Raises NginxError for what is no rule, with those there are."""
    flags = {"lower": False, "strip": False, "sort-args": False}
    names: dict[str, list[str]] = {"drop": [], "keep": []}
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = word.partition("=")
        if name in flags and not equals:
            flags[name] = True
        elif name in names and value:
            names[name] += _names(value)
        else:
            raise NginxError(f"--normalize {word!r} is no rule; there are {', '.join(WORDS)}")
    if names["drop"] and names["keep"]:
        raise NginxError("--normalize: keep= names all that is kept, so there is nothing to drop=")
    _check_keep(names["keep"])
    return Spelling(
        lower=flags["lower"],
        strip=flags["strip"],
        sort=flags["sort-args"],
        drop=tuple(names["drop"]),
        keep=tuple(sorted(names["keep"])),
    )


def _names(value: str) -> list[str]:
    found = [name.strip() for name in value.split("|") if name.strip()]
    for name in found:
        if not _GLOB.fullmatch(name):
            raise NginxError(f"--normalize: {name!r} is no name of an argument")
    return found


def _check_keep(names: Sequence[str]) -> None:
    for name in names:
        if not _PLAIN.fullmatch(name):
            raise NginxError(f"--normalize keep={name}: nginx has no variable for such an argument")


def regex_of(globs: Sequence[str]) -> str:
    """One regular expression for the names of arguments, for nginx and for JavaScript."""
    return "|".join(re.escape(glob).replace(r"\*", "[^=&]*") for glob in globs)
