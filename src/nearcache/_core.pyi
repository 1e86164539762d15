"""Types of the native module (crates/nearcache-python)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, Self, TypedDict

from typing_extensions import Buffer

LAYOUT_VERSION: int  # of the data file; in its name

def encode(value: object) -> bytes | None:
    """The `exact` bytes of a value, without a header byte; see crates/nearcache-python/src/values/exact.

    None if the value is not for that format, or some of it would not come back as it was:
    then pickle it.
    """

def decode(payload: bytes) -> Any:
    """The value of `exact` bytes, which may come from anywhere. Raises ValueError."""

def pack(*words: bytes | int | str) -> bytes:
    """A command for Redis of these words: an array of bulk strings."""

def generation() -> int:
    """The number of this process, which no forked child shares: one load."""

def _when_forked(call: Callable[[], object]) -> None:
    """``call`` is called in a forked child, by the first who asks there for its generation."""

class Home(Protocol):
    """Where the cache of this process's user is, for a process that may become another's."""

    def find(self) -> str:
        """The path without suffixes. Raises RegionError."""
    def opened(self, base_path: str, path: str, created: bool, notice: str | None) -> object:
        """Called when the store went over to that file; see `Store` for the others."""

class Store:
    """One shared-memory cache file, mapped: an Engine as ``nearcache.engines.contract`` has it.

    Thread-safe; survives ``fork``. The file is found or made by the constructor, which
    raises RegionError or RegionFull if it cannot be used, and ValueError if the sizes make
    no sense. In a process that became another user's the first call asks ``home`` where that
    user's file is and goes over to it, and each call raises the same errors if that fails.
    """

    path: str  # the data file
    created: bool  # True if this call made the file: the cache starts empty
    size_bytes: int  # of the data file; may differ from what was asked, see `notice`
    max_item_bytes: int
    lock_epoch: int  # another one: locks taken before are not in force any more
    notice: str | None  # what the caller should know, for example "size differs"

    def __new__(
        cls,
        base_path: str,
        *,
        size_bytes: int,
        or_less: bool = False,
        max_item_bytes: int | None = None,
        mean_item_bytes: int | None = None,
        near_items: int = 4096,
        near_bytes: int = 16 << 20,
        home: Home | None = None,
    ) -> Store:
        """`or_less`: a file that is there keeps its size, and a new one takes at most half of
        what is free. `mean_item_bytes` (key, value and 32) sizes the index; None: what suits most.

        `near_*` bound the decoded objects that a FusedCache keeps in this
        process; 0 items: none. Without a ``home`` the path is every user's, and refused to
        all but its owner.
        """
    @staticmethod
    def existing(base_path: str) -> Store:
        """The store at that path as it is; RegionError if there is none."""
    def get(self, key: bytes) -> bytes | None: ...
    def gets(self, key: bytes) -> tuple[bytes, int] | None:
        """The value and its version, for :meth:`cas`."""
    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]: ...
    def set(self, key: bytes, value: bytes, expires_at_ms: int | None) -> bool:
        """True if stored; False if refused: then the old value is gone.

        Refused is what is too large, or what found its shard locked for 5 s, or for 0.25 s by
        a process that was stopped; FusedCache raises EngineBusy there.
        """
    def set_many(
        self, items: Sequence[tuple[bytes, bytes]], expires_at_ms: int | None
    ) -> list[int]:
        """Stores all; returns the positions that were refused."""
    def add(self, key: bytes, value: bytes, expires_at_ms: int | None) -> bool: ...
    def cas(self, key: bytes, value: bytes, version: int, expires_at_ms: int | None) -> bool:
        """Stores if the key still has `version`. Raises EngineBusy."""
    def get_and_set(self, key: bytes, value: bytes, expires_at_ms: int | None) -> bytes | None:
        """Raises EngineBusy."""
    def incr(self, key: bytes, delta: int) -> int | None:
        """The new value, or None if the key is absent. Keeps the deadline. Raises DataError, EngineBusy."""
    def touch(self, key: bytes, expires_at_ms: int | None) -> bool: ...
    def touch_head(self, key: bytes, expires_at_ms: int | None, size: int) -> bytes | None: ...
    def head(self, key: bytes, size: int) -> bytes | None:
        """The first `size` bytes of the value; no more is copied, and it does not count as a use.

        A value damaged in the file may show a wrong head, where :meth:`get` says None.
        """
    def expires_at(self, key: bytes) -> int | None:
        """-1 if absent, None if it never expires."""
    def contains(self, key: bytes) -> bool: ...
    def delete(self, key: bytes) -> bool: ...
    def delete_many(self, keys: Sequence[bytes]) -> int: ...
    def scan(
        self, cursor: int, limit: int, *, prefix: bytes = b"", glob: bytes | None = None
    ) -> tuple[int, list[tuple[bytes, int, int | None, int]]]:
        """(next cursor, [(key, value bytes, expires_at_ms, stored-at version)]); a next cursor of 0 ends the scan."""
    def clear(self) -> None: ...
    def clear_matching(self, *, prefix: bytes = b"", glob: bytes | None = None) -> int: ...
    def cull(self, items: int) -> int:
        """Evicts that many items in the eviction policy's order."""
    def __len__(self) -> int:
        """Items stored, those expired but not yet swept included."""
    def stats(self) -> dict[str, int]: ...
    def check(self) -> list[str]:
        """Walks everything; every broken invariant is a line."""
    def lock_acquire(self, name: bytes, ttl_ms: int) -> int | None:
        """A fencing token (> 0), or None if held or waited for. A dead holder's lock is free at once."""
    def lock_wait(
        self, name: bytes, ticket: int | None, ttl_ms: int, wait_ms: int
    ) -> tuple[int | None, int | None]:
        """Waits in the lock's queue: (token, None), or (None, ticket) when `wait_ms` is over.

        Ticket 0 is no place: all 1,024 of the store are taken, and whoever asks first gets the
        lock. Raises EngineBusy.
        """
    def lock_leave(self, name: bytes, ticket: int) -> None:
        """Gives a place in the queue up."""
    def lock_renew(self, name: bytes, token: int, ttl_ms: int) -> bool: ...
    def lock_release(self, name: bytes, token: int) -> bool: ...
    def claim(self, key: bytes, owner: int, ttl_ms: int) -> bool:
        """A dead process's claim is over at once. Raises EngineBusy, also if 768 are claimed."""
    def unclaim(self, key: bytes, owner: int) -> None: ...

