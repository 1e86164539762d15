"""An inspection of a cache directory, and the comparison of its bodies, as pages to print."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nearcache.nginx.inspect.bodies import Bodies, Evidence
from nearcache.nginx.inspect.inspection import Inspection
from nearcache.nginx.inspect.ram import MEGABYTE, keys_zone_bytes
from nearcache.nginx.inspect.tally import Spread
from nearcache.report.model import Page, Part, Points, Table
from nearcache.report.words import NOTHING, count, duration, percent, plural, ratio, size

SHARES = (("10 %", 0.1), ("half", 0.5), ("90 %", 0.9), ("99 %", 0.99))
TOP_GROUPS = 12
MUCH = 0.05  # of all pages


def inspection_page(seen: Inspection) -> Page:
    return Page(
        title=f"nginx cache {seen.root}",
        sentences=list(_sentences(seen)),
        parts=[*_summary(seen), *_parts(seen)],
        notes=list(_notes(seen)),
    )


def _sentences(seen: Inspection) -> Iterator[str]:
    if not seen.entries:
        what = "no entry that was asked for" if seen.census.entries else "no entry"
        yield f"{seen.root} holds {what}."
        return
    stale = percent(ratio(seen.expired, seen.entries))
    fate = "; none has expired." if not seen.expired else f", {stale} of them expired."
    yield f"{seen.root}: {plural(seen.entries, 'entry', 'entries')}, {size(seen.bytes)}{fate}"
    yield f"RAM: {seen.ram.sentence}."
    if seen.keyless:
        yield (
            f"{plural(seen.keyless, 'entry has', 'entries have')} an empty key: all URLs share it. "
            "uwsgi, fastcgi and scgi have no key of their own; set *_cache_key."
        )
    if seen.leaks:
        yield "Some entries look as if they were one person's; see below."


def _summary(seen: Inspection) -> Iterator[Part]:
    if not seen.entries:
        return
    zone = keys_zone_bytes(seen.census.entries)
    megabytes = max(1, -(-2 * zone // MEGABYTE))
    rows = [
        ("size of files", size(seen.bytes)),
        ("on the disk", size(seen.disk_bytes)),
        ("bodies", size(seen.body_bytes)),
        ("in RAM", _ram(seen)),
        ("read in lately and evicted again", _pressure(seen)),
        ("keys_zone needs", f"{size(zone)}; make it {megabytes}m"),
        ("expired, and still there", f"{count(seen.expired)} ({size(seen.expired_bytes)})"),
        ("variants (Vary)", count(seen.variants)),
        ("statuses", _counted(seen.statuses.most_common(5))),
        ("levels", _counted(seen.levels.most_common(3))),
        ("written by", _counted(seen.layouts.most_common(3))),
    ]
    yield Table(title="The directory", head=("", ""), rows=rows, text_columns=(0, 1))
    heads = ("", *(name for name, _ in SHARES), "least", "most")
    yield Table(
        title="Ages and sizes: so many entries have at most",
        head=heads,
        rows=[
            _spread("age", seen.ages, duration),
            _spread("time left", seen.left, duration),
            _spread("size", seen.sizes, size),
        ],
        note="Time left is that of entries which have not expired.",
    )


def _ram(seen: Inspection) -> str:
    ram = seen.ram
    if not ram.method or not ram.pages:
        return NOTHING
    return f"{percent(ram.resident / ram.pages)} of {count(ram.pages)} pages ({ram.method})"


def _pressure(seen: Inspection) -> str:
    lately = seen.ram.recently_evicted
    if lately is None:
        return NOTHING
    is_much = lately > MUCH * seen.ram.pages
    return f"{count(lately)} pages" + ("; the host has too little RAM for it" if is_much else "")


def _spread(name: str, spread: Spread, shown: Callable[[float | None], str]) -> tuple[str, ...]:
    if not spread.count:
        return (name, *[NOTHING] * (len(SHARES) + 2))
    middle = (shown(spread.quantile(share)) for _, share in SHARES)
    return (name, *middle, shown(spread.least), shown(spread.most))


def _counted(items: list[tuple[str, int]]) -> str:
    return ", ".join(f"{name}: {number:,}" for name, number in items)


def _parts(seen: Inspection) -> Iterator[Part]:
    if seen.leaks:
        rows = [(leak.what, count(leak.entries), leak.examples[0]) for leak in seen.leaks.values()]
        yield Table(
            title="Looks personal, and is served to everybody who asks",
            head=("why", "entries", "first key"),
            rows=rows,
            text_columns=(0, 2),
        )
    if seen.group_bytes.sums:
        groups = [
            (shape, count(seen.groups.sums.get(shape)), size(total), percent(total / seen.bytes))
            for shape, total in seen.group_bytes.top(TOP_GROUPS)
        ]
        yield Table(title="Where the bytes are", head=("URLs", "files", "size", ""), rows=groups)
    yield from _variants(seen)
    if seen.largest:
        rows = [
            (each.key, size(each.size), each.path) for each in sorted(seen.largest, reverse=True)
        ]
        yield Table(
            title="Largest", head=("key", "size", "file"), rows=rows[:5], text_columns=(0, 2)
        )


def _variants(seen: Inspection) -> Iterator[Part]:
    several = [(pair, files) for pair, files in seen.per_key.top(5) if files > 1]
    if not several:
        return
    sent = [(headers, count(files)) for headers, files in seen.sent.top(6)]
    causes = ", ".join(f"{vary} ({files:,} files)" for vary, files in seen.vary.top(3))
    yield Table(
        title="Keys with the most variants",
        head=("key", "files", "Vary"),
        rows=[(key, count(files), vary) for (key, vary), files in several],
        text_columns=(0, 2),
        note=f"What makes them: {causes}.",
    )
    yield Table(
        title="Request headers that lead to a variant",
        head=("sent", "files"),
        rows=sent,
        note="Found by trying what is usually sent, and proven by the name of the file.",
    )


def _notes(seen: Inspection) -> Iterator[str]:
    census, ram = seen.census, seen.ram
    if ram.method and ram.unknown:
        yield f"of {plural(ram.unknown, 'file')} the kernel does not tell what is in RAM"
    if ram.dirty:
        yield f"{count(ram.dirty)} pages in RAM are not written to the disk yet"
    if census.temporary:
        yield f"{plural(census.temporary, 'temporary file')}: being written now, or left over"
    if census.vanished:
        yield f"{plural(census.vanished, 'file')} vanished while it was looked at, as is normal"
    if census.unreadable:
        yield f"{plural(census.unreadable, 'file or directory', 'files or directories')} not read"
    for reason, number in census.foreign.most_common(5):
        yield f"{plural(number, 'file')} of others: {reason}"
    strange = seen.heads["http2"] + seen.heads["binary"]
    if strange:
        yield f"of {plural(strange, 'head')} in a binary form only the status is known, if that"
    if seen.per_key.unsure or seen.group_bytes.unsure:
        yield "there are very many keys: the smaller sums may be too small"
    yield f"read in {duration(seen.seconds)}, one page of each file; nothing was written"


def bodies_page(bodies: Bodies) -> Page:
    whole = plural(bodies.entries, "entry", "entries")
    sentences = [f"{whole}, {size(bodies.read_bytes)} of bodies read."]
    if bodies.duplicated:
        sentences.append(
            f"{plural(bodies.duplicated, 'body lies', 'bodies lie')} there under several keys; "
            f"stored once each, {size(bodies.spare_bytes)} would be free."
        )
    else:
        sentences.append("No body is stored under two keys: no rule for keys would help.")
    proposed = [each for each in bodies.evidence if each.is_proposed]
    if bodies.duplicated and not proposed:
        sentences.append("No rule for keys is proposed: nothing that is safe explains them.")
    return Page(
        title="Bodies stored several times",
        sentences=sentences,
        parts=list(_bodies_parts(bodies, proposed)),
        notes=[f"read in {duration(bodies.seconds)}; nothing was written"],
    )


def _bodies_parts(bodies: Bodies, proposed: list[Evidence]) -> Iterator[Part]:
    if bodies.evidence:
        yield Table(
            title="Rules for keys",
            head=("rule", "alike", "differ", "would free", ""),
            rows=[
                (
                    each.rule,
                    count(each.pages),
                    count(each.against),
                    size(each.spare_bytes),
                    "proposed" if each.is_proposed else "not safe",
                )
                for each in bodies.evidence
            ],
            text_columns=(0, 4),
            note=(
                "Pages whose spellings all have one body, and pages whose spellings differ. "
                "One that differs is enough against a rule."
            ),
        )
    if proposed:
        yield Points(title="Evidence", points=[_said(each) for each in proposed])
    together = bodies.together
    if together:
        verdict = "safe here" if together.is_proposed else "not safe together"
        yield Points(
            title="All of them",
            points=[f"{together.rule}: {verdict}, frees {size(together.spare_bytes)}"],
        )
    if bodies.largest:
        yield Table(
            title="Most stored again",
            head=("a key", "keys", "spare", "another key"),
            rows=[
                (each["examples"][0], count(each["keys"]), size(each["spare_bytes"]),
                 each["examples"][1])
                for each in bodies.largest[:5]
            ],
            text_columns=(0, 3),
        )  # fmt: skip


def _said(each: Evidence) -> str:
    one, other = each.example
    few = " Few pages: look at them before you believe it." if each.pages < 3 else ""
    return f"{each.rule}: {one} and {other} have the same body.{few}"
