"""What the experiment of a sample shows beside the common report: asked of its own module."""

from __future__ import annotations

import re
from contextlib import suppress
from importlib import import_module

from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.views import Views

EVERYWHERE = ("nearcache.lab.advice.costs",)  # what any experiment's report may show


def views_of(analysis: Analysis) -> Views:
    """What the experiment of this sample shows beside the common report, and the costs.

    A view that fails takes nothing else with it: it may meet a sample that was interrupted,
    or one of another version. The report says that it is missing, and why.
    """
    from nearcache.lab.experiments.registry import EXPERIMENTS

    name = analysis.sample.about["experiment"]
    if not analysis.sample.has_numbers or analysis.void_run:
        return Views()  # the head of the report says why nothing is answered
    experiment = EXPERIMENTS.get(name)
    own = (experiment.views,) if experiment and experiment.views else ()
    found = [_views_of(module, name, analysis) for module in (*own, *EVERYWHERE)]
    return Views(
        sentences=tuple(sentence for views in found for sentence in views.sentences),
        parts=tuple(part for views in found for part in views.parts),
    )


def charted(experiment: str) -> re.Pattern[str] | None:
    """Names of secondary numbers that the charts of an experiment have, and tables need not."""
    from nearcache.lab.experiments.registry import EXPERIMENTS

    known = EXPERIMENTS.get(experiment)
    if known and known.views:
        with suppress(Exception):  # views_of says that it fails, and why
            return getattr(import_module(known.views), "CHARTED", None)
    return None


def _views_of(module: str, name: str, analysis: Analysis) -> Views:
    try:
        found = import_module(module).views(analysis)
        assert isinstance(found, Views)
    except Exception as error:  # noqa: BLE001
        said = f"{type(error).__name__}: {error}"
        return Views(sentences=(f"What only {name} shows cannot be drawn: {said}.",))
    return found