class CacheArguments:
    """What ``BaseCache.__init__`` assigns, and the keys made of it, natively.

    Not for itself: FusedCache and RedisCommands inherit from it. A class that overrides
    Django's key methods, and a KEY_FUNCTION, are honoured.
    """

    key_prefix: str
    version: int
    key_func: Callable[[Any, str, int], str]
    default_timeout: float | None

    def _raw_key(self, key: Any, version: int | None = None) -> bytes:
        """The bytes the store has the key under."""

class FusedCache(CacheArguments):
    """Django's cache methods on a :class:`Store`, each one native call.

    To be inherited before ``BaseCache``. On first use it reads ``engine`` (a Store) and these:

    * ``native_codec`` (True if absent): write values natively, as serializer "auto" does;
      False: with ``codec.encode``.
    * ``bounded`` (False if absent): call ``_make_room(raw_key)`` before each write.

    It also calls ``codec.decode`` for values with a header that is not its own,
    ``_incr_object(key, delta, version)`` to add to what is no 64-bit counter, and adds to
    ``counters.undecodable`` (unless the codec raised ``nearcache.codec.envelope.Stale``) and
    ``counters.refused``.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self: ...
    def _reopen(self) -> bool:
        """Asks for ``engine`` anew at the next use; False if it has done so too often."""
    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any: ...
    def get_many(self, keys: Iterable[Any], version: int | None = None) -> dict[Any, Any]: ...
    def set(self, key: Any, value: Any, timeout: Any = ..., version: int | None = None) -> None: ...
    def set_many(
        self, data: Mapping[Any, Any], timeout: Any = ..., version: int | None = None
    ) -> list[Any]:
        """The keys that were refused."""
    def add(self, key: Any, value: Any, timeout: Any = ..., version: int | None = None) -> bool: ...
    def touch(self, key: Any, timeout: Any = ..., version: int | None = None) -> bool: ...
    def delete(self, key: Any, version: int | None = None) -> bool: ...
    def delete_many(self, keys: Iterable[Any], version: int | None = None) -> None: ...
    def has_key(self, key: Any, version: int | None = None) -> bool: ...
    def incr(self, key: Any, delta: Any = 1, version: int | None = None) -> Any: ...

class RedisCommands(CacheArguments):
    """RESP2 commands of Django's arguments, packed; and the values of replies.

    To be inherited before ``BaseCache``. On first use it reads ``native_codec`` (True if
    absent): values are written as serializer "auto" without a compressor does, and read
    natively where they can be; False: all of them with ``codec.encode`` and ``codec.decode``.
    It also calls ``codec.decode`` for values with a header that is not its own, and adds to
    ``counters.undecodable``, unless the codec raised ``nearcache.codec.envelope.Stale``.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self: ...
    def _get_command(self, key: Any, version: int | None = None, /) -> bytes: ...
    def _command(self, name: bytes, key: Any, version: int | None = None, /, *args: bytes) -> bytes:
        """``name``, the final key, ``args``."""
    def _set_command(
        self,
        key: Any,
        value: Any,
        timeout: Any = ...,
        version: int | None = None,
        nx: bool = False,
        /,
    ) -> bytes:
        """``SET``, with ``PX`` unless it never expires, with ``NX`` if asked for.

        A timeout of 0 or less is a ``DEL``, with ``nx`` an ``EXISTS``: their replies are
        numbers, and an add of what is over at once succeeds if the number is 0.
        """
    def _set_many_command(
        self, items: dict[Any, Any], timeout: Any = ..., version: int | None = None, /
    ) -> tuple[bytes, int]:
        """A pipeline of :meth:`_set_command`, and how many replies it will have."""
    def _mget_command(self, keys: Iterable[Any], version: int | None = None, /) -> bytes:
        """``MGET``; no bytes at all if there are no keys."""
    def _timeout_ms(self, timeout: Any = ..., /) -> int | None:
        """Milliseconds to live, rounded up; None for ever, 0 for none at all."""
    def _value(self, reply: bytes | None, default: Any = None, /) -> Any:
        """The value of a reply; the default if there is none, or it cannot be read."""
    def _values(self, keys: Sequence[Any], replies: Sequence[bytes | None], /) -> dict[Any, Any]:
        """The values by key, without the missing and those that cannot be read."""

