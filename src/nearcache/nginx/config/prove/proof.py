"""A generated configuration, tried: a private nginx, a scripted application, a table.

The answers are taken as they are but for places: the socket, the directory, the log and the
address of the application. What nginx reads is otherwise what will be written.

Where two requests share an entry, the application is asked what it would have got from each
(with an ``Authorization``, which goes past the cache): if that differs, something that is
not in the key was forwarded.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from nearcache.errors import NginxError
from nearcache.nginx.cachedir.directory import CacheDir
from nearcache.nginx.config.prove.sandbox import Reply, Sandbox, Served
from nearcache.nginx.config.prove.script import BIG, application
from nearcache.nginx.config.write.answers import MIN_FREE, Answers
from nearcache.nginx.config.write.files import generate
from nearcache.nginx.purge.purge import Purger

PATIENCE_S = 5.0
POLL_S = 0.005
CROWD = 6
LEVELS = (1, 2)
PAST = {"Authorization": "Bearer x"}  # the cache


@dataclass(frozen=True)
class Check:
    """One row of the table."""

    name: str
    passed: bool
    saw: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Failed(Exception):
    """A check saw what must not be."""


def prove(
    answers: Answers,
    *,
    program: str = "nginx",
    modules: Sequence[str] = (),
    address: str | None = None,
    edit: Callable[[str], str] = lambda text: text,
) -> list[Check]:
    """The table for a configuration of these answers. Raises NginxError if nginx does not start.

    Args:
        modules: paths of dynamic modules, for njs.
        address: of another server that runs :mod:`script`, instead of the one in this process.
        edit: changes the configuration before it is tried.
    """
    with _tried(answers, Sandbox(program, modules), address, edit) as trial:
        return [_run(name, check, trial) for name, check in CHECKS]


@contextmanager
def _tried(
    answers: Answers, sandbox: Sandbox, address: str | None, edit: Callable[[str], str]
) -> Iterator[Trial]:
    with Served(application, answers.kind) as served, sandbox as box:
        place = address or served.address
        private = replace(
            answers,
            listen=f"unix:{box.socket}",
            proxy=f"http://{place}" if answers.proxy else None,
            uwsgi=place if answers.uwsgi else None,
            cache_path=str(box.directory / "cache"),
            log_path=str(box.directory / "cache.log"),
            max_size="100m",
        )
        made = generate(private)
        # A host whose disk is full has a right to a proof too.
        box.start(edit(made.text.replace(f"min_free={MIN_FREE}", "min_free=1k")), made.files)
        yield Trial(box, private)


def _run(name: str, check: Callable[[Trial], str], trial: Trial) -> Check:
    try:
        return Check(name, True, check(trial))
    except (Failed, NginxError) as failed:  # no answer at all is a failure of this row too
        return Check(name, False, str(failed))


@dataclass(frozen=True)
class Trial:
    box: Sandbox
    answers: Answers

    @property
    def host(self) -> str:
        """A name that this server answers to."""
        plain = [name for name in self.answers.server_names if re.fullmatch(r"[\w.-]{2,}", name)]
        return plain[0] if plain else "nearcache.test"

    @property
    def argument(self) -> str:
        """The name of one that is forwarded, whatever the rules are."""
        if self.answers.spelling.keep:
            return self.answers.spelling.keep[0]
        dropped = any(fnmatchcase("q", glob) for glob in self.answers.spelling.drop)
        return "nearcache" if dropped else "q"

    @property
    def session(self) -> Mapping[str, str]:
        return {"Cookie": f"a=b; {self.answers.session_cookie}=secret"}

    def ask(
        self, path: str, headers: Mapping[str, str] | None = None, method: str = "GET"
    ) -> Reply:
        return self.box.ask(path, headers, method, self.host)

    def stored(self, path: str, headers: Mapping[str, str] | None = None) -> Reply:
        """Asks until it is a hit: nginx answers a miss before the file is in place."""
        return self.until(lambda reply: reply.cache == "HIT", path, headers)

    def until(
        self,
        wanted: Callable[[Reply], bool],
        path: str,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        deadline = time.monotonic() + PATIENCE_S
        while not wanted(reply := self.ask(path, headers)):
            if time.monotonic() > deadline:
                raise Failed(f"{path}: {reply.status} {reply.cache or 'without X-Cache'}, again")
            time.sleep(POLL_S)
        return reply

    def never_stored(self, path: str, headers: Mapping[str, str] | None = None) -> str:
        """Asks three times; all three answers must be the application's own."""
        replies = [self.ask(path, headers) for _ in range(3)]
        numbers = {number(reply) for reply in replies}
        if len(numbers) != len(replies):
            raise Failed(f"{path} was served from the cache")
        return ", ".join(dict.fromkeys(reply.cache for reply in replies))

    def arrives(self, path: str) -> str:
        """The arguments that the application gets of a request."""
        return said(self.ask(path, PAST))["query"]

    def expire(self, path: str) -> None:
        """A soft purge of a page that is stored."""
        key = self.key_of(path)
        with CacheDir(self.box.directory / "cache") as directory:
            receipt = Purger(directory).purge_key(key.encode(), LEVELS)
        if [line.action for line in receipt.purged] != ["expired"]:
            raise Failed(f"the key {key} of {path} in the log is not in the cache")

    def key_of(self, path: str) -> str:
        """The key that the log has of the last request for a path."""
        for line in reversed((self.box.directory / "cache.log").read_text().splitlines()):
            entry = json.loads(line)
            if entry["request_uri"] == path:
                return str(entry["cl_key"])
        raise Failed(f"{path} is not in the log")


