"""SQLite: a database file or an open connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgewise.data.schema import ColumnCondition
from edgewise.data.sources.table_source import TableSource, columns_of, has_magic, unreadable
from edgewise.data.sql import quoted

MAGIC = b"SQLite format 3\x00"


class SQLite:
    """A connection of SQLite."""

    mark = "?"

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self.connection, self.name = connection, name

    def tables(self) -> dict[str, tuple[str, ...]]:
        query = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name"
        return {name: (name,) for (name,) in self.connection.execute(query)}

    def columns(self, table: tuple[str, ...]) -> list[str]:
        rows = self.connection.execute(f"PRAGMA table_info({quoted(table[0])})")
        return [row[1] for row in rows]

    def fetch(self, query: str, parameters: Sequence[Any]) -> list[Any]:
        answer = self.connection.execute(query, parameters)
        return columns_of(answer.fetchall(), len(answer.description))

    def unlike(self, table: tuple[str, ...], condition: ColumnCondition) -> str | None:
        """Of a text and a number, SQLite calls the number smaller, or compares both as texts."""
        name = quoted(condition.column)
        query = f"SELECT DISTINCT typeof({name}) FROM {quoted(table[0])}"
        kinds = {kind for (kind,) in self.connection.execute(query)}
        several = condition.operator == "IN"
        for value in condition.value if several else [condition.value]:
            if isinstance(value, str) and kinds & {"integer", "real"}:
                return f"it holds numbers, and is compared with the text {value!r}"
            if isinstance(value, int | float) and "text" in kinds:
                return f"it holds texts, and is compared with the number {value!r}"
        return None


def opened(thing: Any) -> Any:
    if isinstance(thing, sqlite3.Connection):
        return _connection(thing, "the connection of SQLite")
    if isinstance(thing, str | Path) and has_magic(thing, MAGIC):
        return _database(Path(thing))
    return None


@contextmanager
def _database(path: Path) -> Iterator[TableSource]:
    address = f"{path.absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(address, uri=True)
    try:
        with _connection(connection, f"`{path}`") as source:
            yield source
    finally:
        connection.close()


@contextmanager
def _connection(connection: sqlite3.Connection, name: str) -> Iterator[TableSource]:
    """A savepoint opens a transaction, or one inside that of the caller."""
    factory, connection.row_factory = connection.row_factory, None
    try:
        connection.execute("SAVEPOINT edgewise_read")
        yield SQLite(connection, name)
        connection.execute("RELEASE edgewise_read")
    except sqlite3.ProgrammingError as problem:  # a connection that is closed, or another thread's
        raise unreadable(name, problem, "open it again, in this thread") from None
    except sqlite3.Error as problem:
        raise unreadable(name, problem, "check the file with `PRAGMA integrity_check`") from None
    finally:
        connection.row_factory = factory
