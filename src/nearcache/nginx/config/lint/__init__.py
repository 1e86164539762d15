"""What is wrong with how an nginx configuration caches, why, and what to paste instead.

    findings = lint(Examined(read_configuration("/etc/nginx/nginx.conf")))

    model.py      rules, what they look at, findings
    registry.py   every rule, one line each
    inputs.py     what goes to the application and what is in the key
    keys.py sent_headers.py zones.py freshness.py privacy.py headers.py advisories.py syntax.py
                  the rules
    survey.py     what is beside the configuration: directories, file systems, Django
    silence.py    comments that silence a finding
    gixy.py       a second opinion, if it is installed

A rule says nothing it cannot show a directive for. Each is proven by a configuration that
has what it is about and one that does not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from nearcache.nginx.config.lint.model import (
    SEVERITIES,
    CacheRule,
    Examined,
    Finding,
    Hit,
    LocationRule,
    Rule,
    Severity,
)
from nearcache.nginx.config.lint.registry import NAMES, RULES
from nearcache.nginx.config.lint.silence import ignores_of, silenced, unknown_rules
from nearcache.nginx.config.read.locations import Location

__all__ = ["NAMES", "RULES", "SEVERITIES", "Examined", "Finding", "Severity", "lint", "mistakes"]


def lint(
    examined: Examined, *, least: Severity = "note", ignore: Collection[str] = ()
) -> list[Finding]:
    """All findings of at least this severity, the worst first.

    Several locations with one and the same cause are one finding.
    """
    merged: dict[tuple[str, str, str], Finding] = {}
    for rule in RULES:
        if rule.name not in ignore:
            for hit, place in _hits(rule, examined):
                finding = _finding(rule, hit, place)
                at = (finding.rule, f"{finding.file}:{finding.line}", finding.why)
                known = merged.get(at)
                merged[at] = _joined(known, finding) if known else finding
    ignores = ignores_of(examined.configuration.tree)
    shown = SEVERITIES[: SEVERITIES.index(least) + 1]
    found = [f for f in merged.values() if f.severity in shown and not silenced(f, ignores)]
    return sorted(found, key=lambda f: (SEVERITIES.index(f.severity), f.file, f.line))


def mistakes(examined: Examined) -> list[str]:
    """Comments that silence no rule there is."""
    return list(unknown_rules(examined.configuration.tree, NAMES))


def _hits(rule: Rule, examined: Examined) -> Iterator[tuple[Hit, Location | None]]:
    if isinstance(rule, LocationRule):
        for place in examined.configuration.cached:
            if _is_of_its_own(place):
                for hit in rule.check(place, examined):
                    yield hit, place
    elif isinstance(rule, CacheRule):
        for cache in examined.configuration.caches:
            for hit in rule.check(cache, examined):
                yield hit, None
    else:
        for hit in rule.check(examined):
            yield hit, None


def _is_of_its_own(place: Location) -> bool:
    """An ``if`` that changes nothing about caching says nothing that its location does not."""
    if place.kind != "if":
        return True
    prefixes = (f"{place.protocol}_", "add_header", "access_log", "slice")
    return any(d.name.startswith(prefixes) for d in place.directive.block or ())


def _finding(rule: Rule, hit: Hit, place: Location | None) -> Finding:
    return Finding(
        rule=rule.name,
        severity=hit.severity or rule.severity,
        directive=str(hit.at),
        file=hit.at.file,
        line=hit.at.line,
        places=(place.name,) if place else (),
        why=hit.why,
        fix=hit.fix,
    )


def _joined(known: Finding, other: Finding) -> Finding:
    places = tuple(dict.fromkeys(known.places + other.places))
    return Finding(**(known.to_json() | {"places": places}))
