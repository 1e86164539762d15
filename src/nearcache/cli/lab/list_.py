"""``nearcache lab list``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from nearcache.report.plain import hanging
from nearcache.report.words import plural

if TYPE_CHECKING:
    from nearcache.lab.base.model import Experiment


@click.command("list")
@click.argument("names", nargs=-1, metavar="[NAME]...")
def list_(names: tuple[str, ...]) -> None:
    """Show the experiments, or what one of them compares.

    Without a NAME one line for each experiment; with it candidates, operations, payloads,
    and what the experiment cannot answer.
    """
    from nearcache.lab.experiments.registry import EXPERIMENTS, experiment_named

    if not names:
        width = max(map(len, EXPERIMENTS))
        for experiment in EXPERIMENTS.values():
            for line in hanging(f"{experiment.name:<{width}}  ", experiment.question):
                click.echo(line)
        click.echo("\nnearcache lab list NAME    candidates, operations and payloads of one")
        click.echo("nearcache lab run NAME     measure it; --quick takes less than a minute")
    for name in names:
        for line in _details(experiment_named(name)):
            click.echo(line)


def _details(experiment: Experiment) -> Iterator[str]:
    yield f"{experiment.name}: {experiment.question}"
    plans = (
        f"{name} {plural(plan.repetitions, 'set')} of processes, "
        f"at most {plural(plan.rounds, 'round')} each, "
        f"{plan.time_limit_s:.0f} s"
        for name, plan in experiment.plans.items()
    )
    yield from hanging("  plans       ", "; ".join(plans))
    yield from hanging("  baseline    ", experiment.baseline)
    yield "  operations"
    for operation in experiment.operations:
        unit = operation.unit + (", as a rate" if operation.as_rate else "")
        yield from hanging(f"    {operation.name:<24} ", f"{operation.title or '-'} ({unit})")
    yield "  payloads"
    for name, title in experiment.payloads.items():
        usual = not experiment.default_payloads or name in experiment.default_payloads
        yield from hanging(f"    {name:<24} ", title + ("" if usual else " (when asked for)"))
    yield "  candidates"
    for candidate in experiment.candidates:
        yield from hanging(f"    {candidate.name:<24} ", candidate.title)
    if experiment.claims:
        yield "  claims of the articles"
    for claim in experiment.claims:
        yield from hanging(f"    {claim.article:<24} ", claim.text)
    if experiment.cannot_answer:
        yield "  cannot answer"
    for line in experiment.cannot_answer:
        yield from hanging("    ", line)
    yield ""
