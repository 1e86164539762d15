"""Which sentences of a report lead it, and which are for those who want all of them.

A reader decides from a handful. The rest, who was compared with whom and could not be told
apart, stands below, in the order in which it was found.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

MOST = 5
REST_TITLE = "Everything that was compared"
# What says that nothing was found answers no question.
UNDECIDED = re.compile(r"\bnot told apart\b|\bdo not show where\b")
ENDS = re.compile(r"[.?!](?=\s+[A-Z]|$)")


def lead_and_rest(answer: Sequence[str], found: Sequence[str]) -> tuple[list[str], list[str]]:
    """At most five sentences, those of the verdict before the experiment's own; and the rest.

    An item may be several sentences. One that is longer than all leads alone, not cut.
    """
    lead: list[str] = []
    rest: list[str] = []
    room = MOST
    for item in (*answer, *found):
        count = len(ENDS.findall(item))
        if UNDECIDED.search(item) and item not in answer:
            rest.append(item)
        elif count <= room or not lead:
            lead.append(item)
            room -= count
        else:
            rest.append(item)
    return lead, rest
