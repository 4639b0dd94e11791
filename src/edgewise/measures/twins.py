"""Tokens that nothing can tell apart, taken together: a smaller graph with the same answers."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from edgewise.layouts import Rows
from edgewise.layouts.ragged import Bools, Ints, owners, pointer, ranges
from edgewise.measures.product import Product

# A graph with more edges than this is only multiplied with, which progressions make cheap.
MOST_EDGES, FEW_EDGES, PER_PIECE = 30_000_000, 2_000_000, 4


@dataclass(frozen=True, eq=False)
class Twins:
    """Tokens with the same row and the same column as one node of weight `size`.

    Between two nodes either all pairs are edges or none, so distances, degrees, triangles and
    eigenvalues are those of the graph itself. Twins without an edge to each other are two nodes,
    one of them and the others, because the way from one to another is a path too; `stands` says
    for how many tokens a node is the start of paths: the others' is 0.
    """

    token: Ints
    size: Ints
    stands: Ints
    loop: Bools
    ptr: Ints
    index: Ints

    @property
    def count(self) -> int:
        return len(self.size)

    @cached_property
    def matrix(self) -> Any:
        """The edges between nodes as SciPy reads them."""
        from scipy.sparse import csr_array

        shape = (self.count, self.count)
        data = np.ones(len(self.index))
        return csr_array((data, self.index.astype(np.int32), self.ptr), shape=shape)

    @cached_property
    def degree(self) -> np.ndarray:
        """The edges of a token, self-loops aside."""
        return np.asarray(self.matrix @ self.size.astype(float)) - self.loop


def fingerprint(rows: Rows) -> Ints:
    """A number for each row that two rows share if they are equal, and else never in practice."""
    bits = np.random.Generator(np.random.Philox(0)).integers(-(2**62), 2**62, rows.m)
    return Product(rows)(bits)


def twins(rows: Rows, marks: Ints) -> Twins | None:
    """The graph of the rows with tokens of equal marks as one; None if it has too many edges."""
    _, token, kind, size = np.unique(
        marks, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.argsort(token, kind="stable")
    token, size = token[order], size[order]
    loop = loops_of(rows)[token]
    apart = np.flatnonzero((size > 1) & ~loop)
    if len(apart):
        number = np.empty_like(order)
        number[order] = np.arange(len(order))
        second = _second(number[kind], apart)
        stands = np.concatenate([size, np.zeros_like(apart)])
        size = np.concatenate([np.where((size > 1) & ~loop, 1, size), size[apart] - 1])
        token = np.concatenate([token, second])
        order = np.argsort(token, kind="stable")
        token, size, stands = token[order], size[order], stands[order]
        loop = loops_of(rows)[token]
    else:
        stands = size
    edges = _edges_among(rows, token)
    return None if edges is None else Twins(token, size, stands, loop, *edges)


def _second(kind: Ints, chosen: Ints) -> Ints:
    """The second token of each chosen kind."""
    order = np.argsort(kind, kind="stable")
    return order[np.searchsorted(kind[order], chosen) + 1]


def loops_of(rows: Rows) -> Bools:
    """Which tokens hear themselves."""
    wide = rows.expand()
    row = owners(wide.ptr)
    hit = (wide.start <= row) & (row < wide.stop) & ((row - wide.start) % wide.step == 0)
    return np.bincount(row[hit], minlength=rows.n) > 0


def _edges_among(rows: Rows, token: Ints) -> tuple[Ints, Ints] | None:
    """The pairs among the given sorted tokens, as CSR of their places in the list."""
    wide = rows.expand()
    count = np.diff(wide.ptr)[token]
    piece, row = ranges(wide.ptr[token], count), np.repeat(np.arange(len(token)), count)
    low = np.searchsorted(token, wide.start[piece])
    length = np.searchsorted(token, wide.stop[piece]) - low
    if int(length.sum()) > min(MOST_EDGES, max(FEW_EDGES, PER_PIECE * len(piece))):
        return None
    which, index = np.repeat(np.arange(len(piece)), length), ranges(low, length)
    if (wide.step[piece] > 1).any():
        hit = (token[index] - wide.start[piece][which]) % wide.step[piece][which] == 0
        which, index = which[hit], index[hit]
        order = np.lexsort((index, row[which]))
        which, index = which[order], index[order]
    return pointer(np.bincount(row[which], minlength=len(token))), index
