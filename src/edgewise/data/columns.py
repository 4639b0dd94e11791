"""Columns as they are read → numbers, names and what is missing."""

from __future__ import annotations

import datetime
import decimal
import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

SHOWN = 60


@dataclass(frozen=True)
class Unfit:
    """A value that a column of its kind cannot hold, in row `row` of the query, from 1."""

    row: int
    what: str


def missing(values: Any) -> np.ndarray:
    """Where a column has no value: null, or not a number."""
    if isinstance(values, np.ma.MaskedArray):
        return np.ma.getmaskarray(values) | missing(values.data)
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        return np.isnan(values)
    if isinstance(values, np.ndarray) and values.dtype.kind == "M":
        return np.isnat(values)
    if isinstance(values, np.ndarray) and values.dtype.kind in "iub":
        return np.zeros(len(values), dtype=bool)
    return np.fromiter((_is_missing(value) for value in values), dtype=bool, count=len(values))


def _is_missing(value: Any) -> bool:
    if value is None:
        return True
    try:
        return isinstance(value, float | decimal.Decimal | np.floating) and math.isnan(value)
    except (ValueError, decimal.InvalidOperation):  # a signalling NaN
        return True


def names(values: Any, where: np.ndarray) -> list[Any] | Unfit:
    """Keys: integers or strings, one kind in a column; None where there is none."""
    plain = listed(values)
    found: list[Any] = [None] * len(plain)
    kind: type | None = None
    for at, value in enumerate(plain):
        if where[at]:
            continue
        read = _name(value)
        if read is None:
            return Unfit(at + 1, f"{shown(value)} is neither an integer nor a string")
        if kind is not None and type(read) is not kind:
            return Unfit(at + 1, f"{shown(value)} is of another kind than the keys before it")
        kind, found[at] = type(read), read
    return found


def _name(value: Any) -> int | str | None:
    if isinstance(value, bool | np.bool_):
        return None
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, str):
        return value
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, datetime.datetime) and value.time() == datetime.time.min:
        return value.date().isoformat()  # DuckDB reads a date as its midnight
    if isinstance(value, datetime.date):
        return value.isoformat()
    return None


def numbers(values: Any, where: np.ndarray) -> np.ndarray | Unfit:
    """Values: (rows,) of numbers, or (rows, size) of lists of numbers; 0 where there is none."""
    if isinstance(values, np.ma.MaskedArray):
        values = values.filled(0) if values.dtype.kind in "iufb" else values.filled(None)
    if isinstance(values, np.ndarray) and values.dtype.kind in "iufb":
        return np.where(where, 0.0, values.astype(np.float64))
    plain = listed(values)
    present = [value for value, gone in zip(plain, where, strict=True) if not gone]
    if present and _is_list(present[0]):
        return _vectors(plain, where)
    found = np.zeros(len(plain))
    for at, value in enumerate(plain):
        if not where[at]:
            if not isinstance(value, int | float | decimal.Decimal | np.number | np.bool_):
                return _not_a_number(plain, where, at)
            found[at] = float(value)
    return found


def _not_a_number(plain: Sequence[Any], where: np.ndarray, first: int) -> Unfit:
    """The first value that is not one, or whose text is not: the others make a column of texts."""
    for at, value in enumerate(plain):
        if not where[at] and isinstance(value, str) and not _reads_as_number(value):
            return Unfit(at + 1, f"{shown(value)} is not a number")
    value = plain[first]
    kind = "a text" if isinstance(value, str) else "not a number"
    return Unfit(first + 1, f"{shown(value)} is {kind}")


def _reads_as_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def as_date(value: Any) -> datetime.datetime | None:
    """A date or time, in UTC if it has a zone; None for anything else."""
    if isinstance(value, str):
        try:
            value = datetime.datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None:
            value = value.astimezone(datetime.UTC).replace(tzinfo=None)
        return value
    if isinstance(value, datetime.date):
        return datetime.datetime.combine(value, datetime.time.min)
    return None


def days(values: Any, where: np.ndarray, since: str) -> np.ndarray | Unfit:
    """Dates and times as days after another; 0 where there is none."""
    first = as_date(since)
    found = np.zeros(len(values))
    for at, value in enumerate(listed(values)):
        if not where[at]:
            date = as_date(value)
            if date is None or first is None:
                return Unfit(at + 1, f"{shown(value)} is not a date")
            found[at] = (date - first) / datetime.timedelta(days=1)
    return found


def _vectors(plain: Sequence[Any], where: np.ndarray) -> np.ndarray | Unfit:
    size = next(len(value) for value, gone in zip(plain, where, strict=True) if not gone)
    found = np.zeros((len(plain), size))
    for at, value in enumerate(plain):
        if where[at]:
            continue
        if not _is_list(value) or len(value) != size or np.ma.getmaskarray(value).any():
            return Unfit(at + 1, f"{shown(value)} is not a list of {size} numbers")
        try:
            found[at] = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError):
            return Unfit(at + 1, f"{shown(value)} is not a list of numbers")
        if np.isnan(found[at]).any():
            return Unfit(at + 1, f"{shown(value)} holds a value that is missing")
    return found


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple | np.ndarray)


def listed(values: Any) -> Sequence[Any]:
    """A column as a list of Python's own values."""
    if isinstance(values, np.ma.MaskedArray):
        values = values.data
    if isinstance(values, np.ndarray) and values.dtype.kind == "M":
        values = values.astype("datetime64[us]")  # of nanoseconds `tolist` makes integers
    return values.tolist() if isinstance(values, np.ndarray) else values


def shown(value: Any) -> str:
    """A value in a message: an array as a list."""
    text = repr(value.tolist() if isinstance(value, np.ndarray | np.generic) else value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
