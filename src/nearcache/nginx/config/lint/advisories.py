"""Rules about flaws of nginx that a configuration opens, by its pattern and nginx's version.

Source: nginx.org/en/security_advisories.html and the CVE records (cvelistV5). A distribution
mends a flaw without changing the number of nginx's version: the finding says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nearcache.nginx.config.lint.model import Examined, Hit, Severity
from nearcache.nginx.config.read.configuration import Configuration, Version
from nearcache.nginx.config.read.directives import Directive
from nearcache.nginx.config.read.locations import Location


@dataclass(frozen=True)
class Advisory:
    """``vulnerable``: from the first to before the second version."""

    cve: str
    vulnerable: Sequence[tuple[Version, Version]]

    def holds(self, version: Version | None) -> bool:
        return version is None or any(a <= version < b for a, b in self.vulnerable)


# A regex map's variable after one of the captures that this map sets, in one string.
MAP_AFTER_CAPTURE = (
    Advisory("CVE-2026-42533", [((0, 9, 6), (1, 30, 4)), ((1, 31, 0), (1, 31, 3))]),
    Advisory("CVE-2026-93479", [((1, 30, 0), (1, 30, 6)), ((1, 31, 2), (1, 31, 7))]),
    Advisory("CVE-2026-125283", [((0, 9, 6), (1, 30, 7)), ((1, 31, 0), (1, 31, 9))]),
)
# Captures by number in a location with slices or background updates.
NUMBERS_IN_SUBREQUEST = (
    Advisory("CVE-2026-60005", [((1, 15, 8), (1, 30, 4)), ((1, 31, 0), (1, 31, 3))]),
)
_USED = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_NUMBER = re.compile(r"\$\{?[1-9]")
_NAMED_GROUP = re.compile(r"\(\?P?[<'](\w+)[>']")


def map_after_capture(examined: Examined) -> Iterator[Hit]:
    flaws = [a for a in MAP_AFTER_CAPTURE if a.holds(examined.version)]
    if not flaws:
        return
    captured = _captures(examined.configuration)
    for directive in examined.configuration.tree.main.walk():
        if directive.name in {"map", "log_format"} and directive.block:
            continue
        for text in _strings(directive):
            name = _mapped_after_capture(text, captured, examined.configuration)
            if name:
                yield Hit(
                    directive,
                    f"${name} comes from a map with regular expressions, and stands after a "
                    f"capture in one string: {_what(flaws, examined)}",
                    f'set $before "{text.split("$" + name)[0]}";  # outside of that string',
                    _severity(examined),
                )


def _strings(directive: Directive) -> Sequence[str]:
    # nginx joins the pieces of a log_format to one string.
    return ["".join(directive.args[1:])] if directive.name == "log_format" else directive.args


def _mapped_after_capture(
    text: str, captured: set[str], configuration: Configuration
) -> str | None:
    """The variable of a regex map that follows a capture."""
    seen_capture = False
    for braced, bare in _USED.findall(text):
        name = braced or bare
        if name.isdigit() or name in captured:
            seen_capture = True
        elif seen_capture and _has_regex(name, configuration):
            return str(name)
    return None


def _has_regex(name: str, configuration: Configuration) -> bool:
    behind = configuration.variables_in(f"${name}")
    return any(made.variable in behind and made.has_regex for made in configuration.maps)


def _captures(configuration: Configuration) -> set[str]:
    """The names of captures in all regular expressions."""
    found: set[str] = set()
    for directive in configuration.tree.main.walk():
        for text in (directive.name, *directive.args):
            found.update(_NAMED_GROUP.findall(text))
    return found


def numbered_capture(place: Location, examined: Examined) -> Iterator[Hit]:
    flaws = [a for a in NUMBERS_IN_SUBREQUEST if a.holds(examined.version)]
    slices = place.text("slice", "0") != "0"
    if not flaws or not (slices or place.background_update):
        return
    for directive in place.directive.block or ():
        if directive.block is None and _NUMBER.search(directive.text):
            what = "slices" if slices else "background updates"
            yield Hit(
                directive,
                f"a capture by number in a location with {what}: {_what(flaws, examined)}",
                "# name it: location ~ ^/(?<part>[a-z]+)/ ... $part",
                _severity(examined),
            )


def _what(flaws: Sequence[Advisory], examined: Examined) -> str:
    names = " and ".join(flaw.cve for flaw in flaws)
    # Versions count up within 1.30 and 1.31 apart.
    fixed = " and ".join(
        ".".join(map(str, max(before for flaw in flaws for _, before in flaw.vulnerable
                              if before[:2] == branch)))
        for branch in ((1, 30), (1, 31))
    )  # fmt: skip
    if examined.version is None:
        return f"{names}, mended in {fixed}; give --nginx-version"
    number = ".".join(map(str, examined.version))
    return (
        f"nginx {number} has {names}, mended in {fixed} (or by your distribution, without "
        "another number: see its changelog)"
    )


def _severity(examined: Examined) -> Severity:
    return "warning" if examined.version is None else "error"
