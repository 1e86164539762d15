"""What is stored: payloads of known shape, each value sealed with key and version.

A new payload is one new file and one line in ``PAYLOADS``. Beside them: fidelity.py, whether a
value comes back as what it was, and dictionaries.py, trained on others of their kind.
"""

from __future__ import annotations

from nearcache.lab.workloads.document import Document, LargeDocument
from nearcache.lab.workloads.floats import Floats
from nearcache.lab.workloads.fragment import Fragment
from nearcache.lab.workloads.oversize import Oversize
from nearcache.lab.workloads.own import OwnValues
from nearcache.lab.workloads.payload import Payload
from nearcache.lab.workloads.rows import Rows
from nearcache.lab.workloads.small_dict import SmallDict
from nearcache.lab.workloads.thumbnail import Thumbnail

PAYLOADS: dict[str, type[Payload]] = {
    "S": SmallDict,
    "F": Floats,
    "H": Fragment,
    "Q": Rows,
    "X": Oversize,
    "D": Document,
    "L": LargeDocument,
    "T": Thumbnail,
}
DEFAULT_PAYLOADS = ("S", "F", "H", "Q")
PAYLOAD_TITLES = {letter: payload.title for letter, payload in PAYLOADS.items()}


def make_payload(letter: str, seed: int, data: str = "") -> Payload:
    """The payload of this letter; ``data`` is the file of the user's own values, if any."""
    return PAYLOADS[letter](seed) if letter in PAYLOADS else OwnValues(letter, seed, data)


__all__ = ["DEFAULT_PAYLOADS", "PAYLOADS", "PAYLOAD_TITLES", "Payload", "make_payload"]
