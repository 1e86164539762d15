"""What ``key=`` of ``@cacheable`` means: the arguments that an answer depends on, in one spelling.

nginx has made its key before Django is asked, and no header of a response changes it. What
can be done here is to answer from these arguments and no others, and to have one spelling of
them stored. The rules are those of ``nearcache nginx config --normalize``, in the same words:
what nginx was told to forward is what is expected here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.http import HttpRequest, QueryDict
from django.utils.encoding import escape_uri_path

from nearcache.errors import NginxError
from nearcache.nginx.keys.spelling import Spelling, parse_spelling

Pairs = list[tuple[str, str]]
Canonical = Callable[[HttpRequest], Pairs]
HOW = 'key="keep=q|page,lower,strip", or a function: key=lambda request: {"q": ...}'


def canonical_of(key: object) -> Canonical:
    """From a request to its arguments in the one spelling. Raises NginxError for what is no key."""
    if callable(key):
        return lambda request: _pairs_of(key(request))
    if isinstance(key, str):
        rules = _rules(key)
        return lambda request: spelled(arguments_of(request), rules)
    raise NginxError(f"@cacheable: {key!r} is no key; write {HOW}")


def _rules(text: str) -> Spelling:
    try:
        rules = parse_spelling(text)
    except NginxError as error:
        raise NginxError(str(error).replace("--normalize", "@cacheable: key=")) from None
    if not rules:
        raise NginxError(f"@cacheable: key={text!r} names no rule; write {HOW}")
    return rules


def _pairs_of(made: object) -> Pairs:
    """Of a function's mapping: sorted by name; None is an argument that is not there."""
    if not isinstance(made, Mapping):
        raise NginxError(
            f"@cacheable: key= gave {made!r}; it must give the arguments that matter, by name: "
            '{"q": request.GET.get("q")}'
        )
    return [(str(name), value) for name in sorted(made) for value in _values(made[name])]


def _values(value: Any) -> list[str]:
    several = value if isinstance(value, list | tuple) else [value]
    return [str(each) for each in several if each is not None]


def spelled(pairs: Pairs, rules: Spelling) -> Pairs:
    """As the generated maps, script and middleware of ``config/write/`` spell it."""
    pairs = [pair for pair in pairs if not any(fnmatchcase(pair[0], glob) for glob in rules.drop)]
    if rules.keep:
        first = dict(reversed(pairs))
        pairs = [(name, first[name]) for name in rules.keep if name in first]
    if rules.strip:
        pairs = [(name, value.strip()) for name, value in pairs]
    if rules.lower:
        pairs = [(name, value.lower()) for name, value in pairs]
    if rules.sort or rules.keep:
        pairs.sort(key=lambda pair: pair[0])
    return pairs


def arguments_of(request: HttpRequest) -> Pairs:
    """Decoded; in the order in which a view could see them."""
    return [(name, value) for name, values in request.GET.lists() for value in values]


def show_only(request: HttpRequest, pairs: Pairs) -> None:
    """From now on the request has these arguments and no others, in its URL, too."""
    encoding = request.encoding or settings.DEFAULT_CHARSET
    text = urlencode(pairs, encoding=encoding)
    request.GET = QueryDict(text, encoding=encoding)
    request.META["QUERY_STRING"] = text


def url_of(request: HttpRequest) -> str:
    """Path and arguments. One slash first: ``//host/`` would lead away from this site."""
    path = escape_uri_path("/" + request.path.lstrip("/"))
    text = request.META.get("QUERY_STRING", "")
    return f"{path}?{text}" if text else path