class NginxCount(TypedDict):
    requests: int
    bytes: int  # sent to clients, as $body_bytes_sent or $bytes_sent has them
    upstream_us: int  # sum of $upstream_response_time
    request_us: int  # sum of $request_time

class NginxWhy(TypedDict):
    requests: int
    upstream_us: int

class NginxWaits(TypedDict):
    requests: int
    waited_us: int

class NginxTally(NginxCount):
    """The sums of one location, URL group or hour, or of everything."""

    statuses: dict[str, NginxCount]
    """By cache status, only those that occur: ``HIT``, ``MISS``, ``EXPIRED``, ``BYPASS``, ``STALE``,
    ``UPDATING``, ``REVALIDATED``; ``-``: no cache took part; ``?``: a word that nginx does not
    write; ``""``: the line does not say."""
    cacheable: int
    """Requests that a cache served, or could have: all with a cache status, less those that
    are uncacheable (see `why`)."""
    fetch_us: list[tuple[int, int]]
    """Histogram of the upstream time of MISS and EXPIRED, ascending: (mean of the bucket in us,
    requests). Buckets are 1/32 of a power of two wide. Of `$request_time` if the log has no
    upstream time: see `NginxResult.fetch_from`."""
    why: dict[str, NginxWhy]
    """Requests that were not served from the cache, by reason; only those that occur.

    From the key's past (estimates if `keys.rate` is below 1):

    * ``compulsory``: its first request in this log
    * ``expired``: status EXPIRED or REVALIDATED, or gone and older than its TTL anyway
    * ``inactive``: fresh, but nobody had asked for longer than `inactive_s`
    * ``evicted``: fresh and asked for within `inactive_s`, yet gone (max_size, the zone, a purge)
    * ``dropped``: fresh yet gone; `inactive_s` is not known, so one of the two above
    * ``fragmented``: a fresh copy lay under another spelling; which: `NginxResult.spellings`
    * ``variant``: a fresh copy lay there for other request headers (Vary)
    * ``duplicate``: another fetch of the same key was under way: a stampede
    * ``min_uses``: not asked for often enough to be stored
    * ``never_stored``: asked for before, never seen to come from the cache; the log does not say
      why (the response forbids it, or nothing sets a TTL)

    Uncacheable, because of:

    * ``set_cookie``, ``private``, ``no_store``, ``no_cache`` (Cache-Control), ``vary`` (``*``, or
      longer than nginx stores), ``status``, ``no_ttl`` (nothing gives a lifetime, or it is 0)
    * ``method`` (not GET or HEAD), ``bypass``, ``authorization`` (bypassed, and sent one)

    And:

    * ``no_cache_here``: asked upstream, and no cache took part (status ``-``)
    * ``unknown``: asked upstream for all we know; the log has no cache status
    """
    lock_waits: NginxWaits
    """Requests that waited for another one's fetch (cache_lock): a HIT that began before its copy
    was stored, or a MISS during another fetch that took 0.5 s longer than its upstream.
    Estimates if `keys.rate` is below 1."""

