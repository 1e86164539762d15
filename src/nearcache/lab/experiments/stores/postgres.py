"""JSON in PostgreSQL: by Django's ORM, by psycopg, and by Django's DatabaseCache.

All commit every write by itself (autocommit), as Django does outside of transactions.
"""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Literal

from nearcache.lab.experiments.stores.contract import Durability, Store, WrongDurability
from nearcache.lab.proofs.proof import TreatmentNotApplied
from nearcache.lab.servers.postgres import connection_string

TRIES = 10  # writes whose way to the disk is watched
Column = Literal["jsonb", "json", "text", "bytea"]
ON_DISK = "on the disk when the write returns"
LAST_MOMENTS = "the last moments before a crash may be lost"
EMPTIED = "emptied after a crash"


@dataclass(frozen=True)
class Lookup:
    """What the article unpacked values_list into."""

    modified: datetime
    matches: Any


class DjangoStore(Store):
    """On Django's connection, in a table of its own."""

    def __init__(self, places: Mapping[str, str], table: str) -> None:
        self.places = places
        self.table = table

    def disconnect(self) -> None:
        from django.db import connection

        connection.close()

    def empty(self) -> None:
        execute_by_django(f'TRUNCATE "{self.table}"')

    def durability(self, write: Callable[[], None]) -> Durability:
        session = execute_by_django("SHOW synchronous_commit")
        return durability_of(self.places, self.table, session, write, ON_DISK)


class OrmStore(DjangoStore):
    """A model as in seed 002: create() and get(), a model instance each time."""

    def __init__(self, places: Mapping[str, str], table: str) -> None:
        super().__init__(places, table)
        self.model = _lookup_model(table)

    def create(self) -> None:
        from django.db import connection

        with connection.schema_editor() as editor:
            editor.create_model(self.model)

    def write(self, identity: int, value: Any) -> None:
        self.model.objects.create(
            song_id=identity, matches=value, search_index="All", lookup_seconds=0.5
        )

    def read(self, identity: int) -> Any:
        return self.model.objects.get(song_id=identity).matches

    def read_elsewhere(self, identity: int) -> Any:
        return _only_value(self.places, self.table, "matches", "song_id", identity)

    def proof(self) -> Mapping[str, str]:
        from django.db import connection

        column = self.model._meta.get_field("matches").db_type(connection)
        return {
            "model": f"{self.model.__name__}, {column}",
            "connection": _about_connection(connection.connection),
        }


class ValuesStore(OrmStore):
    """The same rows without model instances: values_list into a dataclass."""

    def read(self, identity: int) -> Any:
        rows = self.model.objects.values_list("modified", "matches")
        return Lookup(*rows.get(song_id=identity)).matches


class DriverStore(Store):
    """psycopg and a statement, nothing else."""

    def __init__(
        self,
        places: Mapping[str, str],
        table: str,
        *,
        column: Column = "jsonb",
        prepared: bool = True,
        unlogged: bool = False,
        synchronous_commit: str = "on",
    ) -> None:
        self.places = places
        self.table = table
        self.column = column
        self.prepared = prepared
        self.unlogged = unlogged
        self.synchronous_commit = synchronous_commit
        self._connection: Any = None
        # The table's name is ours; values travel as parameters.
        self._insert = f'INSERT INTO "{table}" (song_id, matches, modified) VALUES (%s, %s, now())'  # noqa: S608
        self._select = f'SELECT matches, modified FROM "{table}" WHERE song_id = %s'  # noqa: S608
        self._pack, self._unpack = _codec_of(column)

    @property
    def connection(self) -> Any:
        if self._connection is None:
            import psycopg

            self._connection = psycopg.connect(connection_string(self.places), autocommit=True)
            if self.synchronous_commit != "on":
                self._connection.execute(f"SET synchronous_commit = {self.synchronous_commit}")
        return self._connection

    def create(self) -> None:
        kind = "UNLOGGED TABLE" if self.unlogged else "TABLE"
        self.connection.execute(
            f'CREATE {kind} "{self.table}" '
            f"(song_id bigint PRIMARY KEY, matches {self.column}, modified timestamptz)"
        )

    def write(self, identity: int, value: Any) -> None:
        self.connection.execute(self._insert, (identity, self._pack(value)), prepare=self.prepared)

    def read(self, identity: int) -> Any:
        found = self.connection.execute(
            self._select, (identity,), prepare=self.prepared, binary=self.column == "bytea"
        ).fetchone()
        return self._unpack(found[0])

    def read_elsewhere(self, identity: int) -> Any:
        found = _only_value(self.places, self.table, "matches", "song_id", identity)
        return self._unpack(found)

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def empty(self) -> None:
        self.connection.execute(f'TRUNCATE "{self.table}"')

    def durability(self, write: Callable[[], None]) -> Durability:
        session = self.connection.execute("SHOW synchronous_commit").fetchone()[0]
        expected = EMPTIED if self.unlogged else ON_DISK
        if self.synchronous_commit == "off":
            expected = LAST_MOMENTS
        return durability_of(self.places, self.table, session, write, expected)

    def proof(self) -> Mapping[str, str]:
        statements = self.connection.execute(
            "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE %s",
            (f'%"{self.table}"%',),
            prepare=False,
        ).fetchone()[0]
        if bool(statements) != self.prepared:
            raise TreatmentNotApplied(f"{statements} statements are prepared on the server")
        return {
            "column": self._column_type(),
            "statements": "prepared on the server" if self.prepared else "sent as text each time",
            "connection": _about_connection(self.connection),
        }

    def _column_type(self) -> str:
        found = self.connection.execute(
            "SELECT format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = %s::regclass AND attname = 'matches'",
            (f'"{self.table}"',),
            prepare=False,
        ).fetchone()
        return str(found[0])


