"""``nearcache nginx purge``: expire or unlink what a cache holds of a URL, with a receipt."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO

import click

from nearcache.cli.nginx.common import (
    caches_option,
    levels_option,
    print_json,
    print_page,
    template_option,
)
from nearcache.errors import NginxError

if TYPE_CHECKING:
    from nearcache.nginx.cachedir.directory import CacheDir
    from nearcache.nginx.purge.learn import Resolved
    from nearcache.nginx.purge.proof import Proof, Prover
    from nearcache.nginx.purge.receipt import Purged, Receipt
    from nearcache.nginx.purge.targets import Targets
    from nearcache.report.model import Page

PURGED, NOTHING, REFUSED = 0, 1, 2


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a user asked for: the options of the command."""

    caches: tuple[Path, ...]
    words: tuple[str, ...]
    key: tuple[str, ...]
    match: str | None
    regex: str | None
    template: str | None
    config: str | None
    levels: str | None
    hard: bool
    forbid_stale: bool
    thorough: bool
    yes: bool
    dry_run: bool
    pace: float | None
    owner: str | None
    again_after: float | None
    prove: str | None
    receipt: Path | None
    as_json: bool

    @property
    def is_pattern(self) -> bool:
        return self.match is not None or self.regex is not None


@click.command()
@click.argument("words", nargs=-1, metavar="[URL|KEY]...")
@caches_option
@click.option("--key", multiple=True, help="A key as nginx has it; no URL is understood from it.")
@click.option("--match", metavar="GLOB", help="All keys like this, as '*/shop/*'.")
@click.option("--regex", metavar="RE", help="All keys in which this is found.")
@template_option
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(allow_dash=True),
    help="nginx.conf or the output of `nginx -T`: keys and levels are read there.",
)
@levels_option
@click.option("--hard", is_flag=True, help="Unlink files instead of expiring them in place.")
@click.option(
    "--forbid-stale",
    is_flag=True,
    help="Also end stale-while-revalidate and stale-if-error of the responses.",
)
@click.option("--thorough", is_flag=True, help="Look at all files, also if none can be a variant.")
@click.option("--dry-run", is_flag=True, help="Only say what would happen.")
@click.option("--yes", is_flag=True, help="Do it. [in a terminal: dry run without it]")
@click.option(
    "--pace", type=click.FloatRange(0, min_open=True), metavar="N", help="At most N files a second."
)
@click.option("--owner", metavar="USER", help="Whose files they must be. [who owns DIR]")
@click.option(
    "--again-after",
    type=click.FloatRange(0),
    metavar="S",
    help="Do it again after S seconds, for responses that were on their way.",
)
@click.option(
    "--prove",
    metavar="http://HOST",
    help="Then ask nginx there for what was purged, and see that it is new.",
)
@click.option(
    "--receipt",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Append each file to FILE as it is purged, as lines of JSON.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")
def purge(**given: Any) -> None:
    """Purge URLs or keys from the cache in a directory, all variants of them.

    Files are expired in place, so that nginx asks its upstream at the next request; with
    --hard they are unlinked. A URL becomes a key as the entries there, --config or --template
    say.

    Exits 0 if something was purged (or would be), 1 if nothing was found, 2 if it refused, or if
    --prove did not prove it.
    Run it as the user of nginx's workers, or as root.
    """
    order = _checked(Order(**given))
    with _Log(order) as log:
        done = [_done_in(path, order, log) for path in order.caches]
    _show(order, done)
    raise SystemExit(_exit_code(done))


@dataclass(frozen=True)
class Done:
    """What was done in one cache."""

    receipts: Sequence[Receipt] = ()
    chosen: Sequence[Resolved] = ()
    proofs: Sequence[Proof] = ()
    targets: Targets | None = None
    refused: str = ""


def _checked(order: Order) -> Order:
    """The order with its dry run decided; NginxError for options that make no sense together."""
    named = bool(order.words or order.key)
    if named == order.is_pattern:
        raise NginxError("name URLs or keys, or give --match or --regex: one of the two")
    if order.key and order.words:
        raise NginxError("give keys all with --key, or all as words")
    if order.config and (order.template or order.levels):
        raise NginxError("--config says what --template and --levels say; leave these out")
    if order.yes and order.dry_run:
        raise NginxError("--yes and --dry-run contradict each other")
    in_terminal = sys.stdin.isatty() or sys.stdout.isatty()
    if not (order.yes or order.dry_run or in_terminal):
        raise NginxError("nobody is here to ask: say --yes to purge, or --dry-run to look")
    return replace(order, dry_run=not order.yes)


def _done_in(path: Path, order: Order, log: _Log) -> Done:
    """What one cache refuses as a whole does not keep the others from being purged."""
    from nearcache.nginx.cachedir.directory import CacheDir
    from nearcache.nginx.purge.targets import refuse_what_is_no_cache

    try:
        with CacheDir(path, follow=False) as directory:
            if refuse_what_is_no_cache(directory):
                return _purge(order, directory, log)
    except NginxError as error:
        if len(order.caches) == 1:
            raise
        return Done(refused=f"{path}: {error}")
    click.echo(f"nothing found: {path} is empty", err=True)
    return Done()


def _purge(order: Order, directory: CacheDir, log: _Log) -> Done:
    from nearcache.nginx.cachedir.select import selected_by
    from nearcache.nginx.purge.purge import Purger

    targets = _targets(order, directory)
    chosen = _chosen(order, targets)
    prover = _prover(order, directory)
    purger = Purger(
        directory,
        how="hard" if order.hard else "soft",
        dry_run=order.dry_run,
        forbid_stale=order.forbid_stale,
        files_per_second=order.pace,
        owner=_user_id(order.owner),
        before=prover.remember if prover else None,
        each=log.add,
    )
    selects = selected_by(order.match, order.regex)

    def act() -> Receipt:
        if order.is_pattern:
            return purger.purge_where(selects)
        keys = [each.key for each in chosen]
        return purger.purge_keys(keys, targets.levels, thorough=order.thorough)

    receipts = [_interruptible(act, log)]
    if order.again_after is not None and not order.dry_run:
        purger.before = None
        time.sleep(order.again_after)
        receipts.append(_interruptible(act, log))
    log.close(receipts)
    proofs = prover.ask(receipts[0].began) if prover and not order.dry_run else []
    return Done(receipts, chosen, proofs, targets)


def _interruptible(act: Callable[[], Receipt], log: _Log) -> Receipt:
    try:
        return act()
    except KeyboardInterrupt:
        raise NginxError(
            f"interrupted when {log.lines} files were done; doing it again does the rest"
        ) from None


def _targets(order: Order, directory: CacheDir) -> Targets:
    from nearcache.nginx.keys.paths import parse_levels
    from nearcache.nginx.purge.targets import Targets, configured

    if order.config:
        from nearcache.nginx.config.read.configuration import read_configuration

        said = configured(read_configuration(order.config), directory.root)
        return Targets(
            directory, levels=said.levels, templates=said.templates, not_told=said.not_told
        )
    given = None if order.levels is None else parse_levels(order.levels)
    return Targets(directory, levels=given, templates=[order.template] if order.template else [])


def _chosen(order: Order, targets: Targets) -> list[Resolved]:
    from nearcache.nginx.purge.learn import ITSELF, Resolved

    if order.key:
        keys = [key.encode("utf-8", "surrogateescape") for key in order.key]
        return [Resolved(text, key, ITSELF, exists=True)
                for text, key in zip(order.key, keys, strict=True)]  # fmt: skip
    return [found for word in order.words for found in targets.of_word(word)]


def _prover(order: Order, directory: CacheDir) -> Prover | None:
    if order.prove is None:
        return None
    from urllib.parse import urlsplit

    from nearcache.nginx.purge.proof import Prover

    hosts = {urlsplit(word).netloc for word in order.words}
    return Prover(directory, order.prove, hosts.pop() if len(hosts) == 1 else None)


def _user_id(name: str | None) -> int | None:
    if name is None:
        return None
    if name.isdigit():
        return int(name)
    import pwd

    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise NginxError(f"--owner {name}: there is no such user here") from None


def _exit_code(done: Sequence[Done]) -> int:
    receipts = [receipt for each in done for receipt in each.receipts]
    is_bad = any(receipt.refusals or not receipt.complete for receipt in receipts)
    unproven = any(proof.verdict != "new" for each in done for proof in each.proofs)
    if is_bad or unproven or any(each.refused for each in done):
        return REFUSED
    return PURGED if any(receipt.files for receipt in receipts) else NOTHING


def _show(order: Order, done: Sequence[Done]) -> None:
    for each in done:
        if each.refused:
            click.echo(each.refused, err=True)
    if order.as_json:
        print_json({
            "verb": "purge",
            "schema": 1,
            "keys": [_as_json(key) for each in done for key in each.chosen],
            "receipts": [receipt.to_json() for each in done for receipt in each.receipts],
            "proofs": [asdict(proof) for each in done for proof in each.proofs],
        })  # fmt: skip
        return
    for each in done:
        if each.receipts:
            print_page(_page(order, each))


def _page(order: Order, done: Done) -> Page:
    from nearcache.nginx.purge.learn import ITSELF
    from nearcache.nginx.purge.page import learned_note, receipt_page

    page = receipt_page(done.receipts, done.chosen, done.proofs)
    notes = list(page.notes)
    if done.targets:
        notes += done.targets.notes
        if "learned" in vars(done.targets):  # it was needed
            learned = done.targets.learned
            used = [c.template for c in done.chosen if c.exists and c.template != ITSELF]
            notes += [
                learned_note(learned.sampled, learned.rates, each) for each in dict.fromkeys(used)
            ]
    missed = [each.url for each in done.chosen if "*" in each.url and not each.exists]
    notes += [_no_wildcard(url) for url in dict.fromkeys(missed)]
    if order.dry_run:
        notes.append("nothing was done: this is what --yes would do")
    return replace(page, notes=notes)


def _no_wildcard(url: str) -> str:
    from nearcache.nginx.keys.templates import split_url

    return f"the * of a URL stands for itself; all pages like it: --match '*{split_url(url).path}'"


def _as_json(each: Resolved) -> dict[str, Any]:
    key = each.key.decode(errors="backslashreplace")
    return {"url": each.url, "key": key, "template": each.template, "exists": each.exists}


class _Log:
    """``--receipt FILE``: each line is written before the next file is purged."""

    def __init__(self, order: Order) -> None:
        self.path = order.receipt
        self.order = order
        self.lines = 0
        self._file: TextIO | None = None

    def __enter__(self) -> Self:
        if self.path is None:
            return self
        inside = tuple(os.path.realpath(each) + os.sep for each in self.order.caches)
        if os.path.realpath(self.path).startswith(inside):
            raise NginxError(f"{self.path} lies in the cache, where nginx would delete it")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._file = os.fdopen(os.open(self.path, flags, 0o600), "w")
        except OSError as error:
            raise NginxError(f"--receipt {self.path}: {error.strerror}") from error
        return self

    def __exit__(self, *error: object) -> None:
        if self._file:
            self._file.close()

    def add(self, line: Purged) -> None:
        self.lines += 1
        self._append({"file": asdict(line)})

    def close(self, receipts: Sequence[Receipt]) -> None:
        """The sums; lines of files stand before them."""
        for receipt in receipts:
            facts = receipt.to_json()
            del facts["purged"]
            self._append({"receipt": facts})

    def _append(self, value: dict[str, Any]) -> None:
        if self._file:
            self._file.write(json.dumps(value) + "\n")
            self._file.flush()
