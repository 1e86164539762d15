"""RESP, the protocol of Redis and Valkey: commands as bytes, replies as objects.

    pack                a command
    make_reader         a reader: hiredis's where it is installed, or :class:`PythonReader`
    ErrorReply          an error that the server replied; a reader returns it and raises nothing
    MORE                what ``gets`` returns while a part of the reply is missing

Both readers give the same objects: bytes, int, None, list, ErrorReply; with RESP3 also float,
bool, dict and set, and for pushes a subclass of list.

Source: the Redis serialization protocol specification, versions 2 and 3.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

from nearcache import _core

Parser = Literal["hiredis", "python"]


class ErrorReply(Exception):
    """An error that the server replied; ``code`` is its first word (``WRONGTYPE``, ``OOM``)."""

    # No `__init__`: hiredis makes these objects, and an interrupt must not come into that.
    @property
    def code(self) -> str:
        return str(self).partition(" ")[0]


class ProtocolError(Exception):
    """The bytes are no RESP, or announce more than a server may send: drop the connection."""


class _More:
    def __repr__(self) -> str:
        return "MORE"


MORE = _More()


class Reader(Protocol):
    """Takes bytes as they come, gives replies as they are complete. As ``hiredis.Reader`` does it.

    ``feed`` and ``gets`` may raise ProtocolError. The reader must not be used after that.
    """

    def feed(self, data: bytes, /) -> None: ...

    def gets(self) -> Any:
        """The next reply, or :data:`MORE`."""

    def has_data(self) -> bool:
        """True if the reader has bytes that ``gets`` has not returned yet."""


# ---- commands


pack = _core.pack
"""One command."""


# ---- replies


class Push(list[Any]):
    """What a RESP3 server sends unasked: no reply to any command."""


PUSHES: tuple[type, ...] = (Push,)
"""The types of pushes, of both readers."""

try:
    import hiredis
except ImportError:  # PythonReader is slower and needs no package
    hiredis = None  # type: ignore[assignment]
else:
    PUSHES += (getattr(hiredis, "PushNotification", Push),)


def make_reader(parser: Parser | None = None) -> Reader:
    """A new reader. None stands for hiredis where it is installed, and Python elsewhere.

    Raises :class:`ModuleNotFoundError` if hiredis was asked for and is not installed.
    """
    if parser == "python" or (parser is None and hiredis is None):
        return PythonReader()
    if hiredis is None:
        raise ModuleNotFoundError("parser 'hiredis' needs the package: pip install hiredis")
    reader: Reader = hiredis.Reader(
        protocolError=ProtocolError, replyError=ErrorReply, notEnoughData=MORE
    )
    return reader


MAX_BULK_BYTES = 1 << 30  # twice the default limit of a server
MAX_ITEMS = 1 << 27
MAX_DEPTH = 64
MAX_LINE_BYTES = 1 << 20

_OPENED = _More()


class PythonReader:
    """A reader without dependencies. It allocates for bytes that came, and for no announced length.

    So what no server sends is a ProtocolError, where hiredis waits, or takes gigabytes.
    """

    __slots__ = ("_at", "_buffer", "_need", "_stack")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0
        # The reader looks again when so many bytes are there. Without that, it would look a
        # thousand times at a value that comes in a thousand pieces.
        self._need = 0
        # The collections that miss items: [type byte, number of missing items, items].
        self._stack: list[list[Any]] = []

    def feed(self, data: bytes) -> None:
        if self._at:
            del self._buffer[: self._at]
            self._at = 0
        self._buffer += data

    def has_data(self) -> bool:
        return self._at < len(self._buffer)

    def gets(self) -> Any:
        while len(self._buffer) - self._at >= self._need:
            value = self._next()
            if value is MORE:
                return MORE
            if value is not _OPENED:
                value = self._put(value)
                if value is not _OPENED:
                    return value
        return MORE

    def _put(self, value: Any) -> Any:
        """Puts the value into its collection; the whole reply if it is complete now."""
        stack = self._stack
        while stack:
            frame = stack[-1]
            frame[2].append(value)
            frame[1] -= 1
            if frame[1]:
                return _OPENED
            value = _collected(stack.pop())
        return value

    def _next(self) -> Any:
        buffer, at = self._buffer, self._at
        end = buffer.find(b"\r\n", at)
        if end < 0:
            if len(buffer) - at > MAX_LINE_BYTES:
                raise ProtocolError("a line without an end")
            if bytes(buffer[at : at + 1]) not in _KINDS:  # garbage may have no line breaks
                raise _unknown(bytes(buffer[at : at + 1]))
            self._need = len(buffer) - at + 1
            return MORE
        kind, rest = bytes(buffer[at : at + 1]), bytes(buffer[at + 1 : end])
        if kind in _BULKS:
            return self._bulk(kind, rest, end + 2)
        self._at, self._need = end + 2, 1
        if kind in _COLLECTIONS:
            return self._open(kind, rest)
        scalar = _SCALARS.get(kind)
        if scalar is None:
            raise _unknown(kind)
        return scalar(rest)

    def _bulk(self, kind: bytes, rest: bytes, start: int) -> Any:
        length = _length(rest, MAX_BULK_BYTES)
        if length < 0:
            self._at, self._need = start, 1
            return None
        end = start + length
        if len(self._buffer) < end + 2:
            self._need = end + 2 - self._at
            return MORE
        with memoryview(self._buffer) as view:
            value = bytes(view[start:end])
        if self._buffer[end : end + 2] != b"\r\n":
            raise ProtocolError("a bulk string without an end")
        self._at, self._need = end + 2, 1
        return _BULKS[kind](value)

    def _open(self, kind: bytes, rest: bytes) -> Any:
        length = _length(rest, MAX_ITEMS)
        if length < 0:
            return None
        items = length * 2 if kind == b"%" else length
        frame = [kind, items, []]
        if not items:
            return _collected(frame)
        if len(self._stack) >= MAX_DEPTH:
            raise ProtocolError(f"nested deeper than {MAX_DEPTH}")
        self._stack.append(frame)
        return _OPENED


def _collected(frame: list[Any]) -> Any:
    kind, _, items = frame
    if kind == b"%":
        try:
            return dict(zip(items[::2], items[1::2], strict=True))
        except TypeError as error:
            raise ProtocolError("a map with a key that is a collection") from error
    return Push(items) if kind == b">" else items


def _length(rest: bytes, limit: int) -> int:
    length = _integer(rest)
    if not -1 <= length <= limit:
        raise ProtocolError(f"a length of {length}")
    return length


def _integer(rest: bytes) -> int:
    digits = rest[1:] if rest[:1] == b"-" else rest
    # int() takes spaces, underscores, and any number of digits as well.
    canonical = digits.isdigit() and (digits[0] != 0x30 or rest == b"0")
    if canonical and len(digits) < 20:
        number = int(rest)
        if -(1 << 63) <= number < 1 << 63:
            return number
    raise ProtocolError(f"{rest[:20]!r} is no integer")


def _plain(rest: bytes) -> bytes:
    if b"\r" in rest or b"\n" in rest:
        raise ProtocolError("a line break inside a simple string")
    return rest


def _error(rest: bytes) -> ErrorReply:
    return ErrorReply(_plain(rest).decode(errors="replace"))


def _null(rest: bytes) -> None:
    if rest:
        raise ProtocolError("a null with a value")


def _bool(rest: bytes) -> bool:
    if rest not in (b"t", b"f"):
        raise ProtocolError(f"{rest[:20]!r} is no boolean")
    return rest == b"t"


def _float(rest: bytes) -> float:
    if not rest.strip(b"-+.0123456789aefinEFINA") and rest[:1] != b"+":
        try:
            return float(rest)
        except ValueError:
            pass
    raise ProtocolError(f"{rest[:20]!r} is no double")


def _big(rest: bytes) -> bytes:
    # The digits, as hiredis gives them: a caller that wants a number calls int().
    if rest.removeprefix(b"-").strip(b"0123456789"):
        raise ProtocolError(f"{rest[:20]!r} is no big number")
    return rest


def _verbatim(value: bytes) -> bytes:
    if value[3:4] != b":":
        raise ProtocolError("a verbatim string without its format")
    return value[4:]


def _unknown(kind: bytes) -> ProtocolError:
    return ProtocolError(f"no reply begins with {kind!r}")


_SCALARS: dict[bytes, Any] = {
    b"+": _plain,
    b"-": _error,
    b":": _integer,
    b"_": _null,
    b"#": _bool,
    b",": _float,
    b"(": _big,
}
_BULKS: dict[bytes, Any] = {
    b"$": bytes,
    b"=": _verbatim,
    b"!": lambda value: ErrorReply(value.decode(errors="replace")),
}
_COLLECTIONS = b"*", b"%", b"~", b">"
_KINDS = {b"", *_SCALARS, *_BULKS, *_COLLECTIONS}
