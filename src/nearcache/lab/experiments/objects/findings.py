"""S3 beside caches: requests, distance, and what the article suspected."""

from __future__ import annotations

from nearcache.lab.base.model import NO_PAYLOAD
from nearcache.lab.experiments.objects.arm import MAKING, REQUESTS
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.judging.reading import cell_of, compared, measure_of, point_of
from nearcache.lab.judging.words import TO, beside
from nearcache.lab.results.sample import Entry
from nearcache.lab.statistics.stats import Effect, Verdict
from nearcache.lab.views import Views
from nearcache.lab.workloads.small_dict import SmallDict
from nearcache.report.model import Chart, Line, Table
from nearcache.report.units import NOTHING, quantity, short

PAYLOAD = SmallDict.letter
OPERATIONS = ("set", "get", "delete")
ARTICLES_TABLE = {"set": (198, 231), "get": (120, 148)}


def views(analysis: Analysis) -> Views:
    parts: list[Table | Chart] = [_requests(analysis)]
    chart = _distances(analysis)
    if chart.lines:
        parts.append(chart)
    sentences = [
        *_which_server(analysis),
        *_seeds_claim(analysis),
        *_suspects(analysis),
        *_culling(analysis),
        *_round_trips(analysis),
        *_first(analysis),
    ]
    return Views(sentences=sentences, parts=parts)


def _requests(analysis: Analysis) -> Table:
    rows = [[entry.name, *_request_row(analysis, entry.name)] for entry in analysis.contenders]
    return Table(
        title="Requests per operation, and what a new client costs before its first answer",
        head=["", *OPERATIONS, "client and first get", "of which the client"],
        rows=rows,
        note="Counted by the server (Memcached, Redis) or where boto3 sends them, retries too.",
    )


def _request_row(analysis: Analysis, name: str) -> list[str]:
    counts = [
        measure_of(cell_of(analysis, name, operation, PAYLOAD), REQUESTS)
        for operation in OPERATIONS
    ]
    first = point_of(analysis, name, "first", NO_PAYLOAD)
    making = measure_of(cell_of(analysis, name, "first", NO_PAYLOAD), MAKING)
    return [
        *(NOTHING if count is None else short(count) for count in counts),
        *(NOTHING if cost is None else quantity(cost, "ns") for cost in (first, making)),
    ]


def _distances(analysis: Analysis) -> Chart:
    lines = []
    for box in ("s3", "pylibmc"):
        for operation in ("set", "get"):
            points = [
                (distance, cost / 1e6)
                for entry in analysis.contenders
                if entry.options["box"] == box
                and (cost := point_of(analysis, entry.name, operation, PAYLOAD)) is not None
                for distance in [float(entry.options["round_trip_ms"])]
            ]
            if len(points) > 1:
                family = "S3" if box == "s3" else "Memcached"
                name = f"{operation} by {box}"
                lines.append(Line(name=name, points=sorted(points), family=family))
    return Chart(
        title="The same servers further away",
        x_title="round trip that was added, ms",
        y_title="ms",
        lines=lines,
    )


def _which_server(analysis: Analysis) -> list[str]:
    for entry in analysis.contenders:
        if "S3 server" in entry.facts:
            text = f"S3 here is {entry.facts['S3 server']} on this host, its files on "
            return [f"{text}{entry.facts['its files lie on']}; it is not Amazon's."]
    return []


def _seeds_claim(analysis: Analysis) -> list[str]:
    words = []
    for operation, (low, high) in ARTICLES_TABLE.items():
        found = compared(analysis, "s3-seed", "pylibmc", operation, PAYLOAD)
        if found:
            words.append(
                f"a {operation} in S3 {says(*found, 'pylibmc')} "
                f"(the article's table: {low}{TO}{high})"
            )
    if not words:
        return []
    return [f"With both on one host {' and '.join(words)}; the article's text says 10."]


def _suspects(analysis: Analysis) -> list[str]:
    """A SHA-1 and a second pickle, against the key itself and eight bytes."""
    found = compared(analysis, "s3-seed", "s3", "set", PAYLOAD)
    if found is None:
        return []
    text = "The article suspected the SHA-1 of the name and the pickled expiry: a set with them"
    return [f"{text} {says(*found, 'a set without')}."]


def _culling(analysis: Analysis) -> list[str]:
    found = compared(analysis, "s3-culling", "s3-seed", "set", PAYLOAD)
    count = measure_of(cell_of(analysis, "s3-culling", "set", PAYLOAD), REQUESTS)
    if found is None or count is None:
        return []
    text = f"With MAX_ENTRIES a set makes {short(count)} requests, because it lists the bucket"
    return [f"{text} first, and {says(*found, 'one without')}."]


def _round_trips(analysis: Analysis) -> list[str]:
    """How many round trips an operation waits for: what a millisecond of distance adds to it."""
    found = []
    for box in ("s3", "pylibmc"):
        far = _furthest(analysis, box)
        if far is None:
            continue
        for operation in ("set", "get"):
            near_ns = point_of(analysis, box, operation, PAYLOAD)
            far_ns = point_of(analysis, far.name, operation, PAYLOAD)
            if near_ns is not None and far_ns is not None:
                trips = (far_ns - near_ns) / (far.options["round_trip_ms"] * 1e6)
                found.append(f"{operation} by {box} {trips:.1f}")
    if not found:
        return []
    text = f"Round trips that an operation waits for, by what distance adds: {', '.join(found)}"
    return [f"{text}. Amazon's S3 adds its own time to that."]


def _first(analysis: Analysis) -> list[str]:
    costs = {
        name: point_of(analysis, name, "first", NO_PAYLOAD) for name in ("s3", "pylibmc", "redis")
    }
    known = [f"{name} {quantity(cost, 'ns')}" for name, cost in costs.items() if cost is not None]
    if not known:
        return []
    return [f"A client that is made anew for one get takes {', '.join(known)}: keep it."]


def says(effect: Effect, verdict: Verdict, other: str) -> str:
    """As the predicate of a sentence: "took 2 times the time of X", "was the same as X"."""
    return f"{'took' if verdict == 'slower' else 'was'} {beside(effect, verdict, other)}"


def _furthest(analysis: Analysis, box: str) -> Entry | None:
    far = [
        entry
        for entry in analysis.contenders
        if entry.options["box"] == box and entry.options["round_trip_ms"]
    ]
    return max(far, key=lambda entry: int(entry.options["round_trip_ms"]), default=None)
