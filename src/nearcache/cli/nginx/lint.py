"""``nearcache nginx lint``: what is wrong with how a configuration caches, and what to paste."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from nearcache.cli.nginx.common import print_json
from nearcache.errors import NginxError
from nearcache.report.plain import hanging
from nearcache.report.words import plural

if TYPE_CHECKING:
    from nearcache.nginx.config.lint import Finding
    from nearcache.nginx.config.read.configuration import Configuration

WIDTH = 80
COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}
MOST_PLACES = 3
MOST_ALIKE = 4


@click.command()
@click.argument("file", required=False, metavar="[FILE]", type=click.Path(allow_dash=True))
@click.option(
    "--severity",
    type=click.Choice(["error", "warning", "note"]),
    default="note",
    show_default=True,
    help="Show only these and worse.",
)
@click.option("--ignore", multiple=True, metavar="RULE", help="May be given several times.")
@click.option("--nginx-version", metavar="1.30.4", help="That will read it. [that of this host]")
@click.option("--gixy", is_flag=True, help="Ask gixy-ng too, which must be installed.")
@click.option("--rules", is_flag=True, help="List the names of all rules.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")
def lint(
    file: str | None,
    severity: Any,
    ignore: Sequence[str],
    nginx_version: str | None,
    gixy: bool,
    rules: bool,
    as_json: bool,
) -> None:
    """Find what is wrong with how an nginx configuration caches: exit code 0 nothing, 1 findings.

    FILE is nginx.conf (its includes are read too), the output of `nginx -T`, or - for that on
    standard input. Without FILE `nginx -T` is run on this host.

    A comment `# nearcache: ignore[RULE]` on the line, or the line above, or beside the opening of
    a block, silences a finding.
    """
    from nearcache.nginx.config.lint import NAMES, mistakes  # fmt: skip
    from nearcache.nginx.config.lint import lint as lint_all
    from nearcache.nginx.config.lint.survey import survey

    if rules:
        if as_json:
            print_json({"verb": "lint", "schema": 1, "rules": list(NAMES)})
        else:
            click.echo("\n".join(NAMES))
        return
    _check_rules(ignore, NAMES)
    configuration = _read(file, nginx_version)
    examined, troubles = survey(configuration)
    findings = lint_all(examined, least=severity, ignore=ignore)
    if gixy:
        findings += _second_opinion(file, configuration, severity)
    said = [*configuration.troubles, *troubles, *mistakes(examined)]
    if as_json:
        print_json(_to_json(configuration, findings, said))
    else:
        _print(configuration, findings, said)
    if findings:
        raise SystemExit(1)


def _check_rules(given: Sequence[str], known: Sequence[str]) -> None:
    from difflib import get_close_matches

    for name in given:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else "`--rules` lists them"
            raise NginxError(f"--ignore {name}: there is no such rule; {hint}")


def _read(file: str | None, version: str | None) -> Configuration:
    from dataclasses import replace

    from nearcache.nginx.config.read.configuration import (
        installed_version,
        parse_version,
        read_configuration,
        running_configuration,
    )

    given = parse_version(version) if version else None
    if version and given is None:
        raise NginxError(f"--nginx-version {version} is no version; write it as 1.30.4")
    if file is None:
        found = running_configuration()
        return replace(found, version=given) if given else found
    return read_configuration(file, version=given or installed_version())


def _second_opinion(
    file: str | None, configuration: Configuration, severity: Any
) -> Sequence[Finding]:
    from nearcache.nginx.config.lint import SEVERITIES
    from nearcache.nginx.config.lint.gixy import is_installed, second_opinion

    if not is_installed():
        raise NginxError("--gixy: it is not installed; pip install gixy-ng")
    path = configuration.tree.files[0]
    if file == "-" or len(configuration.tree.files) == 0:
        raise NginxError("--gixy needs a file, not standard input")
    shown = SEVERITIES[: SEVERITIES.index(severity) + 1]
    return [each for each in second_opinion(path, configuration.version) if each.severity in shown]


def _to_json(
    configuration: Configuration, findings: Sequence[Finding], said: Sequence[str]
) -> dict[str, Any]:
    return {
        "verb": "lint",
        "schema": 1,
        "files": list(configuration.tree.files),
        "nginx_version": ".".join(map(str, configuration.version or ())) or None,
        "caches": [cache.zone for cache in configuration.caches],
        "cached_locations": [place.name for place in configuration.cached],
        "not_read": list(said),
        "findings": [finding.to_json() for finding in findings],
    }


def _print(configuration: Configuration, findings: Sequence[Finding], said: Sequence[str]) -> None:
    for line in said:
        click.echo(_fold(line, "! "), err=True)
    alike = _alike(findings)
    for group in alike:
        _print_findings(group)
    click.echo(_fold(_summary(configuration, [group[0] for group in alike])))


def _alike(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Together what is mended alike: no lock in twenty locations is said once."""
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for each in findings:
        groups.setdefault((each.severity, each.rule, each.why, each.fix), []).append(each)
    return list(groups.values())


def _print_findings(alike: Sequence[Finding]) -> None:
    finding = alike[0]
    colour = COLOURS[finding.severity]
    click.echo(
        click.style(finding.severity, fg=colour, bold=True)
        + f" {click.style(finding.rule, bold=True)}  {finding.file}:{finding.line}"
    )
    click.echo(_fold(finding.directive + _places(finding), "  | "))
    for other in alike[1 : MOST_ALIKE + 1]:
        click.echo(_fold(f"also {other.file}:{other.line}{_places(other)}", "  | "))
    if len(alike) > MOST_ALIKE + 1:
        click.echo(f"  | and {plural(len(alike) - MOST_ALIKE - 1, 'more place')}; --json has all")
    click.echo(_fold(finding.why, "  "))
    for line in finding.fix.splitlines():
        for piece in _fold_fix(line):
            click.echo(click.style(f"  + {piece}", fg="green"))
    click.echo()


def _places(finding: Finding) -> str:
    places = ", ".join(finding.places[:MOST_PLACES])
    more = len(finding.places) - MOST_PLACES
    return f"   in {places}" + (f" and {more} more" if more > 0 else "") if places else ""


def _fold_fix(line: str) -> list[str]:
    """In lines that nginx takes as they are: what stands in quotes stays in one."""
    if any(quote in line for quote in "\"'"):
        return [line]
    more = "#     " if line.startswith("#") else "    "
    return hanging("", line, WIDTH - 4, below=more)


def _summary(configuration: Configuration, findings: Sequence[Finding]) -> str:
    version = ".".join(map(str, configuration.version or ())) or "of unknown version"
    looked = (
        f"{plural(len(configuration.tree.files), 'file')}, "
        f"{plural(len(configuration.caches), 'cache')}, "
        f"{plural(len(configuration.cached), 'location')} with a cache; for nginx {version}"
    )
    if not configuration.cached:
        return f"Nothing caches here ({looked})."
    counts = [
        plural(sum(f.severity == severity for f in findings), severity) for severity in COLOURS
    ]
    return f"{', '.join(counts)} ({looked})."


def _fold(text: str, indent: str = "") -> str:
    below = indent if indent.strip() == "|" else None
    return "\n".join(hanging(indent, text, WIDTH, below=below))
