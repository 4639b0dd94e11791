"""Any graph, from a list of its edges."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs.errors import BadEdges, EdgeOutOfRange, SizeMismatch, whole
from edgewise.graphs.numbers import Integers, Numbers
from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Rows, rows_of_pairs
from edgewise.layouts.ragged import distinct

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
            raise BadEdges(
                f"edges must be pairs, got an array of shape {tuple(array.shape)}",
                caller(),
                "give a list of pairs `[(0, 1), (1, 2)]` or an integer tensor of shape (2, e)",
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
            n, m = self.shape
            object.__setattr__(self, "shape", (whole(n, "n"), whole(m, "m")))

    def form(self, n: int, m: int) -> Rows:
        if self.shape is not None and self.shape != (n, m):
            raise SizeMismatch(
                f"the graph has {self.shape[0]} queries and {self.shape[1]} keys, asked for {n} "
                f"and {m}",
                caller(),
                f"ask for n = {self.shape[0]}",
            )
        assert isinstance(self.pairs, Numbers)
        i, j = self.pairs.array.T
        if len(i) and (i.max() >= n or j.max() >= m):
            at = int(np.argmax((i >= n) | (j >= m)))
            raise EdgeOutOfRange(
                f"the edge ({i[at]}, {j[at]}) is outside {n} queries and {m} keys",
                caller(),
                f"ask for n = {int(max(i.max(), j.max())) + 1} or more",
            )
        return rows_of_pairs(n, m, i, j)


def from_dense(matrix: Tensor | np.ndarray) -> from_edges:
    """{(i, j) : matrix[i, j] ≠ 0}.

    >>> from_dense(torch.eye(2))
    from_edges([[0, 0], [1, 1]], shape=(2, 2))
    """
    found = torch.as_tensor(matrix)
    if found.ndim != 2:
        raise BadEdges(
            f"a matrix has two axes, got shape {tuple(found.shape)}", caller(), "give n×m"
        )
    n, m = found.shape
    return from_edges(found.nonzero().T, shape=(n, m))


def from_scipy(matrix: "spmatrix") -> from_edges:
    """{(i, j) : matrix[i, j] is stored and not 0}, for any of SciPy's sparse matrices.

    >>> from scipy.sparse import eye
    >>> from_scipy(eye(2))
    from_edges([[0, 0], [1, 1]], shape=(2, 2))
    """
    found = matrix.tocoo()
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
    return from_edges(edge_index.flip(0), shape=None if n is None else (n, n))
