"""Keys as people have them: tuples, columns of frames, arrays of strings; read into one tensor.

A string is a number from `STRINGS` on: its rank among the strings of the same keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import caller, safe_repr
from edgewise.ground.index import STRINGS, KeyOutOfRange
from edgewise.inputs.errors import BadInput

INTEGERS = (
    *(torch.int64, torch.int32, torch.int16, torch.int8),
    *(torch.uint64, torch.uint32, torch.uint16, torch.uint8),
)
TAKEN = "integers"
FRAMES = ("pandas", "polars", "pyarrow")
HELP = "give integers or strings: a tensor (arity, rows), a list of tuples, or columns of a frame"


def read_keys(item: Any) -> tuple[Tensor, tuple[str, ...]]:
    """Keys (arity, rows), and the strings that some of them are, in order.

    >>> read_keys([("b", 0), ("a", 7)])[0] - torch.tensor([[STRINGS], [0]])
    tensor([[1, 0],
            [0, 7]])
    >>> read_keys([("b", 0), ("a", 7)])[1]
    ('a', 'b')
    """
    refuse_unread(item, "the keys")
    columns = frame_columns(item)
    if columns is None and isinstance(item, Sequence | Set) and not isinstance(item, str | bytes):
        columns = _listed_columns(list(item))
    if columns is not None:
        return _coded([_column(column) for column in columns])
    if isinstance(item, Tensor):
        return _integers(item), ()
    found = _array(item)
    if found.ndim not in (1, 2):
        raise BadInput(f"`{safe_repr(item)}` are not keys", caller(), HELP)
    if found.dtype.kind in "UOT":
        return _coded([found] if found.ndim == 1 else list(found))
    try:
        return _integers(torch.as_tensor(found.copy())), ()
    except TypeError:
        raise BadInput(f"keys are an array of {found.dtype}", caller(), HELP) from None


def frame_columns(item: Any) -> list[Any] | None:
    """The columns of a frame of pandas, polars or Arrow; None for anything else."""
    if getattr(item, "nlevels", 1) > 1 and hasattr(item, "get_level_values"):
        return [item.get_level_values(level) for level in range(item.nlevels)]
    if hasattr(item, "iloc") and hasattr(item, "columns"):
        return [item.iloc[:, place] for place in range(item.shape[1])]
    for name in ("get_columns", "itercolumns"):
        if callable(getattr(item, name, None)):
            return list(getattr(item, name)())
    return None


def refuse_unread(item: Any, what: str) -> None:
    """Refuse what has not been computed yet, and arrays that hide some of their numbers."""
    if callable(getattr(item, "collect", None)):
        raise BadInput(f"{what}: a query that has not run", caller(), "run it: `frame.collect()`")
    if isinstance(item, np.ma.MaskedArray) and np.ma.is_masked(item):
        raise BadInput(
            f"{what}: an array with masked numbers", caller(), "drop them, or `array.filled(0.0)`"
        )


def is_column(item: Any) -> bool:
    """Whether it is one column of a frame: it has no precision that somebody chose."""
    package = type(item).__module__.partition(".")[0]
    return package in FRAMES and frame_columns(item) is None


def column_array(column: Any) -> np.ndarray:
    """A column as an array; lists of numbers in it are rows of the array."""
    if _has_missing(column):
        raise BadInput("a column has missing values", caller(), "drop their rows, or fill them in")
    found = np.asarray(column)
    if found.dtype == object and len(found) and isinstance(found[0], Sequence | np.ndarray):
        if isinstance(found[0], str | bytes):
            return found
        return np.array([list(item) for item in found])
    return found


def _has_missing(column: Any) -> bool:
    if hasattr(column, "isna"):  # pandas
        return bool(column.isna().any())
    nulls = getattr(column, "null_count", 0)  # of polars a method, of Arrow a number
    return bool(nulls() if callable(nulls) else nulls)


def _listed_columns(items: list[Any]) -> list[Any]:
    """The columns of a list: of tuples, each a key; of integers or strings, keys of one term;
    of other lists and arrays, those are the columns."""
    if items and all(isinstance(item, tuple) for item in items):
        if len({len(item) for item in items}) > 1:
            short, long = min(items, key=len), max(items, key=len)
            what = f"the key {safe_repr(short)} has {len(short)} terms, {safe_repr(long)} has "
            raise BadInput(f"{what}{len(long)}", caller(), "give keys of one relation, of one size")
        return [list(column) for column in zip(*items, strict=True)]
    if items and all(hasattr(item, "__len__") and not _is_text(item) for item in items):
        return items
    return [items]


def _is_text(item: Any) -> bool:
    return isinstance(item, str | bytes)


def _column(column: Any) -> np.ndarray:
    """One column: an array of integers, or of integers and strings as objects."""
    if isinstance(column, list | tuple):
        kinds = {type(term) for term in column}
        if kinds <= {int} or not kinds:
            return np.array([_in_range(term) for term in column], dtype=np.int64)
        found = np.empty(len(column), dtype=object)
        found[:] = column
        return found
    if isinstance(column, Tensor):
        return column.detach().cpu().numpy()
    return column_array(column) if is_column(column) else _array(column)


def _array(item: Any) -> np.ndarray:
    try:
        return np.asarray(item)
    except Exception:  # of the caller's class
        raise BadInput(f"`{safe_repr(item)}` are not keys", caller(), HELP) from None


def _coded(columns: list[np.ndarray]) -> tuple[Tensor, tuple[str, ...]]:
    """Columns of integers and strings as one tensor (arity, rows)."""
    lengths = {len(column) for column in columns}
    if len(lengths) > 1 or any(column.ndim != 1 for column in columns):
        shown = ", ".join(str(column.shape) for column in columns)
        raise BadInput(f"columns of keys have shapes {shown}", caller(), "give one of each length")
    terms = [None if column.dtype.kind in "iu" else column.tolist() for column in columns]
    strings = sorted({str(t) for column in terms if column for t in column if isinstance(t, str)})
    ranks = {string: STRINGS + rank for rank, string in enumerate(strings)}
    found = []
    for column, listed in zip(columns, terms, strict=True):
        if listed is None:
            found.append(_integers(torch.as_tensor(column.copy()))[0])
        else:
            codes = [ranks[t] if isinstance(t, str) else _in_range(t) for t in listed]
            found.append(torch.tensor(codes, dtype=torch.int64))
    empty = torch.zeros(0, 0, dtype=torch.int64)
    return torch.stack(found) if found else empty, tuple(strings)


def _in_range(term: Any) -> int:
    """An integer key; anything else is refused by its name."""
    is_integer = isinstance(term, int | np.integer) and not isinstance(term, bool)
    if is_integer and not -STRINGS < int(term) < STRINGS:
        raise KeyOutOfRange(
            f"the key {term} does not fit", caller(), "use keys below 2^40, or a string"
        )
    if not is_integer:
        missing = term is None or type(term).__name__ in ("NAType", "NaTType") or term != term
        what = "a key is missing" if missing else f"`{safe_repr(term)}` is not a key"
        help = "drop its row" if missing else HELP
        if isinstance(term, float) and not missing:
            help = "keys are integers, `.astype(int)`, or strings; values an array of floats"
        raise BadInput(what, caller(), help)
    return int(term)


def _integers(keys: Tensor) -> Tensor:
    if keys.dtype not in INTEGERS or keys.ndim not in (1, 2):
        raise BadInput(
            f"keys are a tensor (arity, rows) of {TAKEN}, got {keys.dtype} {tuple(keys.shape)}",
            caller(),
            "write `rows(keys, values)` with one row of keys for each term"
            if keys.dtype != torch.bool
            else "list the pairs of a mask: `mask.nonzero().T`, of NumPy `np.argwhere(mask).T`",
        )
    if keys.dtype == torch.uint64 and keys.numel() and int(keys.cpu().numpy().max()) >= STRINGS:
        raise KeyOutOfRange("a key does not fit", caller(), "use keys below 2^40, or a string")
    return (keys if keys.ndim == 2 else keys.unsqueeze(0)).long().resolve_neg()


def combined(keys: Tensor, values: Tensor | None, duplicates: str) -> tuple[Tensor, Tensor | None]:
    """Each key once: repetitions counted, summed, or taken once.

    >>> combined(torch.tensor([[3, 1, 3]]), None, "count")
    (tensor([[1, 3]]), tensor([1., 2.]))
    """
    unique, place, counts = keys.unique(dim=1, return_inverse=True, return_counts=True)
    if duplicates == "count":
        return unique, counts.to(torch.get_default_dtype())
    if values is None:
        return unique, None
    zeros = values.new_zeros(unique.shape[1], *values.shape[1:])
    return unique, zeros.index_add(0, place.to(values.device), values)


def recoded(keys: Tensor, strings: Iterable[str], ranks: dict[str, int]) -> Tensor:
    """Keys by the numbers that their strings have among others."""
    moved = torch.tensor([STRINGS + ranks[string] for string in strings], dtype=torch.int64)
    codes = (keys - STRINGS).clamp(min=0, max=max(len(moved) - 1, 0))
    return torch.where(keys >= STRINGS, moved[codes], keys) if len(moved) else keys