class NginxLocation(NginxTally):
    kind: str | None  # as given; None for what matches none, which comes last
    pattern: str | None

class NginxSaved(TypedDict):
    """What the answers of a group were worth, each at the price of its URL: see ``prices.rs``.

    Of at most 262,144 URLs each counts by itself; beyond, the half with the fewest hits is summed
    up, and counts at the mean of its group's others of that kind.
    """

    served: int
    thin: int  # of them, those of URLs that were fetched fewer than five times
    is_borrowed: bool  # never fetched: priced as its location is, or the whole log
    us: float
    own_us: float  # the same, if a URL's own fetches were believed alone
    within: float  # variance of `us` by how fetches of one URL differ
    within_freedom: float  # its degrees of freedom
    between: float  # variance of `us` by how URLs of one group differ
    between_freedom: float

class NginxGroup(NginxTally):
    name: str  # "/song/<n>/?q"; "(other)" once there are `max_groups`
    location: int  # position in `NginxResult.locations`
    saved: NginxSaved

class NginxHour(NginxTally):
    start_s: int | None  # Unix time; None: lines without a time, or beyond 20,000 hours
    served: list[tuple[int, int]]
    """(position in `NginxResult.groups`, requests served from the cache); -1 for a group once a
    million such pairs are kept."""

class NginxTop(TypedDict):
    """A URL that was often missed. The true figures are at most `error` higher than `weight`."""

    url: str  # of its first request, cut to 500 bytes
    host: str | None  # None: the log does not say, or several hosts share this key
    group: int  # position in `NginxResult.groups`
    weight: int  # in the unit of `NginxResult.ranked_by`: at least so much
    error: int
    requests: int  # not served from the cache, since it is on the list
    upstream_us: int  # likewise
    why: dict[str, int]  # requests by class

class NginxLengths(TypedDict):
    """What values an argument (or part of the path) had. Lengths are characters, decoded."""

    requests: int  # that had it
    absent: int  # that had not
    distinct: int  # values, estimated (HyperLogLog, standard error 1.6 %)
    by_length: list[tuple[int, int, int, int, int]]
    """(length, requests, of these served from the cache, upstream_us, distinct values), ascending;
    the last possible length, 1024, stands for all that are longer, too."""

