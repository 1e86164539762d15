"""The directives of an nginx configuration as one tree, each with its file and line.

crossplane reads each file. Includes are put in their places here and not by it, because
a file may be included in several places, because the files may be those of a dump
(``nginx -T``) which are not on this disk, and because one that may not be read is to be
counted and told, and the rest read.

Not here: what directives mean (``configuration.py``).
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from glob import glob
from pathlib import Path
from typing import Any, Protocol

from nearcache.errors import NginxError

# The line that `nginx -T` writes before each file.
DUMPED_FILE = re.compile(r"^# configuration file (.+):\n", re.MULTILINE)
DEEPEST_INCLUDE = 32
_MAGIC = re.compile(r"[*?\[]")
# As ngx_conf_read_token: every other backslash stays, so that regular expressions need no two.
_ESCAPES = {r"\"": '"', r"\'": "'", r"\\": "\\", r"\t": "\t", r"\r": "\r", r"\n": "\n"}
_ESCAPED = re.compile(r"""\\["'\\trn]""")


@dataclass(frozen=True, eq=False)
class Directive:
    """One directive as it is written. ``block`` is None where it ends with a semicolon."""

    name: str
    args: tuple[str, ...]
    file: str
    line: int
    block: tuple[Directive, ...] | None = field(default=None, repr=False)

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def text(self) -> str:
        """Its arguments with a space between."""
        return " ".join(self.args)

    def all(self, name: str) -> list[Directive]:
        """The directives of this name in its block, not in blocks below."""
        return [directive for directive in self.block or () if directive.name == name]

    def walk(self) -> Iterator[Directive]:
        """Itself and everything below."""
        yield self
        for directive in self.block or ():
            yield from directive.walk()

    def __str__(self) -> str:
        return " ".join((self.name, *self.args))


@dataclass(frozen=True)
class Tree:
    """A whole configuration, includes in place."""

    main: Directive  # its block is the outermost level; no name
    files: tuple[str, ...]
    comments: Mapping[tuple[str, int], str]  # (file, line): what stands after "#"
    troubles: tuple[str, ...]  # what was not read, and why

    def first(self, name: str) -> Directive | None:
        return next(iter(self.main.all(name)), None)


def read_tree(where: str | Path) -> Tree:
    """The tree of a configuration file, or of a file with the output of ``nginx -T``."""
    path = Path(where)
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        raise NginxError(
            f"{path} cannot be read ({error.strerror}); give nginx.conf or the output of nginx -T"
        ) from error
    if DUMPED_FILE.search(text):
        return parse_tree(text)
    return _Reader(_Disk()).read(str(path))


def parse_tree(text: str, name: str = "(text)") -> Tree:
    """The tree of a text: the output of ``nginx -T``, or one file without its includes."""
    pieces = DUMPED_FILE.split(text)
    files = dict(zip(pieces[1::2], pieces[2::2], strict=True)) or {name: text}
    return _Reader(_Dump(files)).read(next(iter(files)))


class _Source(Protocol):
    """Where files come from."""

    def matching(self, pattern: str) -> list[str]:
        """Names for the argument of ``include`` if it has wildcards."""

    def parse(self, name: str) -> dict[str, Any]:
        """What crossplane makes of one file. Raises OSError."""


class _Disk:
    def matching(self, pattern: str) -> list[str]:
        return sorted(glob(pattern))

    def parse(self, name: str) -> dict[str, Any]:
        with open(name, "rb"):  # so that what is wrong with it is an OSError
            return _crossplane(name)


@dataclass(frozen=True)
class _Dump:
    files: Mapping[str, str]

    def matching(self, pattern: str) -> list[str]:
        parts = pattern.count("/")  # a wildcard of a file name matches no slash
        return sorted(n for n in self.files if fnmatchcase(n, pattern) and n.count("/") == parts)

    def parse(self, name: str) -> dict[str, Any]:
        if name not in self.files:
            raise FileNotFoundError(2, "it is not in what was given", name)
        with tempfile.NamedTemporaryFile("w", suffix=".conf", encoding="utf-8") as file:
            file.write(self.files[name])
            file.flush()
            return _crossplane(file.name)


