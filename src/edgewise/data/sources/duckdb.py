"""DuckDB: a database file or an open connection; files and frames are read through it too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from edgewise.data.schema import ColumnCondition
from edgewise.data.sources.table_source import TableSource, has_magic, unreadable
from edgewise.graphs.drawing import require_package

MAGIC = b"DUCK"  # after the checksum of the first block


class DuckDB:
    """A connection of DuckDB."""

    mark = "?"

    def __init__(self, connection: Any, name: str) -> None:
        self.connection, self.name = connection, name

    def tables(self) -> dict[str, tuple[str, ...]]:
        query = "SELECT table_schema, table_name FROM information_schema.tables ORDER BY ALL"
        found = self.connection.execute(query).fetchall()
        ((here,),) = self.connection.execute("SELECT current_schema()").fetchall()
        names: dict[str, tuple[str, ...]] = {f"{a}.{b}": (a, b) for a, b in found}
        return names | {name: (schema, name) for schema, name in found if schema == here}

    def columns(self, table: tuple[str, ...]) -> list[str]:
        query = (
            "SELECT column_name FROM information_schema.columns "
            "WHERE table_schema = ? AND table_name = ? ORDER BY ordinal_position"
        )
        return [name for (name,) in self.connection.execute(query, list(table)).fetchall()]

    def fetch(self, query: str, parameters: Sequence[Any]) -> list[Any]:
        answer = self.connection.execute(query, list(parameters))
        found: list[np.ndarray] = list(answer.fetchnumpy().values())
        return found

    def unlike(self, table: tuple[str, ...], condition: ColumnCondition) -> str | None:
        return None  # its columns have types, which a query checks


def opened(thing: Any) -> Any:
    if type(thing).__module__.partition(".")[0] in ("duckdb", "_duckdb"):
        return _connection(thing)
    if isinstance(thing, str | Path) and has_magic(thing, MAGIC, at=8):
        return _database(Path(thing))
    return None


@contextmanager
def _database(path: Path) -> Iterator[TableSource]:
    require_package("duckdb")
    import duckdb

    try:
        connection = duckdb.connect(str(path), read_only=True)
    except duckdb.Error as problem:
        raise unreadable(f"`{path}`", problem, "close other programs that write it") from None
    try:
        with _connection(connection, f"`{path}`") as source:
            yield source
    finally:
        connection.close()


@contextmanager
def _connection(connection: Any, name: str = "the connection of DuckDB") -> Iterator[TableSource]:
    import duckdb

    try:
        cursor = connection.cursor()
    except duckdb.Error as problem:
        raise unreadable(name, problem, "open it again") from None
    try:
        cursor.execute("BEGIN TRANSACTION")
        yield DuckDB(cursor, name)
        cursor.execute("COMMIT")
    except duckdb.Error as problem:
        raise unreadable(name, problem, "check the source, and read it again") from None
    finally:
        cursor.close()