class NginxKeys(TypedDict):
    kept: int  # keys whose past is remembered
    distinct: int  # kept / rate
    rate: float  # 1.0 until there are `max_keys`; then one of 1/2, 1/4 ... of all keys is followed
    text: str  # what stands for the key: "key", "scheme+host+uri", "host+uri", "uri"

class NginxResult(TypedDict):
    lines: int  # without empty ones
    bytes_read: int
    bad: int  # lines that do not fit the format
    bad_examples: list[tuple[int, str]]  # the first five: number of the line, its beginning
    first_us: int | None  # when the first and last request ended, microseconds since 1970
    last_us: int | None
    left_out: int  # by `NginxLog.only`; they count nowhere else but in `lines` and `says`
    backwards: int  # lines more than a minute older than one before: files in wrong order?
    gave_up: int  # matches of a regular expression that took too many steps; they count as none
    says: dict[str, bool]
    """Which fields at least one line had (be it as ``-``): time, milliseconds, method, uri, host,
    scheme, status, bytes, request_time, upstream_time, cache_status, upstream_bytes, key,
    cache_control, accel_expires, expires, vary, set_cookie, accept_encoding, content_type,
    authorization, cookie, upstream_status, args."""
    fetch_from: str | None  # "upstream_time", "request_time", or None: the log has no times
    total: NginxTally
    locations: list[NginxLocation]  # in the order given, then what matches none
    groups: list[NginxGroup]  # in the order of their first request
    hours: list[NginxHour]  # ascending, what has no time first
    ranked_by: str  # what `top` is ranked by: "upstream_us", "request_us" or "requests"
    top: list[NginxTop]  # heaviest first, at most 1,000
    spellings: dict[str, NginxWhy]
    """Of `why["fragmented"]`, by what differs: ``case``, ``order`` (of arguments), ``tracking``
    (utm_*, fbclid ...), ``encoding`` (%41, +, spaces at the ends). One request may be in several."""
    lengths: NginxLengths | None  # if an argument or part was asked for
    keys: NginxKeys

class NginxRecentGroup(NginxTally):
    """Its sums are of this look."""

    name: str
    location: int
    number: int  # its position in `NginxResult.groups`

class NginxRecent(TypedDict):
    """What came since the last look. Names as in :class:`NginxResult`."""

    lines: int  # of all so far
    bad: int  # of all so far
    says: dict[str, bool]
    fetch_from: str | None
    key_rate: float  # `NginxKeys.rate`
    first_us: int | None  # of what came
    last_us: int | None
    total: NginxTally
    groups: list[NginxRecentGroup]  # those with requests
    prices_us: list[tuple[float, bool]]
    """For each group, by its number: what an answer is worth, by all that was fed so far; and was
    none of it fetched?"""
    served_took_us: list[tuple[int, int]]
    """Histogram of `$request_time` of what the cache served, as `NginxTally.fetch_us`."""
    missed_took_us: list[tuple[int, int]]  # and of what has a reason in `why`
    ranked_by: str
    top: list[NginxTop]