def number(reply: Reply) -> str:
    return str(said(reply)["number"])


def said(reply: Reply) -> dict[str, str]:
    """What the application said about the request that it got."""
    try:
        found = json.loads(reply.body)
    except ValueError:
        raise Failed(f"{reply.status}, and not the application's answer") from None
    assert isinstance(found, dict)
    return found


def _stores(trial: Trial) -> str:
    first = trial.ask("/page/")
    if number(trial.stored("/page/")) != number(first):
        raise Failed("a hit is not what was stored")
    return f"{first.cache}, then HIT with the same body"


def _keeps_variants(trial: Trial) -> str:
    for language in ("de", "en"):
        trial.stored("/vary/", {"Accept-Language": language})
    for language in ("de", "en"):
        if said(trial.ask("/vary/", {"Accept-Language": language}))["language"] != language:
            raise Failed("one language was served to the other")
    return "de and en each their own"


def _passes_sessions(trial: Trial) -> str:
    return _passes(trial, "/session/", trial.session)


def _passes_languages(trial: Trial) -> str:
    return _passes(trial, "/language/", {"Cookie": "django_language=de"})


def _passes_authorization(trial: Trial) -> str:
    return _passes(trial, "/authorized/", PAST)


def _passes(trial: Trial, path: str, personal: Mapping[str, str]) -> str:
    """Neither stored, nor answered with what is stored."""
    own = number(trial.ask(path, personal))
    if number(trial.stored(path)) == own:
        raise Failed("the answer to one user was stored for all")
    return trial.never_stored(path, personal)


def _never_stores_cookies(trial: Trial) -> str:
    return trial.never_stored("/set-cookie/")


def _obeys_cache_control(trial: Trial) -> str:
    return f"{trial.never_stored('/private/')} and {trial.never_stored('/no-store/')}"


def _never_stores_posts(trial: Trial) -> str:
    trial.stored("/post/")
    posts = [said(trial.ask("/post/", method="POST")) for _ in range(2)]
    if posts[0]["number"] == posts[1]["number"] or posts[0]["method"] != "POST":
        raise Failed("a POST was answered from the cache")
    return "both reached the application"


def _answers_head(trial: Trial) -> str:
    trial.ask("/head/", method="HEAD")
    whole = trial.stored("/head/")
    head = trial.ask("/head/", method="HEAD")
    if not whole.body or head.body or head.headers["Content-Length"] != str(len(whole.body)):
        raise Failed("HEAD stored an empty body, or was not answered as GET")
    return f"HEAD {head.cache}, GET has its body"


def _answers_ranges(trial: Trial) -> str:
    trial.ask("/big/", {"Range": "bytes=5-9"})
    if trial.stored("/big/").body != BIG:
        raise Failed("a part was stored as the whole")
    part = trial.ask("/big/", {"Range": "bytes=5-9"})
    if (part.status, part.body) != (206, BIG[5:10]):
        raise Failed(f"{part.status} with {len(part.body)} bytes instead of 206 with 5")
    return f"whole stored, 206 {part.cache}"


def _stores_missing(trial: Trial) -> str:
    return f"404 {trial.until(lambda r: r.cache == 'HIT', '/missing/').cache}"


def _serves_stale(trial: Trial) -> str:
    before = number(trial.stored("/stale/"))
    trial.expire("/stale/")
    reply = trial.ask("/stale/", {"X-Answer": "500"})
    if reply.status != 200 or number(reply) != before:
        raise Failed(f"{reply.status} while the application fails")
    fails = trial.ask("/fails/", {"X-Answer": "500"})
    if fails.status != 500 or trial.ask("/fails/").status != 200:
        raise Failed("a 500 was stored")
    return f"200 {reply.cache}; a 500 is not stored"


def _purges(trial: Trial) -> str:
    before = number(trial.stored("/purge/"))
    trial.expire("/purge/")
    first = trial.ask("/purge/")
    trial.until(lambda reply: reply.cache == "HIT" and number(reply) != before, "/purge/")
    return f"{first.cache}, then HIT with the new page"


