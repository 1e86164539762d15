"""Logs that are also kept for replays, for `misses`."""

from __future__ import annotations

from collections.abc import Sequence

from nearcache.cli.nginx.common import Reading, Request

MOST_REPLAYED = 2_000_000  # requests; beyond them keys are sampled


def keep_for_replays(
    reading: Reading,
    request: Request,
    key: str | None,
    locations: Sequence[tuple[str, str]],
    only: tuple[str, str] | None,
) -> None:
    """Has the lines of a reading kept, too; not if the configuration has no cache."""
    from nearcache.nginx.whatif.rules import Today, today_of
    from nearcache.nginx.whatif.traces import open_trace, with_locations

    configuration = request.configuration
    if configuration and not any(each.zone for each in configuration.locations):
        return
    today = today_of(configuration, request.host) if configuration else Today()
    reading.today = with_locations(today, locations)
    reading.trace = open_trace(
        reading.format.text, reading.today, reading.site,
        key=key, sample_by=request.replayed_keys or "", max_requests=MOST_REPLAYED,
    )  # fmt: skip
    reading.trace.only(
        since_us=request.since,
        until_us=request.until,
        host=request.host,
        location=locations.index(only) if only else None,
    )