class NginxLog:
    """One pass over access logs of nginx: every figure of `report`, `misses` and `queries`.

    Memory is bounded whatever is fed: 20 kB a URL group at most, about 150 bytes a key, and the
    tables named in :class:`NginxResult`. No bytes raise: a line that does not fit is counted.
    Thread-safe; one call at a time works.
    """

    def __new__(
        cls,
        log_format: str,
        *,
        key: str | None = None,
        locations: Sequence[tuple[str, str]] = (),
        groups: Sequence[tuple[str, str]] = (),
        argument: str | None = None,
        path_part: int | None = None,
        under: str = "",
        ttl_s: float | None = None,
        valid_s: Mapping[str, float] | None = None,
        inactive_s: float | None = None,
        min_uses: int = 1,
        ignore_headers: Sequence[str] = (),
        max_keys: int = 900_000,
        max_groups: int = 10_000,
        utc_offset_s: int = 0,
        watched: bool = False,
        key_parts: Sequence[str] = (),
    ) -> NginxLog:
        """Raises NginxError if the format, or a regular expression, cannot be used.

        Args:
            log_format: the text of a ``log_format``, ``"combined"``, or ``"json"`` for JSON lines.
            key: the variable that holds the cache key, without ``$``. ``cl_key`` and ``cache_key``
                are known.
            locations: (kind, pattern) as in nginx: ``"="``, ``"^~"``, ``""``, ``"~"``, ``"~*"``; matched as nginx
                does, against the decoded path. Regular expressions are Rust's with look-around.
            groups: (regular expression, name), searched in the target as logged; the first that
                matches names the group. What none matches is grouped by its shape.
            argument: whose lengths are counted; its first occurrence in a request.
            path_part: or the part of the path, from 1. Not both.
            under: only for paths that begin so.
            ttl_s: of ``*_cache_valid`` for 200, 301 and 302; 0: there is none; None: not known.
            valid_s: of ``*_cache_valid`` by status, as ``{"404": 60, "any": 1}``; goes before `ttl_s`.
                If neither is given, no response is called uncacheable for its status.
            inactive_s: of ``*_cache_path``; None: not known.
            min_uses: of ``*_cache_min_uses``.
            ignore_headers: of ``*_ignore_headers``.
            max_keys: beyond it keys are sampled by hash; see `NginxKeys.rate`.
            utc_offset_s: where hours begin.
            watched: also keep what :meth:`take_recent` gives.
            key_parts: what a cache key that the log does not have is made of, beside the path: words of
                ``scheme``, ``host``, ``method`` and ``args``, for each location, and as the last for
                what matches none. Without any, ``scheme host args`` for all.
        """
    def feed(self, data: Buffer) -> None:
        """Takes the next bytes of the log, cut anywhere. Others run meanwhile (no GIL)."""
    def only(
        self,
        *,
        since_us: int | None = None,
        until_us: int | None = None,
        host: str | None = None,
        location: int | None = None,
    ) -> None:
        """From now on counts only such requests.

        Args:
            since_us: that ended then or later, in microseconds since 1970.
            until_us: that ended before. What has no time is in no bounds.
            host: for this one; any case, any port. A line without a host is for none.
            location: in this one of the locations, by its position.
        """
    def finish(self) -> None:
        """The log has ended. More may be fed nevertheless."""
    def result(self) -> NginxResult:
        """What was found so far."""
    def take_recent(self) -> NginxRecent:
        """What was fed since the last call, and forgets it. Costs what happened in between.

        Raises ValueError without `watched`.
        """

class NginxLifetime(TypedDict):
    """Of responses that do not say how long they live: learned from hits and expired copies of
    known age."""

    ttl_s: int
    least_s: int  # all from here
    most_s: int | None  # to here fit as well; None: nothing was ever too old
    fresh: int  # hits of known age
    expired: int  # copies of known age that were too old
    contradicting: int  # of both, those that say otherwise

class NginxTraceFacts(TypedDict):
    lines: int
    bad: int
    bad_examples: list[tuple[int, str]]
    says: dict[str, bool]  # as `NginxResult.says`
    requests: int  # that a cache took part in, or may have
    logged: dict[str, int]  # of them, by cache status; "?": the line does not say
    uncached: int  # status "-"
    unusable: int  # without time or URL
    left_out: int  # by `only`
    kept_requests: int  # in the sample
    kept_keys: int
    rate: float  # the share of keys that is sampled; 1.0: all
    first_us: int | None  # when the first and the last request began
    last_us: int | None
    usual_ttl_s: int | None  # the commonest lifetime of responses
    learned_ttl: NginxLifetime | None  # of those that do not say
    never_stored_keys: (
        int  # missed again while a copy should have been fresh, and never in the cache
    )
    hosts: list[tuple[str, int, int]]
    """By the first part of the path: how often a host asked for the first time for a URL that was
    fetched for another, and was answered with that; and how often it was not. Empty if the
    log or `key_parts` says what keys are made of."""
    refetches: list[tuple[float, int, int]]
    """Fetches of a key by the time since the fetch before: (mean seconds, how many, of these with
    another size)."""

