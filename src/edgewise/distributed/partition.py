"""Partitions of nodes: which rank has which, and what they would send."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from edgewise.distributed.errors import BadShards
from edgewise.errors import caller
from edgewise.graphs.checks import integer
from edgewise.graphs.drawing import require_package
from edgewise.layouts.ragged import Ints, pointer

KINDS = ("contiguous", "metis")
PartitionLike = str | Tensor


def partition_of(
    kind: PartitionLike, nodes: int, ranks: int, edges: Tensor | None = None
) -> Tensor:
    """The rank of each node: "contiguous", "metis" for few edges between ranks, or as it is given.

    Where METIS leaves ranks without nodes, as it does for few nodes or dense graphs, nodes in the
    order of its parts are cut into equal ones.

    >>> partition_of("contiguous", 5, 2).tolist()
    [0, 0, 1, 1, 1]
    """
    nodes, ranks = integer(nodes, "nodes"), integer(ranks, "ranks", 1)
    if isinstance(kind, Tensor):
        return _checked(kind, nodes, ranks)
    check_kind(kind)
    if kind == "contiguous":
        return torch.from_numpy(_contiguous(nodes, ranks))
    if edges is None:
        raise BadShards(
            "METIS partitions a graph by its edges, of which there are none",
            caller(),
            'give pairs of nodes, a (2, e) tensor, or cut by number: "contiguous"',
        )
    return _by_metis(edges, nodes, ranks)


def check_kind(kind: object) -> None:
    """Refuse what is no way to cut nodes."""
    if kind not in KINDS:
        raise BadShards(
            f"there is no partition {kind!r}",
            caller(),
            f"choose one of {', '.join(KINDS)}, or give a tensor with a rank for each node",
        )


def _checked(listed: Tensor, nodes: int, ranks: int) -> Tensor:
    integers = not listed.is_floating_point() and listed.dtype != torch.bool
    if listed.shape != (nodes,) or not integers:
        raise BadShards(
            f"a partition is a rank for each of {nodes} nodes, got shape {tuple(listed.shape)}",
            caller(),
            "give a tensor of integers, one for each node",
        )
    if nodes and (int(listed.min()) < 0 or int(listed.max()) >= ranks):
        raise BadShards(
            f"the partition has ranks from {int(listed.min())} to {int(listed.max())}, "
            f"there are {ranks}",
            caller(),
            f"give ranks from 0 to {ranks - 1}",
        )
    return listed.to(torch.int64).cpu()


def _pairs(edges: Tensor, nodes: int) -> tuple[Ints, Ints]:
    """The sources and targets of edges among some nodes."""
    integers = not edges.is_floating_point() and edges.dtype != torch.bool
    if edges.ndim != 2 or len(edges) != 2 or not integers:
        raise BadShards(
            f"edges are a (2, e) tensor of integers, got {edges.dtype} of shape "
            f"{tuple(edges.shape)}",
            caller(),
            "give sources and targets of all edges",
        )
    if edges.numel() and (int(edges.min()) < 0 or int(edges.max()) >= nodes):
        raise BadShards(
            f"the edges have nodes from {int(edges.min())} to {int(edges.max())}, there are "
            f"{nodes} nodes",
            caller(),
            f"give nodes from 0 to {nodes - 1}, or a partition of more of them",
        )
    source, target = edges.cpu().numpy().astype(np.int64)
    return source, target


def _contiguous(nodes: int, ranks: int) -> Ints:
    bounds = np.array([nodes * rank // ranks for rank in range(ranks + 1)])
    return np.searchsorted(bounds, np.arange(nodes), side="right") - 1


def _by_metis(edges: Tensor, nodes: int, ranks: int) -> Tensor:
    require_package("pymetis")
    import pymetis

    a, b = _pairs(edges, nodes)
    if ranks == 1 or not nodes:
        return torch.zeros(nodes, dtype=torch.int64)
    both = np.concatenate([a * nodes + b, b * nodes + a])[np.tile(a != b, 2)]
    both = np.unique(both)
    ptr = pointer(np.bincount(both // nodes, minlength=nodes))
    _, found = pymetis.part_graph(ranks, pymetis.CSRAdjacency(ptr, both % nodes))
    rank_of = np.array(found, np.int64)
    if len(np.unique(rank_of)) < min(nodes, ranks):
        rank_of[np.argsort(rank_of, kind="stable")] = _contiguous(nodes, ranks)
    return torch.from_numpy(rank_of)


@dataclass(frozen=True)
class PartitionQuality:
    """What a partition of a graph costs: rows that ranks receive for one hop, balance of work.

    >>> import torch
    >>> from edgewise import distributed
    >>> edge = torch.tensor([[0, 1, 2], [1, 2, 3]])
    >>> distributed.quality(torch.tensor([0, 0, 1, 1]), edge, 2).halo
    1
    """

    halo: int  # rows that the worst rank receives
    total: int  # rows that all receive together
    cut: float  # the share of edges between ranks
    imbalance: float  # edges of the rank with most, by those of the mean


def quality(partition: Tensor, edges: Tensor, ranks: int) -> PartitionQuality:
    """How good a partition is for messages along edges (source, target).

    >>> edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
    >>> quality(torch.tensor([0, 0, 1, 1]), edges, 2)
    PartitionQuality(halo=1, total=1, cut=0.3333333333333333, imbalance=1.3333333333333333)
    """
    rank: Ints = _checked(partition, len(partition), ranks).numpy()
    source, target = _pairs(edges, len(rank))
    count = max(len(source), 1)
    across = rank[source] != rank[target]
    wanted = np.unique(rank[target][across] * len(rank) + source[across]) // max(len(rank), 1)
    received = np.bincount(wanted, minlength=ranks)
    work = np.bincount(rank[target], minlength=ranks)
    total = int(received.sum())
    imbalance = float(work.max() * ranks / count)
    return PartitionQuality(int(received.max()), total, float(across.sum() / count), imbalance)