class DatabaseCacheStore(DjangoStore):
    """Django's DatabaseCache on PostgreSQL; the value is the JSON's bytes, pickled by it."""

    def __init__(self, places: Mapping[str, str], table: str) -> None:
        from django.core.cache import caches

        super().__init__(places, table)
        self.cache: Any = caches.create_connection("default")

    def create(self) -> None:
        from django.core.management import call_command

        call_command("createcachetable", verbosity=0)

    def write(self, identity: int, value: Any) -> None:
        self.cache.set(str(identity), json.dumps(value).encode())

    def read(self, identity: int) -> Any:
        return json.loads(self.cache.get(str(identity)))

    def read_elsewhere(self, identity: int) -> Any:
        key = self.cache.make_key(str(identity))
        packed = _only_value(self.places, self.table, "value", "cache_key", key)
        return json.loads(pickle.loads(base64.b64decode(packed)))

    def proof(self) -> Mapping[str, str]:
        return {"backend": f"{type(self.cache).__module__}.{type(self.cache).__qualname__}"}


def durability_of(
    places: Mapping[str, str],
    table: str,
    session: str,
    write: Callable[[], None],
    expected: str,
) -> Durability:
    """What the server says of this table and session, and how many commits it had flushed.

    The proof is the position of the log: a commit that is on the disk when it returns has
    moved ``pg_current_wal_flush_lsn`` beyond where the log ended before it.
    """
    import psycopg

    with psycopg.connect(connection_string(places), autocommit=True) as other:
        said = {name: _show(other, name) for name in ("fsync", "full_page_writes")}
        unlogged = _persistence(other, table) == "u"
        flushed = sum(_is_flushed_by(other, write) for _ in range(TRIES))
    said["synchronous_commit"] = session
    promise = _promise(said, unlogged)
    settings = ", ".join(f"{name}={value}" for name, value in said.items())
    settings += ", UNLOGGED" if unlogged else ""
    if promise != expected:
        raise WrongDurability(f"writes are {promise!r} ({settings}), not {expected!r}")
    if promise == ON_DISK and flushed < TRIES:
        raise WrongDurability(f"only {flushed} of {TRIES} commits were flushed when they returned")
    evidence = f"{flushed} of {TRIES} commits were in the flushed log when they returned"
    return Durability(promise, settings, evidence)


def _only_value(
    places: Mapping[str, str], table: str, column: str, key_column: str, key: Any
) -> Any:
    """One field of one row, on a new connection."""
    import psycopg

    query = f'SELECT "{column}" FROM "{table}" WHERE "{key_column}" = %s'  # noqa: S608 - ours
    with psycopg.connect(connection_string(places), autocommit=True) as other:
        rows = other.execute(query, (key,)).fetchall()
    if len(rows) != 1:
        raise LookupError(f"another connection finds {len(rows)} rows of a key just written")
    return rows[0][0]


def execute_by_django(statement: str) -> Any:
    """One statement on Django's connection; the first column of its first row, if it has any."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0] if cursor.description else None


def _promise(said: Mapping[str, str], unlogged: bool) -> str:
    if unlogged or said["fsync"] != "on":
        return EMPTIED
    return ON_DISK if said["synchronous_commit"] == "on" else LAST_MOMENTS


def _show(connection: Any, name: str) -> str:
    return str(connection.execute(f"SHOW {name}").fetchone()[0])


def _persistence(connection: Any, table: str) -> str:
    query = "SELECT relpersistence::text FROM pg_class WHERE oid = %s::regclass"
    return str(connection.execute(query, (f'"{table}"',)).fetchone()[0])


def _is_flushed_by(other: Any, write: Callable[[], None]) -> bool:
    """Does the flushed log end behind where the written one ended before?"""
    before = other.execute("SELECT pg_current_wal_insert_lsn()").fetchone()[0]
    write()
    query = "SELECT pg_current_wal_flush_lsn() > %s::pg_lsn"
    return bool(other.execute(query, (before,)).fetchone()[0])


def _codec_of(column: Column) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Python to parameter and result to Python; psycopg parses json and jsonb itself."""
    from psycopg.types.json import Json, Jsonb

    def keep(value: Any) -> Any:
        return value

    def encode(value: Any) -> bytes:
        return json.dumps(value).encode()

    codecs: dict[Column, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
        "jsonb": (Jsonb, keep),
        "json": (Json, keep),
        "text": (json.dumps, json.loads),
        "bytea": (encode, json.loads),
    }
    return codecs[column]


def _about_connection(connection: Any) -> str:
    import psycopg

    info = connection.info
    return f"psycopg {psycopg.__version__} ({psycopg.pq.__impl__}), {info.host}"


@cache
def _lookup_model(table: str) -> Any:
    """The article's model, but for the foreign key: a number with an index stands for it."""
    from django.db import models

    class AmazonAffiliateLookup(models.Model):
        song_id: Any = models.BigIntegerField(db_index=True)
        matches: Any = models.JSONField(null=True)
        search_index: Any = models.CharField(max_length=100, null=True)
        lookup_seconds: Any = models.FloatField(null=True)
        created: Any = models.DateTimeField(auto_now_add=True, db_index=True)
        modified: Any = models.DateTimeField(auto_now=True)

        class Meta:
            app_label = "stores"
            db_table = table

        def __str__(self) -> str:
            return str(self.song_id)

    return AmazonAffiliateLookup