class NginxAnswered(TypedDict):
    requests: dict[str, int]  # by modelled status
    bytes: dict[str, int]
    logged: dict[str, dict[str, int]]  # logged status -> modelled status -> requests
    logged_bytes: dict[str, int]

class NginxOutcome(TypedDict):
    """What one set of rules gives. Of the sample, not scaled up."""

    all: NginxAnswered
    settled: NginxAnswered
    """Of requests from `settled_us` on, without those that a copy from before the log answered."""
    uncached: int  # neither GET nor HEAD, or a location without a cache
    fetches: int
    upstream_us: int  # of all fetches
    saved_us: int  # that answers from the cache would have taken
    lock_waits: int
    lock_wait_us: int
    ages: list[tuple[float, int]]  # settled answers from the cache by age: (mean seconds, how many)
    oldest_us: int
    outdated: int  # of them, those that a fetch by another request is known to have made old
    peak_bytes: int  # on the disk, in blocks
    end_bytes: int
    peak_nodes: int
    removed_inactive: int
    removed_for_room: int
    keys: int
    merged: int  # keys that rules made one with others
    one_hit: int  # keys that were asked for once
    residuals: float  # sum over keys of (served - hit ratio * requests) squared

def nginx_group(target: bytes) -> bytes:
    """The URL group of a target, as reports of logs have it: `/song/<n>/amazon`."""

class NginxKeyRules:
    """Rules that make one key out of several spellings: `lower,strip,sort-args,drop=utm_*|gclid`."""

    def __new__(cls, rules: str) -> NginxKeyRules:
        """Raises NginxError for what is no rule, with those there are."""
    def apply(self, key: bytes) -> bytes:
        """What the key becomes."""

class NginxTrace:
    """A log kept for replays through a model of nginx's cache: 32 bytes a request, keys once.

    No bytes raise. Beyond the bounds keys are sampled by hash. Thread-safe; one call at a time works.
    """

    def __new__(
        cls,
        log_format: str,
        *,
        key: str | None = None,
        locations: Sequence[tuple[str, str]] = (),
        valid: Sequence[tuple[Sequence[tuple[int | None, int]] | None, Sequence[str]]],
        sample_by: str = "",
        max_keys: int = 1_000_000,
        max_requests: int = 8_000_000,
        key_parts: Sequence[str] = (),
    ) -> NginxTrace:
        """Raises NginxError if the format, a location or a rule cannot be used.

        Args:
            log_format, key, locations, key_parts: as of :class:`NginxLog`.
            valid: for each location, and as the last for what matches none: ``*_cache_valid`` as
                (status or None for any, seconds), or None if not known; and ``*_ignore_headers``.
            sample_by: all rules for keys that will be replayed, with semicolons between.
        """
    def only(
        self,
        *,
        since_us: int | None = None,
        until_us: int | None = None,
        host: str | None = None,
        location: int | None = None,
    ) -> None:
        """From now on only lines of this time, host and location (its position) count."""
    def feed(self, data: Buffer) -> None:
        """Takes the next bytes of the log, cut anywhere. Others run meanwhile (no GIL)."""
    def finish(self) -> None:
        """The log has ended: now it can be replayed."""
    def facts(self) -> NginxTraceFacts: ...
    def replay(self, rules: dict[str, Any]) -> NginxOutcome:
        """What nginx would have done under these rules; see `nginx.whatif.rules.replay_rules`.

        Raises NginxError for a rule for keys that there is not, KeyError, TypeError and ValueError
        for a dict of another shape.
        """
