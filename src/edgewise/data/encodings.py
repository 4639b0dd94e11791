"""Where a node is in its graph: encodings by random walks, eigenvectors, degrees and distances.

An edge (i, j) says that node i receives from node j; encodings are rows for `position(i)`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from edgewise.errors import EdgewiseError, caller
from edgewise.graphs.drawing import require_package

CHUNK = 512  # columns of a power that are computed together
DENSE = 1500  # nodes up to which all eigenvectors are computed


class BadEncoding(EdgewiseError):
    """Encodings are of the nodes 0 to n − 1 of a graph, whose edges are pairs of them."""

    code = "bad-encoding"
    example = """\
from edgewise import data
data.random_walk(torch.tensor([[0, 1], [1, 7]]), 2, steps=4)"""
    instead = """\
from edgewise import data
data.random_walk(torch.tensor([[0, 1], [1, 0]]), 2, steps=4)"""


def random_walk(edge: Tensor, nodes: int, *, steps: int) -> Tensor:
    """The probability of being back after 1, 2, ..., `steps` steps of a random walk (RWSE).

    diag(P), diag(P²), ..., with P = A / degree; https://arxiv.org/abs/2110.07875

    >>> import torch
    >>> random_walk(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), 3, steps=2).tolist()
    [[0.0, 0.5], [0.0, 1.0], [0.0, 0.5]]
    """
    edge = _checked(edge, nodes, steps)
    degree = torch.bincount(edge[0], minlength=nodes).clamp_min(1)
    each = (1.0 / degree)[edge[0]]
    if nodes <= CHUNK:
        chance = torch.zeros(nodes, nodes).index_put_((edge[0], edge[1]), each, accumulate=True)
    else:
        chance = torch.sparse_coo_tensor(
            edge, each, (nodes, nodes), check_invariants=False
        ).coalesce()
    found = torch.zeros(nodes, steps)
    for first in range(0, nodes, CHUNK):
        here = torch.arange(first, min(first + CHUNK, nodes))
        power = torch.zeros(nodes, len(here))
        power[here, here - first] = 1.0
        for step in range(steps):
            power = chance @ power
            found[here, step] = power[here, here - first]
    return found


def laplacian(edge: Tensor, nodes: int, *, size: int) -> Tensor:
    """Eigenvectors of I − D^(-1/2) A D^(-1/2) with the smallest eigenvalues, except the first.

    Of a graph with fewer, the rest is 0. The sign of each makes its largest element positive.
    https://arxiv.org/abs/2003.00982

    >>> import torch
    >>> laplacian(torch.tensor([[0, 1], [1, 0]]), 2, size=2).round(decimals=3).tolist()
    [[0.707..., 0.0], [-0.707..., 0.0]]
    """
    edge = _checked(edge, nodes, size)
    both = torch.cat([edge, edge.flip(0)], 1).unique(dim=1) if edge.numel() else edge
    degree = torch.bincount(both[0], minlength=nodes).double().clamp_min(1)
    value = -(degree[both[0]] * degree[both[1]]).rsqrt()
    vectors = _smallest(both, value, nodes, min(size + 1, nodes))[:, 1:]
    top = vectors.abs().argmax(0) if vectors.numel() else torch.zeros(0, dtype=torch.int64)
    sign = vectors[top, torch.arange(vectors.shape[1])].sign()
    found = torch.zeros(nodes, size)
    found[:, : vectors.shape[1]] = (vectors * sign).float()
    return found


def _smallest(edge: Tensor, value: Tensor, nodes: int, count: int) -> Tensor:
    if nodes <= DENSE:
        matrix = torch.eye(nodes, dtype=torch.float64)
        matrix.index_put_((edge[0], edge[1]), value, accumulate=True)
        return torch.linalg.eigh(matrix)[1][:, :count]
    require_package("scipy")
    from scipy.sparse import coo_matrix, eye
    from scipy.sparse.linalg import eigsh

    matrix = eye(nodes) + coo_matrix((value.numpy(), edge.numpy()), (nodes, nodes))
    start = torch.ones(nodes, dtype=torch.float64).numpy()
    values, vectors = eigsh(matrix.tocsr(), k=count, which="SA", v0=start)
    return torch.from_numpy(vectors[:, values.argsort()])


def degrees(edge: Tensor, nodes: int, *, most: int) -> Tensor:
    """One-hot vectors of in-degrees 0, 1, ..., `most` or more.

    >>> import torch
    >>> degrees(torch.tensor([[0, 0], [1, 2]]), 3, most=2).tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    """
    edge = _checked(edge, nodes, most)
    count = torch.bincount(edge[0], minlength=nodes).clamp_max(most)
    return torch.nn.functional.one_hot(count, most + 1).float()


def shortest_paths(edge: Tensor, nodes: int, *, most: int) -> Tensor:
    """The number of edges between any two nodes, at most `most`; `most` + 1 where none connect.

    >>> import torch
    >>> shortest_paths(torch.tensor([[0, 1], [1, 2]]), 3, most=1).tolist()
    [[0, 1, 1], [2, 0, 1], [2, 2, 0]]
    """
    edge = _checked(edge, nodes, most)
    adjacent = torch.zeros(nodes, nodes)
    adjacent[edge[0], edge[1]] = 1.0
    found = torch.full((nodes, nodes), most + 1)
    reached = torch.eye(nodes)
    for hops in range(nodes):
        new = (reached > 0) & (found == most + 1)
        if not bool(new.any()):
            break
        found[new] = min(hops, most)
        reached = (new.float() @ adjacent) if hops else adjacent
    return found


def path_edges(edge: Tensor, nodes: int, *, most: int) -> Tensor:
    """The first `most` edges of one shortest path between any two nodes, as (i, j, n, k, l).

    Edge n of the path from i to j is (k, l). Of several paths, the one that comes to each node from
    the smallest. Paths follow edges from their first node to their second.

    >>> import torch
    >>> path_edges(torch.tensor([[0, 1], [1, 2]]), 3, most=2).T.tolist()
    [[0, 1, 0, 0, 1], [0, 2, 0, 0, 1], [0, 2, 1, 1, 2], [1, 2, 0, 1, 2]]
    """
    far = shortest_paths(edge, nodes, most=max(nodes, 1))
    source, target = edge.long()
    last = far[:, target] == far[:, source] + 1  # the edge ends a shortest path
    before = torch.full((nodes, nodes), nodes).scatter_reduce_(
        1, target.expand(nodes, -1), torch.where(last, source, nodes), "amin"
    )
    i, at = ((far > 0) & (far <= nodes)).nonzero().T
    end, found = at, []
    while len(i):
        previous, n = before[i, at], far[i, at] - 1
        found.append(torch.stack([i, end, n, previous, at])[:, n < most])
        more = previous != i
        i, end, at = i[more], end[more], previous[more]
    every = torch.cat(found, 1) if found else torch.zeros(5, 0, dtype=torch.int64)
    return every.unique(dim=1) if every.numel() else every


def _checked(edge: Tensor, nodes: int, size: int) -> Tensor:
    if size < 1:
        raise BadEncoding(f"an encoding has {size} features", caller(), "give at least 1")
    if edge.ndim != 2 or edge.shape[0] != 2 or edge.is_floating_point():
        raise BadEncoding("edges are not (2, n) integers", caller(), "give pairs of nodes")
    if edge.numel() and (int(edge.min()) < 0 or int(edge.max()) >= nodes):
        raise BadEncoding(
            f"an edge is not between nodes 0 to {nodes - 1}", caller(), f"there are {nodes:,} nodes"
        )
    return edge.long()
