"""Tables of a database as facts and queries: names are quoted, rows are read as those of CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from edgewise.data.sql import quoted
from edgewise.errors import caller, safe_repr
from edgewise.neuralogic.dataset.base import ConvertibleDataset
from edgewise.neuralogic.dataset.csv import CSVDataset, CSVFile, Mode
from edgewise.neuralogic.dataset.logic import Dataset
from edgewise.neuralogic.errors import BadSample


class DBSource:
    """A table, the relation that its rows are facts of, and which columns are terms and the value.

    A table of a schema is "schema.table".

    >>> import sqlite3
    >>> cursor = sqlite3.connect(":memory:").cursor()
    >>> _ = cursor.execute("CREATE TABLE roads (a, b, km)")
    >>> _ = cursor.execute("INSERT INTO roads VALUES ('home', 'mill', 4)")
    >>> print(*DBSource("road", "roads", ["a", "b"], "km").to_csv(cursor).to_logic_form())
    4.0 road(home, mill).
    """

    def __init__(
        self,
        relation_name: str,
        table_name: str,
        term_columns: Sequence[str],
        value_column: str | None = None,
        default_value: float = 1.0,
        value_mapper: Callable[[Any], Any] | None = None,
        skip_rows: int = 0,
        n_rows: int | None = None,
        replace_empty_column: str | float = 0,
        sep: str = ",",
    ) -> None:
        if isinstance(term_columns, str) or not term_columns:
            raise BadSample(
                f"the terms of `{relation_name}` are {safe_repr(term_columns)}",
                caller(),
                'write a list of columns: `["from", "to"]`',
            )
        self.relation_name, self.table_name, self.sep = relation_name, table_name, sep
        self.term_columns, self.value_column = list(term_columns), value_column
        self.options: dict[str, Any] = {
            "default_value": default_value,
            "value_mapper": value_mapper,
            "skip_rows": skip_rows,
            "n_rows": n_rows,
            "replace_empty_column": replace_empty_column,
        }

    def to_csv(self, cursor: Any) -> CSVFile:
        """The rows of the table, in a file in memory."""
        columns = [*self.term_columns, *([] if self.value_column is None else [self.value_column])]
        table = ".".join(map(quoted, self.table_name.split(".")))
        read = ", ".join(f"t.{quoted(name)}" for name in columns)  # alone, SQLite reads it as text
        try:
            cursor.execute(f"SELECT {read} FROM {table} AS t")
            rows = cursor.fetchall()
        except Exception as problem:  # each database has errors of its own
            raise BadSample(
                f"cannot read `{self.table_name}`: {str(problem).strip().splitlines()[0]}",
                caller(),
                f"the table must have the columns {', '.join(columns)}",
            ) from None
        file = io.StringIO()
        csv.writer(file, delimiter=self.sep, lineterminator="\n").writerows(rows)
        file.seek(0)
        value = None if self.value_column is None else len(self.term_columns)
        terms = list(range(len(self.term_columns)))
        return CSVFile(
            self.relation_name, file, self.sep, value, term_columns=terms, **self.options
        )


class DBDataset(ConvertibleDataset):
    """Tables of facts and of queries, read through a connection of Python's database interface.

    >>> import sqlite3
    >>> connection = sqlite3.connect(":memory:")
    >>> _ = connection.execute("CREATE TABLE roads (a, b)")
    >>> _ = connection.execute("INSERT INTO roads VALUES ('home', 'mill')")
    >>> source = DBSource("road", "roads", ["a", "b"])
    >>> DBDataset(connection, source, source).to_dataset().pairs()
    [(1.0 road(home, mill)., [1.0 road(home, mill).])]
    """

    def __init__(
        self,
        connection: Any,
        db_sources: list[DBSource] | DBSource,
        queries_db_source: DBSource | None = None,
        mode: Mode = Mode.ONE_EXAMPLE,
    ) -> None:
        self.connection = connection
        self.db_sources = [db_sources] if isinstance(db_sources, DBSource) else list(db_sources)
        self.queries_db_source, self.mode = queries_db_source, mode

    def add_db_source(self, source: DBSource) -> None:
        self.db_sources.append(source)

    def set_queries(self, source: DBSource) -> None:
        self.queries_db_source = source

    def to_dataset(self) -> Dataset:
        """Samples, as those of `CSVDataset`."""
        with closing(self._cursor()) as cursor:
            files = [source.to_csv(cursor) for source in self.db_sources]
            source = self.queries_db_source
            queries = None if source is None else source.to_csv(cursor)
        return CSVDataset(files, queries, self.mode).to_dataset()

    def _cursor(self) -> Any:
        try:
            return self.connection.cursor()
        except Exception as problem:  # each database has errors of its own
            raise BadSample(
                f"`{safe_repr(self.connection)}` is not an open connection: {problem}",
                caller(),
                'open one: `sqlite3.connect("shop.db")`',
            ) from None


class PDDLDataset(ConvertibleDataset):
    """Planning problems: not read here.

    >>> from edgewise import EdgewiseError
    >>> try:
    ...     PDDLDataset("problem.pddl")
    ... except EdgewiseError as error:
    ...     print(error.code)
    bad-sample
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        raise BadSample(
            "PDDL problems are not read here",
            caller(),
            "write the facts of each state as a `Sample`, or read tables with `DBDataset`",
        )
