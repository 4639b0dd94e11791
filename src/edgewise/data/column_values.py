"""The numbers of a column of values, as its schema says: dates, standardised, one-hot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from edgewise.data import columns
from edgewise.data.dataset import as_numbers
from edgewise.data.errors import BadColumn
from edgewise.data.schema import ValueColumn, days, one_hot, standard, table
from edgewise.errors import EdgewiseError, safe_repr


def values_of(
    spec: table,
    item: ValueColumn,
    raw: Mapping[str, Any],
    gone: Mapping[str, np.ndarray],
    errors: list[EdgewiseError],
    dtype: torch.dtype,
) -> tuple[np.ndarray | None, ValueColumn]:
    """The numbers of a column, which fit a precision, and the column with what was found of it."""
    name = item if isinstance(item, str) else item.name
    if isinstance(item, one_hot):
        return _one_hot(spec, item, raw[name], gone[name], errors)
    dates = item.of if isinstance(item, standard) else item
    if isinstance(dates, days):
        found = columns.days(raw[name], gone[name], dates.since)
    else:
        found = columns.numbers(raw[name], gone[name])
    if isinstance(found, columns.Unfit):
        errors.append(bad_column(spec, name, found, _other_kind(name, dates, raw[name], found.row)))
        return None, item
    if isinstance(item, standard):
        if item.mean is None:
            centre, spread = _moments(found[~gone[name]])
            item = standard(item.of, _plain(centre), _plain(spread))
        else:
            centre, spread = np.array(item.mean), np.array(item.deviation)
            if centre.shape != found.shape[1:]:
                what = f"`{name}` of `{spec.name}` has values of the shape {found.shape[1:]}"
                help = f"give a mean and a deviation of the shape {found.shape[1:]}"
                errors.append(BadColumn(f"{what}, its mean {centre.shape}", spec.place, help))
                return None, item
        found = (found - centre) / spread
    if isinstance(spec.nulls, Mapping) and name in spec.nulls:
        found[gone[name]] = spec.nulls[name]
    beyond = np.abs(found) > torch.finfo(dtype).max
    if beyond.any():
        row = int(beyond.reshape(len(found), -1).any(1).argmax())
        what, help = "it is infinite", "give finite values"
        if not np.isinf(found[row]).any():
            what = f"{columns.shown(found[row])} is too large for {dtype}"
            help = "read `data.standard` of it, or all values with `dtype=torch.float64`"
        errors.append(bad_column(spec, name, columns.Unfit(row + 1, what), help))
    return found, item


def _plain(found: np.ndarray) -> float | tuple[float, ...]:
    return tuple(found.tolist()) if found.ndim else float(found)


def _moments(found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean and the deviation of rows, 1 where they do not differ."""
    if not len(found) or np.isinf(found).any():
        return np.zeros(found.shape[1:]), np.ones(found.shape[1:])
    spread = found.std(0)
    return found.mean(0), np.where(spread > 0, spread, 1.0)


def _other_kind(name: str, item: str | days, column: Any, row: int) -> str:
    """What a column is that holds no numbers, or no dates."""
    if isinstance(item, days):
        return 'give dates, times, or texts such as "2026-01-31"'
    if columns.as_date(columns.listed(column)[row - 1]) is not None:
        return f'a column of dates is a number as `days("{name}")`'
    return f'a column of names is a vector as `one_hot("{name}")`'


def _one_hot(
    spec: table, item: one_hot, raw: Any, gone: np.ndarray, errors: list[EdgewiseError]
) -> tuple[np.ndarray | None, one_hot]:
    found = columns.names(raw, gone)
    if isinstance(found, columns.Unfit):
        errors.append(bad_column(spec, item.name, found, "categories are integers or strings"))
        return None, item
    present = [name for name in found if name is not None]
    places = (
        as_numbers(present)
        if item.categories is None
        else {name: at for at, name in enumerate(item.categories)}
    )
    vectors = np.zeros((len(found), len(places)))
    for at, name in enumerate(found):
        if name is None:
            continue
        if name not in places:
            unfit = columns.Unfit(at + 1, f"{safe_repr(name)} is not one of the categories")
            errors.append(bad_column(spec, item.name, unfit, f"they are {list(places)}"))
            return None, item
        vectors[at, places[name]] = 1.0
    return vectors, one_hot(item.name, tuple(places))


def bad_column(spec: table, name: str, found: columns.Unfit, help: str) -> BadColumn:
    return BadColumn(
        f"`{name}` of `{spec.name}`, row {found.row:,}: {found.what}", spec.place, help
    )
