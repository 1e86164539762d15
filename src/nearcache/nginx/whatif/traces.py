"""A trace to replay, for a log of a certain format. Not here: replaying it (``forecast.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from nearcache.nginx.whatif.rules import Today

if TYPE_CHECKING:
    from nearcache._core import NginxTrace
    from nearcache.nginx.config.read.site import Site


def open_trace(
    log_format: str,
    today: Today,
    site: Site,
    *,
    key: str | None = None,
    sample_by: str = "",
    max_requests: int,
) -> NginxTrace:
    """One that is to be fed.

    Args:
        log_format: the text of a ``log_format``.
        key: the variable that holds the key, without $; that of the site if there is none.
        sample_by: as `NginxTrace` takes it.

    Raises NginxError if the format, a location or a rule cannot be used.
    """
    from nearcache._core import NginxTrace

    return NginxTrace(
        log_format,
        key=key or site.key_variable,
        locations=today.locations,
        valid=[(place.valid, place.ignore_headers) for place in today.places],
        sample_by=sample_by,
        max_requests=max_requests,
        key_parts=site.key_parts,
    )


def with_locations(today: Today, locations: Sequence[tuple[str, str]]) -> Today:
    """These, which begin with today's: of more than there are rules for, the rules of the rest."""
    more = len(locations) - len(today.locations)
    places = (*today.places, *today.places[-1:] * more)
    return replace(today, locations=tuple(locations), places=places)
