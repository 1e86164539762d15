"""Rules that give different spellings of one URL the same key, for evidence from stored bodies.

    lower          values and names of arguments in lower case
    lower-path     the path in lower case
    strip          no blanks (``+``, ``%20``) around values of arguments
    sort-args      arguments in the order of their names
    drop=PATTERN   without the arguments whose names match, as ``drop=utm_*|gclid``

They are those of ``nearcache nginx whatif --key``, from the same native code, so that what
bodies prove can be forecast. nginx must then forward what it keys: an argument that is
dropped from the key and passed on lets one visitor choose what others get.
"""

from __future__ import annotations

from collections.abc import Callable

from nearcache._core import NginxKeyRules
from nearcache.nginx.keys.groups import split_key

Rule = Callable[[str], str]
PLAIN = ("lower", "lower-path", "strip", "sort-args")


def rule_of(text: str) -> Rule:
    """One rule, or several with commas between. Raises NginxError for what is none."""
    rules = NginxKeyRules(text)

    def becomes(key: str) -> str:
        made = rules.apply(key.encode("utf-8", "backslashreplace"))
        return made.decode("utf-8", "backslashreplace")

    return becomes


def arguments_of(key: str) -> list[str]:
    """The names of its arguments."""
    _, _, text = split_key(key)[1].partition("?")
    return [each.partition("=")[0] for each in text.split("&") if each]
