"""Inputs as Python and other packages hold them: lists, mappings, frames, sparse matrices.

[(0, 1), (2, 0)]               keys: a tuple is a key
["ann", "bob"], {3, 5}         keys of one term: strings, or a set of integers
[0.5, 2.0], [[0.1], [0.2]]     values on dense axes, as a float tensor of them
{"ann": 0.5, "bob": 2.0}       values by key; of more terms, {("ann", "bob"): 1.0}
frame[["from", "to"]]          keys, a column for each term
frame["age"]                   a column: reals are values, integers and strings are keys
a SciPy or torch sparse matrix its entries, as keys with values; booleans have none
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import caller, safe_repr
from edgewise.inputs.errors import BadInput
from edgewise.inputs.key_columns import column_array, frame_columns, is_column, refuse_unread
from edgewise.inputs.kinds import rows, tensor_copy

REAL = (float, np.floating)


def read_collection(name: str, item: Any, arity: int) -> Tensor | rows | None:
    """A collection as rows, or as a tensor of values; None for anything else."""
    if isinstance(item, Tensor):
        return None if item.layout == torch.strided else _sparse_tensor(name, item, arity)
    refuse_unread(item, f"`{name}`")
    if callable(getattr(item, "tocoo", None)):  # before mappings: one kind of SciPy's is a dict
        return _sparse_matrix(name, item, arity)
    if isinstance(item, Mapping):
        return _mapping(name, item, arity)
    if frame_columns(item) is not None:
        return _frame(name, item, arity)
    if is_column(item):
        return _one_column(name, item)
    if isinstance(item, Sequence | Set) and not isinstance(item, str | bytes):
        return _listed(name, list(item), arity, isinstance(item, Set))
    if getattr(getattr(item, "dtype", None), "kind", "") in ("U", "O", "T"):
        return rows(item)
    return None


def _listed(name: str, items: list[Any], arity: int, is_set: bool) -> Tensor | rows:
    if not items:
        return rows(torch.zeros(arity, 0, dtype=torch.int64))
    if all(isinstance(item, tuple) for item in items):
        return rows(items)
    if _holds_reals(items):
        try:
            return tensor_copy(items)
        except (TypeError, ValueError, RuntimeError):
            raise BadInput(
                f"`{name}` is a list of different lengths, or of other things than numbers",
                caller(),
                "give numbers of one shape; samples of different sizes are `ragged([...])`",
            ) from None
    if all(isinstance(item, Tensor) for item in items):
        raise BadInput(
            f"`{name}` is a list of tensors",
            caller(),
            "of one shape, `torch.stack(tensors)`; samples of a batch, `ragged(tensors)`",
        )
    if arity == 1 and (is_set or all(isinstance(item, str) for item in items)):
        return rows(items)
    raise BadInput(
        f"`{name}` is a list that holds `{type(items[0]).__name__}`: keys or values?",
        caller(),
        f"a tuple is a key: `[{tuple(range(arity))}, ...]`; values are floats: "
        "`[1.0, 2.0]`; a tensor of integers is keys (arity, rows), columns are `rows([a, b])`",
    )


def _holds_reals(items: Any) -> bool:
    """Whether there is a float somewhere in nested lists, also as a tensor."""
    if isinstance(items, list | tuple):
        return any(map(_holds_reals, items))
    if isinstance(items, Tensor):
        return False
    return isinstance(items, REAL) or getattr(getattr(items, "dtype", None), "kind", "") == "f"


def _mapping(name: str, item: Mapping[Any, Any], arity: int) -> rows:
    if not item:
        return rows(torch.zeros(arity, 0, dtype=torch.int64))
    keys = [key if isinstance(key, tuple) else (key,) for key in item]
    values = list(item.values())
    if arity != 1 and all(len(key) == 1 for key in keys):
        raise BadInput(
            f"`{name}` has {arity} terms, but {safe_repr(next(iter(item)))} is one",
            caller(),
            f"a key is a tuple, `{{{tuple(range(arity))}: 1.0}}`; of columns by name, "
            "`rows(list(columns.values()))`",
        )
    if all(isinstance(value, Tensor) for value in values):
        if len({value.shape for value in values}) == 1:
            return rows(keys, torch.stack(values))
    elif not any(isinstance(value, str | Mapping | Tensor) or value is None for value in values):
        floats = [value.tolist() if hasattr(value, "tolist") else value for value in values]
        try:
            return rows(keys, torch.tensor(floats, dtype=torch.float64)).of_any_precision()
        except (TypeError, ValueError):
            pass
    raise BadInput(
        f"`{name}` maps keys to values of different kinds, such as {safe_repr(values[0])}",
        caller(),
        "give numbers, lists of numbers or tensors, all of one shape; of a table with named "
        "columns, `rows(table[keys], table[value])`",
    )


def _frame(name: str, item: Any, arity: int) -> Tensor | rows:
    columns = frame_columns(item) or []
    if arity == 1 == len(columns):
        return _one_column(name, columns[0])
    if len(columns) != arity:
        raise BadInput(
            f"`{name}` has {arity} terms, but the frame has {len(columns)} columns",
            caller(),
            "choose the columns of keys, and of the value: `rows(frame[['a', 'b']], frame['w'])`; "
            "of features, `frame.to_numpy()`",
        )
    return rows(item)


def _one_column(name: str, item: Any) -> Tensor | rows:
    """A column of reals as values of the keys 0, 1, 2, ...; any other as keys."""
    found = column_array(item)
    if found.dtype.kind != "f":
        return rows(item)
    index: Any = getattr(item, "index", None)  # of pandas; a method of lists
    if hasattr(index, "equals") and index.tolist() != list(range(len(found))):
        raise BadInput(
            f"`{name}` is a column whose index is not 0, 1, 2, ...: keys or places?",
            caller(),
            "by key, `column.to_dict()`; by place, `column.reset_index(drop=True)`",
        )
    return torch.as_tensor(found.copy())


def _sparse_matrix(name: str, item: Any, arity: int) -> rows:
    """A matrix of SciPy; entries stored twice are summed, as SciPy reads them."""
    found = item.tocoo().copy()
    _check_axes(name, len(found.shape), arity)
    found.sum_duplicates()
    places = found.coords if hasattr(found, "coords") else (found.row, found.col)
    keys = torch.from_numpy(np.stack([np.asarray(place, dtype=np.int64) for place in places]))
    values = torch.from_numpy(found.data.copy())
    if values.dtype == torch.bool:
        return rows(keys[:, values])
    return rows(keys, values.double()).of_any_precision()


def _sparse_tensor(name: str, item: Tensor, arity: int) -> rows:
    found = item.to_sparse_coo() if item.layout != torch.sparse_coo else item
    _check_axes(name, found.sparse_dim(), arity)
    found = found.coalesce()
    if found.dtype == torch.bool:
        return rows(found.indices()[:, found.values()])
    return rows(found.indices(), found.values())


def _check_axes(name: str, axes: int, arity: int) -> None:
    if axes != arity:
        raise BadInput(
            f"`{name}` has {arity} terms, but the sparse matrix has {axes} axes",
            caller(),
            "of a matrix of features, give the dense one: `matrix.toarray()`, `x.to_dense()`",
        )