def _locks(trial: Trial) -> str:
    with ThreadPoolExecutor(CROWD) as crowd:
        replies = list(crowd.map(lambda _: trial.ask("/slow/"), range(CROWD)))
    numbers = {number(reply) for reply in replies}
    if len(numbers) != 1:
        raise Failed(f"{CROWD} at once asked the application {len(numbers)} times")
    return f"{CROWD} at once, the application asked once"


def _orders_arguments(trial: Trial) -> str:
    rules = trial.answers.spelling
    names = rules.keep[:2] if rules.keep else ("za", "zb")
    one = "&".join(f"{name}=1" for name in names)
    other = "&".join(f"{name}=1" for name in reversed(names))
    is_one = bool(rules.keep or (rules.sort and trial.answers.use_njs))
    return _shared(trial, f"/order/?{one}", f"/order/?{other}", is_one=is_one)


def _drops_tracking(trial: Trial) -> str:
    name = (*trial.answers.spelling.drop, "utm_source")[0].replace("*", "x")
    url = f"/track/?{name}=1&{trial.argument}=2&{name}=3"
    is_one = bool(trial.answers.spelling.drop or trial.answers.spelling.keep)
    return _shared(trial, url, f"/track/?{trial.argument}=2", is_one=is_one)


def _spells_values(trial: Trial) -> str:
    rules = trial.answers.spelling
    first = "ABBA" if rules.lower else "abba"
    first = f"%20{first}+" if rules.strip else first.upper()
    is_one = trial.answers.use_njs and (rules.lower or rules.strip)
    name = trial.argument
    return _shared(trial, f"/spell/?{name}={first}", f"/spell/?{name}=abba", is_one=is_one)


def _keys_arguments(trial: Trial) -> str:
    name = trial.argument
    return _shared(trial, f"/keyed/?{name}=1", f"/keyed/?{name}=2", is_one=False)


def _keys_strangers(trial: Trial) -> str:
    is_one = bool(trial.answers.spelling.keep)
    return _shared(trial, "/stranger/?zz=1", "/stranger/?zz=2", is_one=is_one)


def _shared(trial: Trial, first: str, second: str, *, is_one: bool) -> str:
    """One entry or two? If one, the application must get the same from both."""
    page, again = trial.stored(first), trial.stored(second)
    if said(page)["query"] != trial.arrives(first):
        raise Failed(f"{first} is stored otherwise than it is answered")
    if number(page) != number(again):
        if is_one:
            raise Failed(f"{first} and {second} are two entries")
        return "two entries, as the application sees two"
    if trial.arrives(first) != trial.arrives(second):
        raise Failed(f"{first} and {second} share an entry, and are two for the application")
    if not is_one:
        raise Failed(f"{first} and {second} share an entry")
    return f"one entry, forwarded as ?{trial.arrives(first)}"


def _tells_paths_apart(trial: Trial) -> str:
    name = trial.argument
    page = trial.stored(f"/p%3F{name}=1")
    if number(trial.stored(f"/p?{name}=1")) == number(page):
        raise Failed("/p%3Fq=1 and /p?q=1 share an entry")
    return "%3F and ? are two pages"


def _hides_ports(trial: Trial) -> str:
    reply = trial.box.ask("/port/", PAST, host=f"{trial.host}:1337")
    if said(reply)["host"] != trial.host:
        raise Failed(f"the application got {said(reply)['host']}, the key has {trial.host}")
    return f"the application gets {trial.host}"


def _logs_keys(trial: Trial) -> str:
    trial.stored("/logged/?q=1")
    key = trial.key_of("/logged/?q=1")
    with CacheDir(trial.box.directory / "cache") as directory:
        if directory.find(key.encode(), LEVELS) is None:
            raise Failed(f"{key} is in the log and not in the cache")
    return key


CHECKS: Sequence[tuple[str, Callable[[Trial], str]]] = (
    ("a page is stored", _stores),
    ("Vary", _keeps_variants),
    ("a session is passed", _passes_sessions),
    ("Authorization is passed", _passes_authorization),
    ("a chosen language is passed", _passes_languages),
    ("Set-Cookie is not stored", _never_stores_cookies),
    ("private, no-store are not", _obeys_cache_control),
    ("POST is not", _never_stores_posts),
    ("HEAD", _answers_head),
    ("Range", _answers_ranges),
    ("404", _stores_missing),
    ("500: the old page", _serves_stale),
    ("soft purge", _purges),
    ("a crowd fetches once", _locks),
    ("arguments are in the key", _keys_arguments),
    ("unknown arguments", _keys_strangers),
    ("their order", _orders_arguments),
    ("tracking arguments", _drops_tracking),
    ("case and spaces", _spells_values),
    ("%3F in a path", _tells_paths_apart),
    ("a port in Host", _hides_ports),
    ("the key in the log", _logs_keys),
)
