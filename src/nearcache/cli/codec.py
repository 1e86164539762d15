"""``nearcache codec``: choose how values become bytes, by your own values."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.progress import Progress, track

from nearcache.base.options import COMPRESSORS, KIB, SERIALIZERS, human_bytes, size_bytes
from nearcache.cli.site import cache_of_site
from nearcache.errors import EngineError, OptionError
from nearcache.report.model import Table
from nearcache.report.terminal import print_table

Command = TypeVar("Command", bound=Callable[..., Any])

MAX_KEYS = 1_000_000  # of a live cache to choose from
KEYS_AT_ONCE = 100

progress_console = Console(stderr=True)


def sample_options(default_samples: int) -> Callable[[Command], Command]:
    """Where sample values come from."""

    def decorate(command: Command) -> Command:
        for option in (
            click.option(
                "--samples",
                type=click.IntRange(1),
                default=default_samples,
                show_default=True,
                help="Take at most so many values, at random.",
            ),
            click.option("--alias", help="Take the values of this cache of the Django settings."),
            click.option(
                "--settings",
                metavar="MODULE",
                help="The Django settings for --alias; else DJANGO_SETTINGS_MODULE.",
            ),
            click.argument("source", required=False, type=click.Path(exists=True, path_type=Path)),
        ):
            command = option(command)
        return command

    return decorate


def _size(_ctx: click.Context, _param: click.Parameter, value: str) -> int:
    try:
        return size_bytes(value, KIB, 16 * KIB * KIB)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _names(known: Sequence[str]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    def split(_ctx: click.Context, _param: click.Parameter, value: str) -> list[str]:
        names = [name.strip() for name in value.split(",") if name.strip()]
        for name in names:
            if name not in known:
                raise click.BadParameter(f"{name!r} is not one of {', '.join(known)}")
        return names or list(known)

    return split


@click.group()
def codec() -> None:
    """Choose how values become bytes: serializer, compressor, dictionary.

    SOURCE is where sample values are: a directory of files, one value each, or a file with
    a JSON value in each line. Or take them from a cache, also another backend's, if it
    can list its keys: --settings and --alias.
    """


@codec.command()
@click.option(
    "--out",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write the dictionary to.",
)
@sample_options(default_samples=10_000)
@click.option("--size", default="64KB", show_default=True, callback=_size, help="At most so large.")
@click.option(
    "--level",
    type=click.IntRange(COMPRESSORS["zstd"].levels[0], COMPRESSORS["zstd"].levels[-1]),
    default=COMPRESSORS["zstd"].default,
    show_default=True,
    help="The zstd level to measure with.",
)
@click.option(
    "--serializer",
    type=click.Choice(list(SERIALIZERS)),
    help="What makes bytes of the values. [default: that of the cache, else auto]",
)
@click.option("--force", is_flag=True, help="Overwrite the file.")
def train(
    out: Path,
    source: Path | None,
    settings: str | None,
    alias: str | None,
    samples: int,
    size: int,
    level: int,
    serializer: str | None,
    force: bool,
) -> None:
    """Train a zstd dictionary, which makes small values a few times smaller.

    Prints what it saves on values it was not trained with, and the OPTIONS to paste.
    """
    from nearcache.codec.training import train as train_dictionary

    if out.exists() and not force:
        raise OptionError("codec train", "--out", f"{out} exists; --force overwrites it")
    values, used = _values(source, settings, alias, samples)
    payloads = _payloads(values, serializer or used)
    with _busy(f"training with {len(payloads)} samples"):
        trained = train_dictionary(payloads, size, level)
    try:
        out.write_bytes(trained.dictionary)
    except OSError as error:
        raise EngineError(f"{out}: {error.strerror}") from error
    print_table(_savings([*trained.classes, trained.total]))
    click.echo(
        f"{out}: {human_bytes(len(trained.dictionary))}, number {trained.dictionary_id};"
        " sizes are of values it was not trained with"
    )
    options: dict[str, Any] = {"compressor": "zstd", "compress_dictionary": str(out.resolve())}
    if level != COMPRESSORS["zstd"].default:
        options["compress_level"] = level
    if (serializer or used) != "auto":
        options["serializer"] = serializer or used
    click.echo(f'"OPTIONS": {json.dumps(options)}')


@codec.command()
@sample_options(default_samples=200)
@click.option(
    "--serializers",
    metavar="A,B",
    default="",
    callback=_names(list(SERIALIZERS)),
    help="Only these.",
)
@click.option(
    "--compressors",
    metavar="A,B",
    default="",
    callback=_names(list(COMPRESSORS)),
    help="Only these.",
)
@click.option(
    "--dictionary",
    type=click.Path(exists=True, dir_okay=False),
    help="Also zstd with this dictionary.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")
def compare(
    source: Path | None,
    settings: str | None,
    alias: str | None,
    samples: int,
    serializers: list[str],
    compressors: list[str],
    dictionary: str | None,
    as_json: bool,
) -> None:
    """Measure serializers and compressors: size and speed on your values.

    Every value is compressed, however small. Times are of one process with nothing else to
    do; `nearcache lab` measures whole caches.
    """
    from dataclasses import asdict

    from nearcache.codec.comparing import compare as compare_codecs

    values, _ = _values(source, settings, alias, samples)
    names = [*compressors, "zstd+dict"] if dictionary else compressors
    rows = list(
        _tracked(
            compare_codecs(values, serializers, names, (dictionary,) if dictionary else ()),
            "measuring",
            len(serializers) * len(names),
        )
    )
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows], indent=2))
        return
    print_table(_comparison(rows, len(values)))
    click.echo(f"{len(values)} values; each compressed, however small")


# -- samples -------------------------------------------------------------------------------


def _values(
    source: Path | None, settings: str | None, alias: str | None, samples: int
) -> tuple[list[Any], str]:
    """The sample values, and the serializer of the cache they are from."""
    if source is not None and (settings or alias):
        raise click.UsageError("give SOURCE, or --settings and --alias, not both")
    if source is None:
        if not (settings or alias):
            raise click.UsageError("give SOURCE, or --settings and --alias")
        values, used = _from_cache(settings, alias or "default", samples)
    else:
        values = list(_from_directory(source) if source.is_dir() else _from_lines(source))
        used = "auto"
    if not values:
        raise OptionError("codec", "SOURCE", "has no values")
    return random.Random(0).sample(values, min(samples, len(values))), used


def _from_directory(source: Path) -> Iterator[str | bytes]:
    paths = sorted(path for path in source.rglob("*") if path.is_file())
    for path in _tracked(paths, "reading", len(paths)):
        raw = path.read_bytes()
        try:
            yield raw.decode()
        except UnicodeDecodeError:
            yield raw


def _from_lines(source: Path) -> Iterator[Any]:
    for number, line in enumerate(source.read_bytes().splitlines(), start=1):
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError as error:
                raise OptionError(
                    "codec", "SOURCE", f"line {number} is no JSON: {error}"
                ) from error


def _from_cache(settings: str | None, alias: str, samples: int) -> tuple[list[Any], str]:
    cache = cache_of_site(settings, alias)
    if not hasattr(cache, "iter_keys"):
        raise OptionError("CACHES", alias, f"is a {type(cache).__name__}, which lists no keys")
    keys = list(islice(cache.iter_keys("*"), MAX_KEYS))
    chosen = random.Random(0).sample(keys, min(samples, len(keys)))
    chunks = [chosen[at : at + KEYS_AT_ONCE] for at in range(0, len(chosen), KEYS_AT_ONCE)]
    values: list[Any] = []
    for chunk in _tracked(chunks, "reading", len(chunks)):
        values += cache.get_many(chunk).values()
    used = getattr(getattr(cache, "options", None), "serializer", "auto")
    return values, str(used)


def _payloads(values: Sequence[Any], serializer: str) -> list[bytes]:
    """What a compressor would get of each value; says how many the serializer does not take."""
    from nearcache.codec import HeaderCodec, Unencodable, make_codec

    maker = make_codec(serializer)
    assert isinstance(maker, HeaderCodec)
    payloads, refused = [], 0
    for value in values:
        try:
            payloads.append(maker.payload(value)[1])
        except Unencodable:
            refused += 1
    if refused:
        click.echo(f"{refused} of {len(values)} values are not for {serializer!r}", err=True)
    return payloads


# -- what is seen --------------------------------------------------------------------------


def _tracked(items: Iterable[Any], what: str, total: int) -> Iterable[Any]:
    if not progress_console.is_terminal:
        return items
    return track(items, what, total=total, console=progress_console, transient=True)


@contextmanager
def _busy(what: str) -> Iterator[None]:
    if not progress_console.is_terminal:
        yield
        return
    with Progress(console=progress_console, transient=True) as progress:
        progress.add_task(what, total=None)
        yield


def _savings(rows: Sequence[Any]) -> Table:
    return Table(
        "",
        ["values", "samples", "raw", "zstd", "with dictionary", "saved"],
        [
            [
                "all" if row is rows[-1] else row.name,
                str(row.samples),
                human_bytes(row.raw_bytes),
                _share(row.plain_bytes, row.raw_bytes),
                _share(row.trained_bytes, row.raw_bytes),
                human_bytes(row.plain_bytes - row.trained_bytes),
            ]
            for row in rows
        ],
    )


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def _comparison(rows: Sequence[Any], values: int) -> Table:
    shown = []
    for row in rows:
        measured = (f"{row.mean_bytes:.0f}", f"{row.encode_us:.2f}", f"{row.decode_us:.2f}")
        shown.append(
            [
                row.serializer,
                row.compressor,
                *(measured if row.taken else ("-", "-", "-")),
                _all_or(row.taken, values),
                _all_or(row.same, row.taken),
            ]
        )
    head = ["serializer", "compressor", "bytes", "encode us", "decode us", "taken", "same"]
    return Table("", head, shown, text_columns=(0, 1))


def _all_or(count: int, whole: int) -> str:
    return "all" if count == whole and whole else str(count)
