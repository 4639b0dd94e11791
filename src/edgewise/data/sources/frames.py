"""Tables in memory: frames of pandas, polars and Arrow, or mappings from columns to values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from edgewise.data.errors import UnreadableSource
from edgewise.data.sources.duckdb import DuckDB
from edgewise.data.sources.table_source import TableSource, unreadable
from edgewise.errors import caller, named, safe_repr
from edgewise.graphs.drawing import require_package

FRAMES = ("pandas", "polars", "pyarrow")


def opened(thing: Any) -> Any:
    return _tables(thing) if isinstance(thing, Mapping) else None


@contextmanager
def _tables(frames: Mapping[Any, Any]) -> Iterator[TableSource]:
    require_package("duckdb")
    import duckdb

    connection = duckdb.connect()
    try:
        for name, frame in frames.items():
            if not isinstance(name, str) or not name:
                raise UnreadableSource(
                    f"a table is named {safe_repr(name)}", caller(), "names of tables are strings"
                )
            try:
                connection.register(name, _frame(name, frame))
            except (duckdb.Error, TypeError, ValueError) as problem:
                help = "give columns of numbers, strings, dates or lists of numbers"
                raise unreadable(f"table `{named(name)}`", problem, help) from None
        yield DuckDB(connection, "the mapping of frames")
    except duckdb.Error as problem:
        raise unreadable(
            "the mapping of frames", problem, "check the conditions of the schema"
        ) from None
    finally:
        connection.close()


def _frame(name: str, frame: Any) -> Any:
    """A frame that DuckDB reads."""
    kind = type(frame).__module__.partition(".")[0]
    if kind in FRAMES:
        _refuse_same_names(name, getattr(frame, "column_names", None) or frame.columns)
        return frame
    if not isinstance(frame, Mapping):
        raise UnreadableSource(
            f"table `{named(name)}` is {safe_repr(frame)}",
            caller(),
            "give a frame of pandas, polars or pyarrow, or a mapping from columns to values",
        )
    require_package("pyarrow")
    import pyarrow

    columns = {str(key): _plain(column) for key, column in frame.items()}
    lengths = {key: len(column) for key, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise UnreadableSource(
            f"table `{named(name)}` has columns of different lengths {lengths}",
            caller(),
            "give every column one value for each row",
        )
    try:
        return pyarrow.table(columns)
    except (pyarrow.ArrowException, OverflowError) as problem:
        help = "the values of a column are of one type; None is null"
        raise unreadable(f"table `{named(name)}`", problem, help) from None


def _refuse_same_names(name: str, columns: Any) -> None:
    """DuckDB renames the second of two columns."""
    names = [str(column) for column in columns]
    twice = [column for at, column in enumerate(names) if column in names[:at]]
    if twice:
        raise UnreadableSource(
            f"table `{named(name)}` has two columns `{named(twice[0])}`",
            caller(),
            "give every column a name of its own",
        )


def _plain(column: Any) -> Any:
    if isinstance(column, np.ndarray):
        return column if column.ndim == 1 else list(column)
    if hasattr(column, "tolist"):  # a tensor
        return column.tolist()
    return list(column) if isinstance(column, Sequence) and not isinstance(column, str) else column
