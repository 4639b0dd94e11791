"""Graphs from edge lists, dense and sparse matrices, networkx and PyG."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs.checks import integer, query_key_lengths, short_repr
from edgewise.graphs.errors import BadEdges, BadSize, EdgeOutOfRange, SizeMismatch
from edgewise.graphs.int_array import IntArray, Integers, has_data, refuse_in_trace
from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Rows, rows_of_pairs
from edgewise.layouts.ragged import distinct

# torch has no `nonzero` for these unsigned types; zeros are the same in the signed ones
SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}

if TYPE_CHECKING:
    import networkx
    from scipy.sparse import spmatrix


@dataclass(frozen=True, repr=False)
class from_edges(Pattern):
    """The listed pairs: {(i, j) : (i, j) ∈ edges}; `shape` optionally fixes n and m.

    A list has a pair per item; a tensor or array is (2, e), as `edges(n)` gives it.

    >>> from_edges([(0, 1), (2, 0)]).dense(3).int().tolist()
    [[0, 1, 0], [0, 0, 0], [1, 0, 0]]
    """

    pairs: Integers
    shape: tuple[int, int] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        columns = isinstance(self.pairs, Tensor | np.ndarray)
        array = IntArray(self.pairs, "edges").array
        array = array.T if columns else array.reshape(-1, 2) if not array.size else array
        if array.ndim != 2 or array.shape[1] != 2:
            found = array.T if columns else array
            upright = columns and found.ndim == 2 and found.shape[1] == 2
            raise BadEdges(
                f"edges must be pairs, got an array of shape {found.shape}"
                + (": pairs are its rows, not its columns" if upright else ""),
                caller(),
                "transpose it: give `edges.T`"
                if upright
                else "give a list of pairs `[(0, 1), (1, 2)]` or an integer tensor of shape (2, e)",
            )
        if array.size and array.min() < 0:
            raise EdgeOutOfRange(
                f"an edge has token {int(array.min())}", caller(), "tokens count from 0"
            )
        width = int(array.max(initial=0)) + 1
        key = distinct(array[:, 0] * width + array[:, 1])
        pairs = IntArray(np.stack([key // width, key % width], axis=1))
        object.__setattr__(self, "pairs", pairs)
        if self.shape is not None:
            object.__setattr__(self, "shape", _shape(self.shape))
            assert self.shape is not None
            self._refuse(*self.shape, "give a larger `shape`, or leave out the edge")

    def compute_rows(self, n: int, m: int) -> Rows:
        if self.shape is not None and self.shape != (n, m):
            raise SizeMismatch(
                f"the graph is {self.shape[0]}×{self.shape[1]}; {query_key_lengths(n, m)}",
                caller(),
                f"use n = {self.shape[0]}",
            )
        self._refuse(n, m, f"use n = {self.least} or more")
        i, j = self._array.T
        return rows_of_pairs(n, m, i, j)

    @property
    def least(self) -> int:
        """The least number of tokens that has all edges.

        >>> from_edges([(0, 1), (2, 0)]).least
        3
        """
        return int(self._array.max(initial=-1)) + 1

    @property
    def _array(self) -> np.ndarray:
        assert isinstance(self.pairs, IntArray)
        return self.pairs.array

    def _refuse(self, n: int, m: int, fix: str) -> None:
        """Refuse edges outside n×m."""
        i, j = self._array.T
        if len(i) and (i.max() >= n or j.max() >= m):
            at = int(np.argmax((i >= n) | (j >= m)))
            raise EdgeOutOfRange(
                f"the edge ({i[at]}, {j[at]}) is outside {n} queries and {m} keys", caller(), fix
            )


def _shape(shape: Any) -> tuple[int, int]:
    if not isinstance(shape, tuple | list) or len(shape) != 2:
        raise BadSize(
            f"`shape` must be two numbers, of queries and of keys, got {short_repr(shape)}",
            caller(),
            "write a pair, such as `shape=(8, 8)`",
        )
    return integer(shape[0], "n"), integer(shape[1], "m")


def from_dense(matrix: Tensor | np.ndarray) -> from_edges:
    """{(i, j) : matrix[i, j] ≠ 0}.

    >>> from_dense(torch.eye(2))
    from_edges([[0, 0], [1, 1]], shape=(2, 2))
    """
    if torch.compiler.is_dynamo_compiling():
        refuse_in_trace()
    try:
        # torch reads no array with negative strides
        plain = np.ascontiguousarray(matrix) if isinstance(matrix, np.ndarray) else matrix
        found = torch.as_tensor(plain)
    except (TypeError, ValueError, RuntimeError):
        raise not_a(matrix, "a matrix of numbers", "a tensor or array of shape (n, m)") from None
    if found.ndim != 2 or not has_data(found):
        raise not_a(matrix, "a dense matrix", "a tensor or array of shape (n, m)")
    if np.ma.is_masked(matrix):
        raise _masked()
    found = found.view(SIGNED.get(found.dtype, found.dtype))
    try:
        wrong, some = bool(found.isnan().any()), found.nonzero().T
    except (RuntimeError, NotImplementedError):
        raise not_a(
            matrix, f"a matrix of numeric type, not {str(found.dtype)[6:]}", "`matrix != 0`"
        ) from None
    if wrong:
        raise _nan()
    if found.is_floating_point() and _is_added(found):
        raise BadEdges(
            "the matrix looks like a mask that is added to scores, with -∞ where there is no edge",
            caller(),
            "write `from_dense(mask == 0)`, or give it to `attention` as `bias=mask`",
        )
    n, m = found.shape
    return from_edges(some, shape=(n, m))


def _is_added(matrix: Tensor) -> bool:
    """Whether entries are infinite or as low as -10,000, the least that masks have."""
    return bool((matrix.isinf() | (matrix <= -1e4)).any())


def _nan() -> BadEdges:
    return BadEdges("the matrix holds NaN", caller(), "give 0 where there is no edge, else 1")


def _masked() -> BadEdges:
    return BadEdges(
        "some entries of the matrix are masked", caller(), "give 0 there: `matrix.filled(0)`"
    )


def from_scipy(matrix: "spmatrix") -> from_edges:
    """{(i, j) : matrix[i, j] ≠ 0}, for any of SciPy's sparse matrices; duplicate entries are
    summed first, as SciPy does.

    >>> from scipy.sparse import eye
    >>> from_scipy(eye(2))
    from_edges([[0, 0], [1, 1]], shape=(2, 2))
    """
    if not hasattr(matrix, "tocsr") or len(getattr(matrix, "shape", ())) != 2:
        raise not_a(matrix, "a sparse matrix of SciPy", "such as `scipy.sparse.eye(8)`")
    found = matrix.tocsr(copy=True)
    found.sum_duplicates()
    found = found.tocoo()
    if (found.data != found.data).any():
        raise _nan()
    some = found.data != 0
    n, m = found.shape
    return from_edges(np.stack([found.row[some], found.col[some]]), shape=(n, m))


def from_networkx(graph: "networkx.Graph[Any]") -> from_edges:
    """{(i, j) : there is an edge from node i to node j}, nodes numbered in the graph's order.

    An undirected edge counts both ways, as in `networkx.to_numpy_array`.

    >>> import networkx
    >>> from_networkx(networkx.path_graph(3))
    from_edges([[0, 1], [1, 0], [1, 2], [2, 1]], shape=(3, 3))
    """
    if not all(hasattr(graph, part) for part in ("nodes", "edges", "is_directed")):
        raise not_a(graph, "a graph of networkx", "such as `networkx.path_graph(8)`")
    place = {node: number for number, node in enumerate(graph.nodes)}
    pairs = [(place[edge[0]], place[edge[1]]) for edge in graph.edges]
    if not graph.is_directed():
        pairs += [(j, i) for i, j in pairs]
    return from_edges(pairs, shape=(len(place), len(place)))


def from_pyg(edge_index: Tensor, n: int | None = None) -> from_edges:
    """{(i, j) : j → i is an edge}: PyG's `edge_index` has the source first; here i attends to j.

    >>> from_pyg(torch.tensor([[0], [2]]))
    from_edges([[2, 0]])
    """
    if not isinstance(edge_index, Tensor) or edge_index.ndim != 2 or len(edge_index) != 2:
        raise not_a(edge_index, "an `edge_index`", "an integer tensor of shape (2, e)")
    return from_edges(edge_index.flip(0), shape=None if n is None else (n, n))


def not_a(value: Any, wanted: str, fix: str) -> BadEdges:
    """The error for an argument that is not `wanted`, an object of another library."""
    return BadEdges(f"expected {wanted}, got {short_repr(value)}", caller(), f"give {fix}")
