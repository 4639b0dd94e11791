"""Graphs made smaller: products with vectors, the quotient by twins, pairs counted on a grid."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from edgewise.layouts import Rows
from edgewise.layouts.blocks import pairs_in
from edgewise.layouts.ragged import Bools, Ints, owners, pointer, ranges
from edgewise.layouts.trapezoid import in_slabs


class MatVec:
    """x ↦ A·x in O(n + trapezoids), A the 0/1 matrix of the rows.

    With P[t] = x[t] + P[t - step] a progression sums to P[last] - P[first - step].

    >>> from edgewise.graphs import causal
    >>> MatVec(causal().rows(4))(np.array([1.0, 2.0, 3.0, 4.0])).tolist()
    [1.0, 3.0, 6.0, 10.0]
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.steps = np.unique(rows.step)

    @property
    def cost(self) -> int:
        """The number of elements that one product reads."""
        return len(self.steps) * self.rows.m + 2 * len(self.rows.expand().start)

    @cached_property
    def _ends(self) -> Any:
        """Of each row, +1 at the prefix sum of every last key and -1 before every first."""
        from scipy.sparse import csr_array

        wide = self.rows.expand()
        lengths = self.rows.m + self.steps
        place = np.searchsorted(self.steps, wide.step)
        base = (np.cumsum(lengths) - lengths)[place]
        last = base + wide.start + wide.size * wide.step
        column = np.stack([last, base + wide.start], axis=1).ravel()
        sign: Ints = np.tile(np.array([1, -1]), len(wide.start))
        shape = (self.rows.n, int(lengths.sum()))
        return csr_array((sign, (np.repeat(owners(wide.ptr), 2), column)), shape=shape)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        if not len(self.steps):
            return np.zeros(self.rows.n, x.dtype)
        return np.asarray(self._ends @ np.concatenate([_sums(x, int(s)) for s in self.steps]))


def _sums(x: np.ndarray, step: int) -> np.ndarray:
    """P, after `step` zeros."""
    turns = -(-len(x) // step)
    padded = np.zeros((turns + 1) * step, x.dtype)
    padded[step : step + len(x)] = x
    sums = np.cumsum(padded.reshape(turns + 1, step), axis=0).ravel()
    return np.asarray(sums[: len(x) + step])


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


CELLS_AT_ONCE = 1 << 22


def cell_size(n: int, cells: int) -> int:
    """The number of tokens per cell for at most `cells` cells."""
    return max(-(-n // max(cells, 1)), 1)


def density_map(rows: Rows, cells: int = 512) -> np.ndarray:
    """The number of pairs in each cell of a grid of at most cells × cells; O(trapezoids + cells²).

    >>> from edgewise.graphs import causal
    >>> density_map(causal().rows(1 << 20), 2).tolist()
    [[137439215616.0, 0.0], [274877906944.0, 137439215616.0]]
    """
    size = cell_size(max(rows.n, rows.m), cells)
    high, wide = -(-rows.n // size), -(-rows.m // size)
    borders = np.minimum(np.arange(high + 1) * size, rows.n)
    out = np.zeros(high * wide)
    _, row, runs = in_slabs(rows.trapezoids(), borders)
    last = runs.stop + runs.dstop * (runs.bottom - runs.top - 1) - 1
    low, high_column = runs.start // size, last // size + 1
    length = high_column - low
    ends = np.cumsum(length)
    first = 0
    while first < len(row):
        stop = max(int(np.searchsorted(ends, (ends[first] + CELLS_AT_ONCE))), first + 1)
        some = np.arange(first, stop)
        which = np.repeat(some, length[some])
        column = ranges(low[some], length[some])
        pairs = pairs_in(runs[which], column, size)
        out += np.bincount(row[which] * wide + column, pairs, minlength=len(out))
        first = stop
    return out.reshape(high, wide)