def _crossplane(path: str) -> dict[str, Any]:
    crossplane = _imported()
    # Which directive may stand where is nginx's to say: it has moved since crossplane's list.
    result: dict[str, Any] = crossplane.parse(path, single=True, comments=True, check_ctx=False)
    result["errors"] = _unterminated(crossplane, path) or result["errors"]
    return result


def _unterminated(crossplane: Any, path: str) -> list[dict[str, Any]]:
    """A ``}`` where a ``;`` is missing: crossplane sees it only where it knows the level."""
    before = ";"
    with suppress(crossplane.errors.NgxParserBaseException):  # the parser has told it already
        for word, line, quoted in crossplane.lex(path):
            if word == "}" and not quoted and before not in {";", "{", "}"}:
                return [{"file": path, "line": line, "error": 'unexpected "}"'}]
            if quoted or not word.startswith("#"):
                before = '"' if quoted else word
    return []


@cache
def _imported() -> Any:
    try:
        import crossplane
    except ImportError as error:
        raise NginxError(
            'reading a configuration needs crossplane: pip install "nearcache[nginx]"'
        ) from error
    return crossplane


@dataclass
class _Reader:
    source: _Source
    files: list[str] = field(default_factory=list)
    comments: dict[tuple[str, int], str] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)
    prefix: str = ""

    def read(self, name: str) -> Tree:
        self.prefix = os.path.dirname(name)  # of every relative include, as in nginx
        try:
            block = tuple(self._file(name, ()))
        except OSError as error:
            raise NginxError(f"{name} cannot be read: {error.strerror}") from error
        main = Directive("", (), name, 1, block)
        return Tree(main, tuple(self.files), self.comments, tuple(self.troubles))

    def _file(self, name: str, inside: Sequence[str]) -> Iterator[Directive]:
        if name in inside or len(inside) > DEEPEST_INCLUDE:
            raise NginxError(f"{name} includes itself: {' -> '.join((*inside, name))}")
        payload = self.source.parse(name)
        if name not in self.files:
            self.files.append(name)
        self._judge(name, payload)
        return self._block(payload["config"][0]["parsed"], name, (*inside, name))

    def _judge(self, name: str, payload: Mapping[str, Any]) -> None:
        """What is no syntax ends it; what crossplane only does not know is told."""
        for error in payload["errors"]:
            # It fails without a word where the text ends inside a directive.
            said = str(error["error"]).split(f" in {error['file']}")[0] or "unexpected end of file"
            place = f"{name}:{error['line']}" if error["line"] else name
            if "number of arguments" in said or "must be" in said:
                self.troubles.append(f"{place}: {said}; this line was left out")
            else:
                raise NginxError(f"{place}: {said}; `nginx -t` says more")

    def _block(
        self, parsed: Sequence[Mapping[str, Any]], name: str, inside: Sequence[str]
    ) -> Iterator[Directive]:
        for statement in parsed:
            directive, line = str(statement["directive"]), int(statement["line"])
            if directive == "#":
                self.comments[name, line] = str(statement["comment"]).strip()
                continue
            args = tuple(_ESCAPED.sub(lambda m: _ESCAPES[m[0]], arg) for arg in statement["args"])
            if directive == "include" and len(args) == 1:
                yield from self._include(args[0], f"{name}:{line}", inside)
                continue
            block = statement.get("block")
            below = None if block is None else tuple(self._block(block, name, inside))
            yield Directive(directive, args, name, line, below)

    def _include(self, argument: str, place: str, inside: Sequence[str]) -> Iterator[Directive]:
        pattern = os.path.join(self.prefix, argument)
        names = self.source.matching(pattern) if _MAGIC.search(pattern) else [pattern]
        for name in names:
            try:
                yield from self._file(name, inside)
            except OSError as error:
                self.troubles.append(f"{place}: include {name} was not read: {error.strerror}")
