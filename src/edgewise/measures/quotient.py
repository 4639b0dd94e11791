"""The quotient of a graph by its twins: a smaller graph with the same measures."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from edgewise.layouts import Rows
from edgewise.layouts.ragged import Bools, Ints, owners, pointer, ranges
from edgewise.measures.matvec import MatVec

# A graph with more edges than this is not listed, only multiplied: cheap for progressions.
MOST_EDGES, ALWAYS_LISTED, PER_RUN = 30_000_000, 2_000_000, 4


@dataclass(frozen=True, eq=False)
class QuotientGraph:
    """Tokens with the same row and the same column as one node of weight `size`.

    Between two nodes either all pairs are edges or none, so distances, degrees, triangles and
    eigenvalues are those of the graph itself. Twins that are not adjacent are two nodes, one of
    them and the others, because paths also join them; `starts` is the number of tokens that a node
    represents as a start of paths, 0 for the others.
    """

    token: Ints
    size: Ints
    starts: Ints
    loop: Bools
    ptr: Ints
    index: Ints

    @property
    def count(self) -> int:
        return len(self.size)

    @cached_property
    def matrix(self) -> Any:
        """The adjacency matrix of the nodes, for SciPy."""
        from scipy.sparse import csr_array

        shape = (self.count, self.count)
        data = np.ones(len(self.index))
        return csr_array((data, self.index.astype(np.int32), self.ptr), shape=shape)

    @cached_property
    def degree(self) -> np.ndarray:
        """The degree of a token, without self-loops."""
        return np.asarray(self.matrix @ self.size.astype(float)) - self.loop


def fingerprint(rows: Rows) -> Ints:
    """A hash of each row, by a random linear form: equal rows have equal hashes."""
    bits = np.random.Generator(np.random.Philox(0)).integers(-(2**62), 2**62, rows.m)
    return MatVec(rows)(bits)


def merge_twins(rows: Rows, hashes: Ints) -> QuotientGraph | None:
    """The graph of the rows with tokens of equal hashes merged; None if it has too many edges."""
    _, token, kind, size = np.unique(
        hashes, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.argsort(token, kind="stable")
    token, size = token[order], size[order]
    loop = self_loops(rows)[token]
    apart = np.flatnonzero((size > 1) & ~loop)
    if len(apart):
        number = np.empty_like(order)
        number[order] = np.arange(len(order))
        second = _second(number[kind], apart)
        starts = np.concatenate([size, np.zeros_like(apart)])
        size = np.concatenate([np.where((size > 1) & ~loop, 1, size), size[apart] - 1])
        token = np.concatenate([token, second])
        order = np.argsort(token, kind="stable")
        token, size, starts = token[order], size[order], starts[order]
        loop = self_loops(rows)[token]
    else:
        starts = size
    edges = _edges_among(rows, token)
    return None if edges is None else QuotientGraph(token, size, starts, loop, *edges)


def _second(kind: Ints, chosen: Ints) -> Ints:
    """The second token of each chosen kind."""
    order = np.argsort(kind, kind="stable")
    return order[np.searchsorted(kind[order], chosen) + 1]


def self_loops(rows: Rows) -> Bools:
    """Which tokens attend to themselves."""
    wide = rows.expand()
    row = owners(wide.ptr)
    hit = (wide.start <= row) & (row < wide.stop) & ((row - wide.start) % wide.step == 0)
    return np.bincount(row[hit], minlength=rows.n) > 0


def _edges_among(rows: Rows, token: Ints) -> tuple[Ints, Ints] | None:
    """The pairs among sorted tokens, as CSR of their indices in the list."""
    wide = rows.expand()
    count = np.diff(wide.ptr)[token]
    run, row = ranges(wide.ptr[token], count), np.repeat(np.arange(len(token)), count)
    low = np.searchsorted(token, wide.start[run])
    length = np.searchsorted(token, wide.stop[run]) - low
    if int(length.sum()) > min(MOST_EDGES, max(ALWAYS_LISTED, PER_RUN * len(run))):
        return None
    which, index = np.repeat(np.arange(len(run)), length), ranges(low, length)
    if (wide.step[run] > 1).any():
        hit = (token[index] - wide.start[run][which]) % wide.step[run][which] == 0
        which, index = which[hit], index[hit]
        order = np.lexsort((index, row[which]))
        which, index = which[order], index[order]
    return pointer(np.bincount(row[which], minlength=len(token))), index
