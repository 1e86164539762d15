"""``nearcache lab list``."""

from __future__ import annotations

import click


@click.command("list")
def list_() -> None:
    """Show the experiments and what they compare."""
    from nearcache.lab.experiments import EXPERIMENTS

    for experiment in EXPERIMENTS.values():
        click.echo(f"{experiment.name}: {experiment.question}")
        click.echo(f"  operations  {', '.join(each.name for each in experiment.operations)}")
        click.echo(f"  payloads    {', '.join(experiment.payloads)}")
        for candidate in experiment.candidates:
            click.echo(f"  {candidate.name:<26} {candidate.title}")
