"""Databases, files and frames, read by SQL: one file per kind, the first that fits opens a thing.

To read a new kind, write `opened(thing)`, a context manager of a `TableSource` or None, and add it
to `KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from edgewise.data.errors import UnreadableSource
from edgewise.data.sources import duckdb, files, frames, postgresql, sqlite
from edgewise.data.sources.table_source import TableSource
from edgewise.errors import caller, safe_repr

KINDS: tuple[Callable[[Any], AbstractContextManager[TableSource] | None], ...] = (
    postgresql.opened,
    sqlite.opened,
    duckdb.opened,
    files.opened,
    frames.opened,
)


@contextmanager
def open_source(thing: object) -> Iterator[TableSource]:
    """A source in one transaction: every table is read as it was at the same moment."""
    for kind in KINDS:
        found = kind(thing)
        if found is not None:
            with found as source:
                yield source
            return
    raise UnreadableSource(
        f"{_described(thing)} is not a source of tables",
        caller(),
        'name the table: `data.read({"people": frame}, schema)`'
        if hasattr(thing, "columns")
        else "give a path, `postgresql://...`, a connection, or a mapping from names to frames",
    )


def _described(thing: object) -> str:
    """What was given: of a frame its type, which a page of its rows would hide."""
    return f"a {type(thing).__name__}" if hasattr(thing, "columns") else safe_repr(thing)
