"""Where to purge: a cache directory of this host, or the agent of another one.

Both take the same :class:`Wanted` and give an :class:`Outcome`; neither raises for what goes
wrong outside of this program. What it means for a request of a site is decided in
django/site_purge.py.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from nearcache.base.options import Secret
from nearcache.base.per_process import Mutex
from nearcache.errors import NginxError
from nearcache.nginx.agent.signing import ANSWER_HEADER, is_right_answer, read_secret, sign
from nearcache.nginx.cachedir.directory import CacheDir
from nearcache.nginx.cachedir.variants import Place, VariantTable
from nearcache.nginx.keys.templates import key_bytes
from nearcache.nginx.purge.learn import Learned
from nearcache.nginx.purge.purge import Purger
from nearcache.nginx.purge.receipt import How, Receipt
from nearcache.nginx.purge.targets import Targets, refuse_what_is_no_cache
from nearcache.report.words import printable

PATH = "/purge"
MOST_WORDS = 1000  # URLs and keys of one request
LONGEST_WORD = 16384
LARGEST_ANSWER = 65536
LEARNED_FOR_S = 300.0  # then the shape of keys is looked at anew

State = Literal["purged", "nothing", "failed"]


@dataclass(frozen=True)
class Wanted:
    """One purge: of URLs, and of keys as nginx has them."""

    urls: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    how: How = "soft"
    forbid_stale: bool = False

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, body: bytes) -> Wanted:
        """NginxError for anything else than what :meth:`to_json` makes."""
        try:
            given = json.loads(body)
        except (ValueError, RecursionError):
            raise NginxError("the body is no JSON") from None
        if not isinstance(given, dict) or set(given) - {"urls", "keys", "how", "forbid_stale"}:
            raise NginxError("the body must be an object of urls, keys, how, forbid_stale")
        words = {name: _words(name, given.get(name, [])) for name in ("urls", "keys")}
        if not 0 < sum(map(len, words.values())) <= MOST_WORDS:
            raise NginxError(f"name 1 to {MOST_WORDS} URLs and keys in one request")
        how, forbid_stale = given.get("how", "soft"), given.get("forbid_stale", False)
        if how not in ("soft", "hard") or not isinstance(forbid_stale, bool):
            raise NginxError("how is soft or hard, forbid_stale true or false")
        return cls(words["urls"], words["keys"], how, forbid_stale)


def _words(name: str, given: Any) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(
        isinstance(word, str) and 0 < len(word) <= LONGEST_WORD for word in given
    ):
        raise NginxError(f"{name} must be a list of texts of at most {LONGEST_WORD} characters")
    return tuple(given)


@dataclass(frozen=True)
class Outcome:
    """What became of a purge on one host."""

    host: str  # the directory, or the address of the agent
    state: State  # failed: not or not all of it was done; ``error`` says why
    files: int = 0
    error: str = ""
    seconds: float = 0.0


class Host(Protocol):
    name: str

    def purge(self, wanted: Wanted, timeout_s: float) -> Outcome: ...


@dataclass
class LocalCache:
    """A cache directory of this host.

    Args:
        levels: as in ``*_cache_path``; None: learned.
        templates: how keys are made of URLs; empty: learned. Of several, all are purged.
        varies: False says that no response here has a ``Vary``: then nothing is scanned.
    """

    path: Path
    levels: tuple[int, ...] | None = None
    templates: tuple[str, ...] = ()
    varies: bool = True

    def __post_init__(self) -> None:
        self.name = str(self.path)
        self._mutex = Mutex()
        self._learned: tuple[float, tuple[int, ...], Learned] | None = None
        self.table: VariantTable | None = None

    def keep_table(self, most_waiting: int | None = None) -> None:
        """Has variants known from now on, so that no purge scans; until :meth:`close`.

        Args:
            most_waiting: for the table at once.
        """
        if self.varies:
            self.table = VariantTable(self.path, most_waiting)

    def close(self) -> None:
        if self.table:
            self.table.close()

    def purge(
        self, wanted: Wanted, timeout_s: float, is_wanted: Callable[[], bool] = lambda: True
    ) -> Outcome:
        """
        Args:
            is_wanted: False ends a wait for the table: nobody is there to be answered.
        """
        began = time.monotonic()
        try:
            outcome = self._purge(wanted, began + timeout_s, is_wanted)
        except (NginxError, OSError) as error:
            outcome = Outcome(self.name, "failed", error=str(error))
        return replace(outcome, seconds=time.monotonic() - began)

    def _purge(self, wanted: Wanted, until: float, is_wanted: Callable[[], bool]) -> Outcome:
        with CacheDir(self.path, follow=False) as directory:
            known = self.levels is not None and bool(self.templates)
            if not known and not refuse_what_is_no_cache(directory):
                return Outcome(self.name, "nothing")
            targets = self._targets(directory)
            keys, troubles = _keys(targets, wanted)
            table = self.table

            def variants(keys: Collection[bytes]) -> Sequence[Place] | None:
                assert table
                return table.variants_of(keys, directory, until, is_wanted)

            purger = Purger(
                directory,
                how=wanted.how,
                forbid_stale=wanted.forbid_stale,
                give_up_after_s=until - time.monotonic(),
                variants=variants if table else None,
            )
            receipt = purger.purge_keys(keys, targets.levels, scan=self.varies)
        return _outcome(self.name, receipt, troubles)

    def _targets(self, directory: CacheDir) -> Targets:
        """With what was learned, unless that is long ago."""
        targets = Targets(directory, levels=self.levels, templates=self.templates)
        if self.levels is not None and self.templates:
            return targets
        with self._mutex.now():
            known, now = self._learned, time.monotonic()
            if known is None or now - known[0] > LEARNED_FOR_S or not known[2].sampled:
                known = self._learned = (now, targets.levels, targets.learned)
        return Targets(directory, levels=known[1], templates=self.templates, learned=known[2])


def _keys(targets: Targets, wanted: Wanted) -> tuple[list[bytes], list[str]]:
    """The keys, and why some URLs have none: the others are purged nevertheless."""
    keys, troubles = [key_bytes(key) for key in wanted.keys], []
    for url in wanted.urls:
        try:
            keys += [found.key for found in targets.of_url(url)]
        except NginxError as error:
            troubles.append(str(error))
    return keys, troubles


def _outcome(name: str, receipt: Receipt, troubles: Sequence[str]) -> Outcome:
    errors = [*troubles, *receipt.refused]
    if not receipt.complete:
        errors.append("the time was over before all files were looked at; send it again")
    state: State = "failed" if errors else "purged" if receipt.files else "nothing"
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return Outcome(name, state, receipt.files, errors[0] + more if errors else "")


class RemoteAgent:
    """The agent of another host: ``nearcache nginx agent`` runs there.

    Args:
        secret: or the file that holds it, which is read for each purge: a file that cannot be
            read is a purge that failed, and a new secret needs no restart.
    """

    def __init__(self, url: str, secret: Secret | Path) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.path.strip("/"):
            raise NginxError(f"{url!r} is no agent; write http://10.0.0.5:8765")
        if parts.username or parts.password:
            raise NginxError("the address of an agent holds a password; the secret is all it takes")
        self.name = url
        self._scheme, self._address, self._secret = parts.scheme, parts.netloc, secret

    def purge(self, wanted: Wanted, timeout_s: float) -> Outcome:
        began = time.monotonic()
        try:
            secret = self._secret
            known = read_secret(secret) if isinstance(secret, Path) else secret
            outcome = self._ask(wanted, timeout_s, known)
        except NginxError as error:
            outcome = Outcome(self.name, "failed", error=str(error))
        except (OSError, HTTPException) as error:
            said = f"no answer: {error or type(error).__name__}"
            outcome = Outcome(self.name, "failed", error=said)
        return replace(outcome, seconds=time.monotonic() - began)

    def _ask(self, wanted: Wanted, timeout_s: float, secret: Secret) -> Outcome:
        kind = HTTPSConnection if self._scheme == "https" else HTTPConnection
        connection = kind(self._address, timeout=timeout_s)
        body = wanted.to_json()
        # By the real time: the other side compares it with its own.
        signature = sign(secret, PATH, body, time.time())
        headers = {"Authorization": signature.header, "Content-Type": "application/json"}
        try:
            connection.request("POST", PATH, body, headers)
            response = connection.getresponse()
            answer = response.read(LARGEST_ANSWER)
            mac = response.getheader(ANSWER_HEADER, "")
        finally:
            connection.close()
        proven = is_right_answer(secret, signature.nonce, response.status, answer, mac)
        return self._understood(response.status, answer, proven)

    def _understood(self, status: int, answer: bytes, proven: bool) -> Outcome:
        try:
            given: Any = json.loads(answer)
        except ValueError:
            given = {}
        given = given if isinstance(given, Mapping) else {}
        if status != 200 or not proven:
            said = str(given.get("error", "")) or f"it answered with status {status}"
            doubt = "" if proven else ", and the answer is not signed with our secret"
            return Outcome(self.name, "failed", error=f"{printable(said[:500])}{doubt}")
        return Outcome(self.name, given["state"], int(given["files"]), str(given["error"])[:500])
