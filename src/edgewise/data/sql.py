"""Conditions and columns → SQL: names are quoted, values are bound, nothing is pasted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgewise.data.schema import ColumnCondition


def quoted(name: str) -> str:
    """A name of a table or a column in SQL.

    >>> quoted('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def select(
    table: Sequence[str], columns: Sequence[str], where: Sequence[ColumnCondition], mark: str
) -> tuple[str, list[Any]]:
    """The query for these columns, and the values of its parameters, each written as `mark`.

    >>> select(["people"], ["id"], [ColumnCondition("age", ">=", 18)], "?")
    ('SELECT "id" FROM "people" WHERE "age" >= ?', [18])
    """

    def name(text: str) -> str:  # psycopg finds its parameters by `%`
        return quoted(text).replace("%", "%%") if mark == "%s" else quoted(text)

    text = f"SELECT {', '.join(map(name, columns))} FROM {'.'.join(map(name, table))}"
    values: list[Any] = []
    conditions = []
    for one in where:
        several = one.operator == "IN"
        bound = list(one.value) if several else [one.value]
        marks = ", ".join([mark] * len(bound)) or "NULL"  # nothing is in an empty list
        conditions.append(f"{name(one.column)} {one.operator} {f'({marks})' if several else mark}")
        values += bound
    return text + (f" WHERE {' AND '.join(conditions)}" if conditions else ""), values
