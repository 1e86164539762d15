"""``# nearcache: ignore[rule, rule]``: findings that somebody has looked at and wants so.

It counts on the line of the directive, on the line above, and beside the opening of a
block for all that is inside. Without brackets it silences every rule. A name that no rule
has is told: a silence that silences nothing is a mistake.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from nearcache.nginx.config.lint.model import Finding
from nearcache.nginx.config.read.directives import Tree

_IGNORE = re.compile(r"nearcache: *ignore(?:\[([\w\s,-]*)\])?")
Place = tuple[str, int]


def silenced(finding: Finding, ignores: Mapping[Place, frozenset[str]]) -> bool:
    rules = ignores.get((finding.file, finding.line), frozenset())
    return bool(rules & {finding.rule, "*"})


def ignores_of(tree: Tree) -> dict[Place, frozenset[str]]:
    """For every line of a directive: the rules that are silent there."""
    marked = {place: _rules(text) for place, text in tree.comments.items()}
    starts = {(directive.file, directive.line) for directive in tree.main.walk()}
    # A comment of its own, not that of the neighbour above.
    alone = {place: rules for place, rules in marked.items() if place not in starts}
    found: dict[Place, frozenset[str]] = {}
    left = [(directive, frozenset[str]()) for directive in tree.main.block or ()]
    while left:
        directive, outer = left.pop()
        at, above = (directive.file, directive.line), (directive.file, directive.line - 1)
        here = outer | marked.get(at, frozenset()) | alone.get(above, frozenset())
        found[at] = found.get(at, frozenset()) | here
        left += [(below, here) for below in directive.block or ()]
    return found


def unknown_rules(tree: Tree, known: Collection[str]) -> Iterator[str]:
    for (file, line), text in tree.comments.items():
        for rule in _rules(text) - {"*"} - set(known):
            yield f"{file}:{line}: no rule is called {rule!r}; nothing is silenced by that"


def _rules(comment: str) -> frozenset[str]:
    match = _IGNORE.search(comment)
    if not match:
        return frozenset()
    if match[1] is None:
        return frozenset("*")
    return frozenset(name.strip() for name in match[1].split(",") if name.strip())
