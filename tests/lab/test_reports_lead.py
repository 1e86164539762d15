"""A report leads with a handful of sentences; what says nothing stands below."""

from __future__ import annotations

import re

import pytest

from nearcache.lab.experiments import registry as experiments
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.reports import html, terminal
from nearcache.lab.reports.lead import MOST, REST_TITLE, lead_and_rest
from nearcache.lab.views import Views

from .test_reports_terminal import forty, printed

MANY = [f"Finding {number} was found." for number in range(30)]
NOTHING = "a was not told apart from b in get."


def test_the_lead_is_five_sentences_and_nothing_is_lost() -> None:
    answer = ["A is fastest: 1.5 µs. This run cannot tell B from it.", "An average is 3.1 µs."]
    lead, rest = lead_and_rest(answer, [NOTHING, *MANY])
    assert lead == [*answer, *MANY[:2]]
    assert sum(len(re.findall(r"\.(?= [A-Z]|$)", line)) for line in lead) == MOST
    assert sorted([*lead, *rest]) == sorted([*answer, NOTHING, *MANY])


def test_page_and_terminal_keep_the_rest_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Views(sentences=(NOTHING, *MANY))
    for report in (html, terminal):
        monkeypatch.setattr(report, "views_of", lambda _: found)
    sample = forty()
    assert sample.about["experiment"] not in experiments.EXPERIMENTS
    text = printed(sample)
    assert text.index(NOTHING) > text.index(REST_TITLE)
    assert text.index("Finding 29") < text.rindex("Finding 0")
    page = html.render(Analysis(sample))
    card = page[page.index('aria-label="Answer"') :]
    lead = card[: card.index("<details>")]
    assert lead.count("<p>") <= MOST
    assert NOTHING not in lead
    assert NOTHING in card[: card.index("</details>")]
