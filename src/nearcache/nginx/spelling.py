"""Rules that give different spellings of one URL the same key, for evidence from stored bodies.

    lower          letters of path and arguments in lower case
    strip          no blanks (``+``, ``%20``) around values of arguments, no empty arguments
    sort-args      arguments in the order of their names
    drop=PATTERN   without the arguments whose names match a glob, as ``drop=utm_*``

A rule changes what stands behind the host only. nginx must then forward what it keys: an
argument that is dropped from the key and passed on lets one visitor choose what others get.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from nearcache.errors import NginxError
from nearcache.nginx.urlshape import split_key

Rule = Callable[[str], str]
BLANKS = re.compile(r"^(?:\+|%20)+|(?:\+|%20)+$")
PLAIN = ("lower", "strip", "sort-args")


def rule_of(text: str) -> Rule:
    """One rule, or several with commas between, applied from left to right."""
    rules = [_one(part.strip()) for part in text.split(",")]

    def all_of_them(key: str) -> str:
        before, uri = split_key(key)
        for rule in rules:
            uri = rule(uri)
        return before + uri

    return all_of_them


def _one(text: str) -> Rule:
    name, _, pattern = text.partition("=")
    if text == "lower":
        return str.lower
    if text == "strip":
        return lambda uri: _with_arguments(uri, _stripped)
    if text == "sort-args":
        return lambda uri: _with_arguments(uri, lambda given: sorted(given, key=_name))
    if name == "drop" and pattern:
        return lambda uri: _with_arguments(
            uri, lambda given: [each for each in given if not fnmatchcase(_name(each), pattern)]
        )
    raise NginxError(f"{text!r} is no rule for keys; there are {', '.join(PLAIN)}, drop=PATTERN")


def arguments_of(key: str) -> list[str]:
    """The names of its arguments."""
    _, _, text = split_key(key)[1].partition("?")
    return [_name(each) for each in text.split("&") if each]


def _name(argument: str) -> str:
    return argument.partition("=")[0]


def _stripped(given: Sequence[str]) -> list[str]:
    kept = []
    for each in given:
        name, equals, value = each.partition("=")
        if name:
            kept.append(f"{name}{equals}{BLANKS.sub('', value)}")
    return kept


def _with_arguments(uri: str, change: Callable[[list[str]], list[str]]) -> str:
    path, mark, text = uri.partition("?")
    if not mark:
        return uri
    changed = "&".join(change(text.split("&")))
    return f"{path}?{changed}" if changed else path
