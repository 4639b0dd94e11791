"""Any graph, from a list of its edges."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs.checks import shown, whole
from edgewise.graphs.errors import BadEdges, BadSize, EdgeOutOfRange, SizeMismatch
from edgewise.graphs.numbers import Integers, Numbers, dense
from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Rows, rows_of_pairs
from edgewise.layouts.ragged import distinct

# torch lists no places of numbers without a sign; which are 0 is the same with one
SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}

if TYPE_CHECKING:
    import networkx
    from scipy.sparse import spmatrix


@dataclass(frozen=True, repr=False)
class from_edges(Pattern):
    """The pairs listed: {(i, j) : (i, j) ∈ edges}, each once; `shape` fixes n and m if given.

    A list has a pair per item; a tensor or array is (2, e), as `edges(n)` gives it.

    >>> from_edges([(0, 1), (2, 0)]).dense(3).int().tolist()
    [[0, 1, 0], [0, 0, 0], [1, 0, 0]]
    """

    pairs: Integers
    shape: tuple[int, int] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        turned = isinstance(self.pairs, Tensor | np.ndarray)
        array = Numbers(self.pairs, "edges").array
        array = array.T if turned else array.reshape(-1, 2) if not array.size else array
        if array.ndim != 2 or array.shape[1] != 2:
            given = array.T if turned else array
            upright = turned and given.ndim == 2 and given.shape[1] == 2
            raise BadEdges(
                f"edges must be pairs, got an array of shape {given.shape}"
                + (": a pair in each row, not in each column" if upright else ""),
                caller(),
                "turn it: give `edges.T`"
                if upright
                else "give a list of pairs `[(0, 1), (1, 2)]` or an integer tensor of shape (2, e)",
            )
        if array.size and array.min() < 0:
            raise EdgeOutOfRange(
                f"an edge names token {int(array.min())}", caller(), "tokens count from 0"
            )
        width = int(array.max(initial=0)) + 1
        key = distinct(array[:, 0] * width + array[:, 1])
        pairs = Numbers(np.stack([key // width, key % width], axis=1))
        object.__setattr__(self, "pairs", pairs)
        if self.shape is not None:
            object.__setattr__(self, "shape", _shape(self.shape))
            assert self.shape is not None
            self._refuse(*self.shape, "give a larger `shape`, or leave out the edge")

    def form(self, n: int, m: int) -> Rows:
        if self.shape is not None and self.shape != (n, m):
            raise SizeMismatch(
                f"the graph has {self.shape[0]} queries and {self.shape[1]} keys, asked for {n} "
                f"and {m}",
                caller(),
                f"ask for n = {self.shape[0]}",
            )
        most = int(self._array.max(initial=-1)) + 1
        self._refuse(n, m, f"ask for n = {most} or more")
        i, j = self._array.T
        return rows_of_pairs(n, m, i, j)

    @property
    def _array(self) -> np.ndarray:
        assert isinstance(self.pairs, Numbers)
        return self.pairs.array

    def _refuse(self, n: int, m: int, fix: str) -> None:
        """Edges outside n×m."""
        i, j = self._array.T
        if len(i) and (i.max() >= n or j.max() >= m):
            at = int(np.argmax((i >= n) | (j >= m)))
            raise EdgeOutOfRange(
                f"the edge ({i[at]}, {j[at]}) is outside {n} queries and {m} keys", caller(), fix
            )


def _shape(shape: Any) -> tuple[int, int]:
    if not isinstance(shape, tuple | list) or len(shape) != 2:
        raise BadSize(
            f"`shape` must be two numbers, of queries and of keys, got {shown(shape)}",
            caller(),
            "write such as `shape=(8, 8)`",
        )
    return whole(shape[0], "n"), whole(shape[1], "m")


def from_dense(matrix: Tensor | np.ndarray) -> from_edges:
    """{(i, j) : matrix[i, j] ≠ 0}.

    >>> from_dense(torch.eye(2))
    from_edges([[0, 0], [1, 1]], shape=(2, 2))
    """
    try:
        found = torch.as_tensor(matrix)
    except (TypeError, ValueError, RuntimeError):
        raise foreign(matrix, "a matrix of numbers", "a tensor or array of shape (n, m)") from None
    if found.ndim != 2 or not dense(found):
        raise foreign(matrix, "a dense matrix", "a tensor or array of shape (n, m)")
    if np.ma.is_masked(matrix):
        raise _masked()
    found = found.view(SIGNED.get(found.dtype, found.dtype))
    try:
        wrong, some = bool(found.isnan().any()), found.nonzero().T
    except (RuntimeError, NotImplementedError):
        raise foreign(
            matrix, f"a matrix of usual numbers, not {str(found.dtype)[6:]}", "`matrix != 0`"
        ) from None
    if wrong:
        raise _nan()
    n, m = found.shape
    return from_edges(some, shape=(n, m))


def _nan() -> BadEdges:
    return BadEdges("the matrix holds NaN", caller(), "give 0 where there is no edge, else 1")


def _masked() -> BadEdges:
    return BadEdges(
        "some entries of the matrix are masked", caller(), "give 0 there: `matrix.filled(0)`"
    )


def from_scipy(matrix: "spmatrix") -> from_edges:
    """{(i, j) : matrix[i, j] ≠ 0}, for any of SciPy's sparse matrices; what is stored twice is
    added up first, as SciPy reads it.

    >>> from scipy.sparse import eye
    >>> from_scipy(eye(2))
    from_edges([[0, 0], [1, 1]], shape=(2, 2))
    """
    if not hasattr(matrix, "tocsr") or len(getattr(matrix, "shape", ())) != 2:
        raise foreign(matrix, "a sparse matrix of SciPy", "such as `scipy.sparse.eye(8)`")
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

    An edge without direction counts both ways, as in `networkx.to_numpy_array`.

    >>> import networkx
    >>> from_networkx(networkx.path_graph(3))
    from_edges([[0, 1], [1, 0], [1, 2], [2, 1]], shape=(3, 3))
    """
    if not all(hasattr(graph, part) for part in ("nodes", "edges", "is_directed")):
        raise foreign(graph, "a graph of networkx", "such as `networkx.path_graph(8)`")
    place = {node: number for number, node in enumerate(graph.nodes)}
    pairs = [(place[edge[0]], place[edge[1]]) for edge in graph.edges]
    if not graph.is_directed():
        pairs += [(j, i) for i, j in pairs]
    return from_edges(pairs, shape=(len(place), len(place)))


def from_pyg(edge_index: Tensor, n: int | None = None) -> from_edges:
    """{(i, j) : j → i is an edge}: PyG's `edge_index` has the source first, i hears j here.

    >>> from_pyg(torch.tensor([[0], [2]]))
    from_edges([[2, 0]])
    """
    if not isinstance(edge_index, Tensor) or edge_index.ndim != 2 or len(edge_index) != 2:
        raise foreign(edge_index, "an `edge_index`", "an integer tensor of shape (2, e)")
    return from_edges(edge_index.flip(0), shape=None if n is None else (n, n))


def foreign(value: Any, wanted: str, fix: str) -> BadEdges:
    """The error for what is not the thing of another library that it should be."""
    return BadEdges(f"expected {wanted}, got {shown(value)}", caller(), f"give {fix}")
