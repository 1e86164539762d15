"""The receipt of a purge, as a page to print."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nearcache.nginx.keys.groups import split_key
from nearcache.nginx.purge.learn import ITSELF, Resolved
from nearcache.nginx.purge.proof import Proof
from nearcache.nginx.purge.receipt import Receipt
from nearcache.report.model import Page, Part, Table
from nearcache.report.words import count, duration, percent, plural, printable, size

SHOWN = 20
SHOWN_REFUSALS = 5
MARKS = {"new": "new", "old": "OLD", "unknown": "?"}


def receipt_page(
    receipts: Sequence[Receipt], chosen: Sequence[Resolved] = (), proofs: Sequence[Proof] = ()
) -> Page:
    """One receipt, or two of a purge that was done again."""
    return Page(
        title=f"purge of {receipts[0].root}",
        sentences=[_sentence(receipt, again) for again, receipt in enumerate(receipts)],
        parts=[*_parts(receipts), *_proved(proofs)],
        notes=[*_keys(chosen), *(note for receipt in receipts for note in _notes(receipt))],
    )


def _sentence(receipt: Receipt, again: int) -> str:
    word = {"soft": "expired", "hard": "unlinked"}[receipt.how]
    verb = f"would be {word}" if receipt.dry_run else word
    where = "with a scan" if receipt.census else "without a scan"
    if receipt.refusals and not receipt.files:
        what = plural(receipt.refusals, "file")
        return f"Nothing was purged in {_took(receipt.seconds)}, {where}: {what} refused."
    if not receipt.files:
        nothing = "Once more: nothing" if again else "Nothing"
        return f"{nothing} to purge was found in {_took(receipt.seconds)}, {where}."
    done = f"{plural(receipt.files, 'file')} ({size(receipt.bytes)}) {verb}"
    when = "Once more: " if again else ""
    return f"{when}{done} in {_took(receipt.seconds)}, {where}."


def _took(seconds: float) -> str:
    return f"{1000 * seconds:.2f} ms" if seconds < 0.1 else duration(seconds)


def _parts(receipts: Sequence[Receipt]) -> Iterator[Part]:
    lines = [line for receipt in receipts for line in receipt.purged]
    if not lines:
        return
    whole = sum(receipt.counts.total() for receipt in receipts)
    more = f"... and {count(whole - SHOWN)} more." if whole > SHOWN else ""
    beginnings = {split_key(line.key)[0] for line in lines[:SHOWN]}
    begin = beginnings.pop() if len(beginnings) == 1 else ""
    yield Table(
        title=f"Files; keys begin with {begin}" if begin else "Files",
        head=("key", "done", "stored", "would last", "size"),
        rows=[
            (
                _short(line.key, begin) + (" (variant)" if line.variant else ""),
                line.action,
                f"{duration(max(0.0, line.age_s))} ago",
                duration(line.left_s) if line.left_s > 0 else "expired",
                size(line.size),
            )
            for line in lines[:SHOWN]
        ],
        text_columns=(0, 1),
        note=more,
    )


def _proved(proofs: Sequence[Proof]) -> Iterator[Part]:
    if proofs:
        yield Table(
            title="Asked nginx afterwards",
            head=("key", "is", "says", "because"),
            rows=[
                (_asked(proof), MARKS[proof.verdict], proof.cache or "-", proof.said)
                for proof in proofs
            ],
            text_columns=(0, 1, 2, 3),
        )


def _short(key: str, begin: str) -> str:
    return key.removeprefix(begin) or key


def _asked(proof: Proof) -> str:
    sent = ", ".join(f"{name}: {value}" for name, value in proof.sent.items())
    key = split_key(proof.key)[1] or proof.key
    return f"{key} ({sent})" if sent else key


def _notes(receipt: Receipt) -> Iterator[str]:
    for why in receipt.refused[:SHOWN_REFUSALS]:
        yield f"refused: {why}"
    if receipt.refusals > SHOWN_REFUSALS:
        yield f"... and {count(receipt.refusals - SHOWN_REFUSALS)} more refused"
    if receipt.counts["vanished"]:
        yield f"{plural(receipt.counts['vanished'], 'file')} vanished before it could be purged"
    if receipt.over and not receipt.files:
        yield f"{plural(receipt.over, 'file')} of these keys had expired already"
    if not receipt.complete:
        yield "the time was over before all files were looked at: this is NOT complete"
    if receipt.census:
        looked = plural(receipt.census.entries, "entry", "entries")
        foreign = receipt.census.foreign.total()
        yield f"{looked} looked at" + (f", {plural(foreign, 'file')} of others" if foreign else "")


def _keys(chosen: Sequence[Resolved]) -> Iterator[str]:
    for each in chosen[:SHOWN]:
        key = printable(each.key.decode(errors="backslashreplace"))
        if not each.exists:
            yield f"{each.url} would be {key}, which is not stored"
        elif each.template != ITSELF:
            yield f"{each.url} is {key}, as {each.template}"


def learned_note(sampled: int, rates: dict[str, float], template: str) -> str:
    """How sure a learned shape is; of the fixed beginning of some keys only that it was learned."""
    known = rates.get(template)
    rate = "" if known is None else f" fits {percent(known)}"
    return f"the shape of keys was learned from {plural(sampled, 'key')}: {template}{rate}"
