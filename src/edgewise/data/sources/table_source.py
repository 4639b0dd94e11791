"""What every source can do: list its tables and columns, and answer a query."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from edgewise.data.errors import UnreadableSource
from edgewise.data.schema import ColumnCondition
from edgewise.errors import caller

FIRST = 300  # characters of a message of another library


class TableSource(Protocol):
    """`mark` stands for a parameter in its SQL."""

    mark: str
    name: str

    def tables(self) -> dict[str, tuple[str, ...]]:
        """Every table and view: the name in a schema → its name in SQL, with what it is in."""

    def columns(self, table: tuple[str, ...]) -> list[str]: ...

    def fetch(self, query: str, parameters: Sequence[Any]) -> list[Any]:
        """The columns of the answer: arrays, or lists with None for null."""

    def unlike(self, table: tuple[str, ...], condition: ColumnCondition) -> str | None:
        """What a condition compares that is not alike, where a query would not say so."""


def columns_of(rows: Sequence[Sequence[Any]], count: int) -> list[list[Any]]:
    """Rows → columns, also of no rows."""
    return [list(values) for values in zip(*rows, strict=True)] or [[] for _ in range(count)]


def has_magic(path: str | Path, magic: bytes, at: int = 0) -> bool:
    """Whether a file says that it is of a kind, `at` this many bytes from its start."""
    try:
        with open(path, "rb") as file:
            return file.read(at + len(magic))[at:] == magic
    except (OSError, ValueError):  # a path with a null character
        return False


def unreadable(name: str, problem: Exception, help: str) -> UnreadableSource:
    first = str(problem).strip().splitlines() or [type(problem).__name__]
    return UnreadableSource(f"{name}: {first[0][:FIRST]}", caller(), help)
