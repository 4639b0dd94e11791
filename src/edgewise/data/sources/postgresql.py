"""PostgreSQL: `postgresql://...`, or an open connection of psycopg."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from edgewise.data.schema import ColumnCondition
from edgewise.data.sources.table_source import TableSource, columns_of, unreadable
from edgewise.graphs.drawing import require_package

SCHEMES = ("postgresql://", "postgres://")
SECONDS = 10  # to connect
RELATIONS = "pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON relnamespace = n.oid"
LOST = "check that the server runs and that you may read the tables, then read again"


class PostgreSQL:
    """A connection of psycopg."""

    mark = "%s"

    def __init__(self, connection: Any, name: str) -> None:
        self.connection, self.name = connection, name

    def tables(self) -> dict[str, tuple[str, ...]]:
        # the standard's information_schema lacks materialised views, and hides what may not be read
        query = (
            f"SELECT nspname, relname FROM {RELATIONS} WHERE relkind IN ('r', 'p', 'v', 'm', 'f') "
            "AND nspname NOT IN ('pg_catalog', 'information_schema') "
            "AND nspname <> 'pg_toast' ORDER BY 1, 2"
        )
        found = self._rows(query)
        path = self._rows("SELECT unnest(current_schemas(true))")
        names: dict[str, tuple[str, ...]] = {
            f"{schema}.{name}": (schema, name) for schema, name in found
        }
        for (here,) in reversed(path):  # the first schema of the path wins: temporary tables'
            names |= {name: (schema, name) for schema, name in found if schema == here}
        return names

    def columns(self, table: tuple[str, ...]) -> list[str]:
        query = (
            f"SELECT attname FROM {RELATIONS} JOIN pg_catalog.pg_attribute a ON attrelid = c.oid "
            "WHERE nspname = %s AND relname = %s AND attnum > 0 AND NOT attisdropped "
            "ORDER BY attnum"
        )
        return [name for (name,) in self._rows(query, table)]

    def fetch(self, query: str, parameters: Sequence[Any]) -> list[Any]:
        with self._cursor() as cursor:
            cursor.execute(query, list(parameters))
            return columns_of(cursor.fetchall(), len(cursor.description))

    def unlike(self, table: tuple[str, ...], condition: ColumnCondition) -> str | None:
        return None  # its columns have types, which a query checks

    def _rows(self, query: str, parameters: Sequence[Any] = ()) -> list[Any]:
        with self._cursor() as cursor:
            found: list[Any] = cursor.execute(query, list(parameters)).fetchall()
        return found

    def _cursor(self) -> Any:
        from psycopg.rows import tuple_row

        return self.connection.cursor(row_factory=tuple_row)


def opened(thing: Any) -> Any:
    if isinstance(thing, str) and thing.startswith(SCHEMES):
        return _server(thing)
    if type(thing).__module__.partition(".")[0] == "psycopg":
        return _connection(thing, "the connection of PostgreSQL")
    return None


def _without_password(address: str) -> str:
    """An address as errors show it.

    >>> _without_password("postgresql://ann:secret@host:5432/shop?sslmode=require")
    'postgresql://host:5432/shop'
    """
    try:
        found = urlsplit(address)
    except ValueError:  # not an address; what it is may hold a password
        return SCHEMES[0]
    return f"{found.scheme}://{found.netloc.rpartition('@')[2]}{found.path}"


@contextmanager
def _server(address: str) -> Iterator[TableSource]:
    require_package("psycopg")
    import psycopg

    name = f"`{_without_password(address)}`"
    try:
        # what the address says of the timeout wins
        options = {} if "connect_timeout" in address else {"connect_timeout": SECONDS}
        connection = psycopg.connect(address, **options)  # type: ignore[arg-type]
    except psycopg.Error as problem:
        raise unreadable(name, problem, LOST) from None
    try:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        with _connection(connection, name) as source:
            yield source
    finally:
        connection.close()


@contextmanager
def _connection(connection: Any, name: str) -> Iterator[TableSource]:
    import psycopg

    try:
        with connection.transaction():
            yield PostgreSQL(connection, name)
    except psycopg.Error as problem:
        raise unreadable(name, problem, LOST) from None
