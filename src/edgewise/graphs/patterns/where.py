"""A pattern from a function of tensors, as FlexAttention's `mask_mod` is one."""

import inspect
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import EdgewiseError, caller, safe_repr
from edgewise.graphs.checks import check_memory
from edgewise.graphs.errors import TooManyPairs
from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Rows
from edgewise.layouts.ragged import pointer
from edgewise.layouts.rows import row_by_row

MOST = 1 << 34  # pairs, about a minute
AT_ONCE = 1 << 22  # pairs that are evaluated together
AS_PREDICATE = (
    "write it for two integer tensors and join conditions by `&` and `|`, as "
    "`lambda i, j: (j <= i) & (i - j < 3)`; of a `mask_mod`, `lambda i, j: mask_mod(0, 0, i, j)`"
)


class BadPredicate(EdgewiseError):
    """A predicate takes two integer tensors, queries and keys, and gives a truth value for each."""

    code = "bad-predicate"
    example = "where(lambda i: i > 3)"
    instead = "where(lambda i, j: i > j)"


@dataclass(frozen=True, repr=False)
class predicate(Pattern):
    """{(i, j) : function(i, j)}."""

    ignores_lengths = True

    function: Callable[[Tensor, Tensor], Tensor]

    def compute_rows_between(self, n: int, m: int, first: int, last: int) -> Rows:
        if (last - first) * m > MOST:
            raise TooManyPairs(
                f"a predicate is evaluated for all pairs, here {(last - first) * m:,}",
                caller(),
                "write it as patterns, such as `causal() & window(256)`, or for fewer tokens",
            )
        high, tall = last - first, max(1, AT_ONCE // max(m, 1))
        counts, starts, stops, total = [], [], [], 0
        keys = torch.arange(m)[None, :]
        for top in range(first, last, tall):
            queries = torch.arange(top, min(top + tall, last))[:, None]
            edge = np.zeros((len(queries), m + 2), np.int8)
            edge[:, 1:-1] = self.mask(queries, keys, n, m).numpy()
            change = np.diff(edge, axis=1)
            row, start = np.nonzero(change == 1)
            counts.append(np.bincount(row, minlength=len(queries)))
            starts.append(start)
            stops.append(np.nonzero(change == -1)[1])
            total += 2 * len(start)
            check_memory(total, f"the intervals of {top:,} queries")
        nothing = np.zeros(0, np.int64)
        parts = (np.concatenate(part or [nothing]) for part in (counts, starts, stops))
        count, start, stop = (part.astype(np.int64) for part in parts)
        return row_by_row(high, m, pointer(count), start, stop)

    def mask(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        shape = torch.broadcast_shapes(i.shape, j.shape)
        try:
            found = self.function(i, j)
        except Exception as problem:
            raise BadPredicate(
                f"the predicate raised {safe_repr(problem)}", caller(), AS_PREDICATE
            ) from problem
        if isinstance(found, bool):
            found = torch.tensor(found)
        if not isinstance(found, Tensor) or found.dtype != torch.bool:
            kind = found.dtype if isinstance(found, Tensor) else type(found).__name__
            raise BadPredicate(
                f"the predicate gives {kind}, not truth values",
                caller(),
                "compare inside of it; join conditions by `&` and `|`",
            )
        sizes = zip(found.shape, shape, strict=False)
        if found.ndim not in (0, len(shape)) or any(own not in (1, size) for own, size in sizes):
            raise BadPredicate(
                f"the predicate gives shape {tuple(found.shape)} for pairs of shape {tuple(shape)}",
                caller(),
                "compute element by element, without sums over an axis",
            )
        return found.expand(shape)

    def __repr__(self) -> str:
        return f"where(<{getattr(self.function, '__name__', 'function').strip('<>')}>)"


def where(function: Callable[[Tensor, Tensor], Tensor]) -> predicate:
    """{(i, j) : function(i, j)}: any condition on tensors of queries and keys.

    Rows and block lists come from evaluating all n·m pairs once, some rows at a time: quadratic
    time, and memory for the intervals alone. What is arithmetic is faster as a pattern of its own.

    >>> where(lambda i, j: (j <= i) & ((i + j) % 2 == 0)).dense(4).int().tolist()
    [[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]]
    """
    if not callable(function):
        raise BadPredicate(
            f"a predicate is a function, got {type(function).__name__}",
            caller(),
            "write `where(lambda i, j: i > j)`",
        )
    with suppress(ValueError):  # a function of C has no signature
        takes = inspect.signature(function)
        try:
            takes.bind(None, None)
        except TypeError:
            raise BadPredicate(
                f"a predicate takes queries and keys, this one takes `{takes}`",
                caller(),
                AS_PREDICATE,
            ) from None
    return predicate(function)
