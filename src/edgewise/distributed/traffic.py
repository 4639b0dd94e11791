"""Bytes that each rank receives, by kind, for each way of sharing attention among ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from edgewise.distributed.needs import Needs
from edgewise.distributed.shards import Shards
from edgewise.errors import caller
from edgewise.graphs.checks import integer
from edgewise.graphs.errors import BadSize
from edgewise.layouts.ragged import Ints

Traffic = Mapping[str, Ints]  # kind → bytes of each rank


@dataclass(frozen=True)
class RowSizes:
    """A call without its tokens: how many bytes a row of each tensor has, over batch and heads.

    >>> RowSizes(heads=8, d=64, itemsize=2).key
    2048
    """

    heads: int = 1
    key_heads: int | None = None
    d: int = 64
    dv: int | None = None
    batch: int = 1
    itemsize: int = 2
    wide: int = 4  # bytes of a log-sum-exp
    by_heads: bool = True  # whether heads may be exchanged
    at_home: bool = False  # queries stay where they are: a bias has their rows

    def __post_init__(self) -> None:
        for name in ("heads", "d", "batch", "itemsize", "wide"):
            integer(getattr(self, name), name)
        if self.dv is not None:
            integer(self.dv, "dv")
        if self.key_heads is not None and self.heads % max(integer(self.key_heads, "key_heads"), 1):
            raise BadSize(
                f"{self.heads} heads cannot share {self.key_heads} heads of keys",
                caller(),
                "give a number of `key_heads` that divides `heads`",
            )

    @property
    def shared(self) -> int:
        """How many heads keys have."""
        return self.heads if self.key_heads is None else self.key_heads

    @property
    def value(self) -> int:
        return self.d if self.dv is None else self.dv

    @property
    def key(self) -> int:
        """A key and its value."""
        return self.batch * self.shared * (self.d + self.value) * self.itemsize

    @property
    def query(self) -> int:
        return self.batch * self.heads * self.d * self.itemsize

    @property
    def out(self) -> int:
        return self.batch * self.heads * self.value * self.itemsize

    @property
    def cell(self) -> int:
        """Of one head of one query: a partial output and its log-sum-exp."""
        return self.value * self.itemsize + self.wide

    @property
    def part(self) -> int:
        """A partial output and its log-sum-exp, of all heads."""
        return self.batch * self.heads * self.cell

    @property
    def rest(self) -> int:
        """What a backward pass reads of a query: output, its gradient and log-sum-exp."""
        return 2 * self.out + self.batch * self.heads * self.wide


def cells_of(count: int, ranks: int) -> Ints:
    """The bounds of the cells that each rank merges."""
    return np.array([count * rank // ranks for rank in range(ranks + 1)], np.int64)


def part_traffic(counts: Ints, sizes: RowSizes) -> dict[str, Ints]:
    """Of queries in parts, `counts[r]` of them of rank r: the queries go to all ranks; of the
    partial results each rank merges some cells, then sends them to the rank of their query."""
    ranks, total = len(counts), int(counts.sum())
    if not total or ranks == 1:
        return {}
    queries = (total - counts) * sizes.query
    merged, back = merge_traffic(counts, sizes, sizes.cell)
    return {"queries": queries, "partial results": merged + back}


def merge_traffic(counts: Ints, sizes: RowSizes, cell: int) -> tuple[Ints, Ints]:
    """What each rank receives to merge its cells, and of its own queries from other mergers."""
    ranks, each = len(counts), sizes.batch * sizes.heads
    ends = np.append(0, np.cumsum(counts)) * each
    bounds = cells_of(int(ends[-1]), ranks)
    merged = np.diff(bounds) * (ranks - 1) * cell
    both = np.minimum(ends[1:], bounds[1:]) - np.maximum(ends[:-1], bounds[:-1])
    return merged, (np.diff(ends) - np.maximum(both, 0)) * cell


def exchange_traffic(counts: Counts, sizes: RowSizes) -> dict[str, Ints]:
    """Of ranks that fetch keys, and have queries in parts."""
    return {"keys": counts.keys * sizes.key, **part_traffic(counts.parts, sizes)}


def grouped_traffic(counts: Counts, sizes: RowSizes, groups: int) -> dict[str, Ints]:
    """Of queries one group of whose heads a rank computes: they and their keys go there, results
    back."""
    there = counts.queries * sizes.query + counts.keys * sizes.key
    return {"heads": (there + counts.returned * sizes.out) // groups}


def grouped_back(counts: Counts, sent: Ints, sizes: RowSizes, groups: int) -> dict[str, Ints]:
    """Gradients of outputs there, those of queries and keys back; `sent` keys of each rank."""
    back = counts.returned * sizes.query + sent * sizes.key
    return {"heads back": (counts.queries * sizes.out + back) // groups}


def block_traffic(counts: Counts, sizes: RowSizes, groups: int) -> dict[str, Ints]:
    """Of one group of heads of a block of queries and keys: they go there, partial results back."""
    there = counts.queries * sizes.query + counts.keys * sizes.key
    return {"blocks": (there + counts.returned * sizes.part) // groups}


def block_back(counts: Counts, sent: Ints, sizes: RowSizes, groups: int) -> dict[str, Ints]:
    """Outputs and their gradients there, those of queries and keys back; `sent` keys of each
    rank."""
    back = counts.returned * sizes.query + sent * sizes.key
    return {"blocks back": (counts.queries * sizes.rest + back) // groups}


def moved_traffic(counts: Counts, sizes: RowSizes) -> dict[str, Ints]:
    """Of queries that other ranks compute: they and their keys go there, partial results back."""
    there = counts.queries * sizes.query + counts.keys * sizes.key
    return {"other order": there + counts.returned * sizes.part}


def heads_traffic(home: Shards, sizes: RowSizes) -> dict[str, Ints]:
    """Ulysses: every rank has some heads of all tokens in between."""
    ranks = home.ranks
    mine = np.array([home.count(rank) for rank in range(ranks)], np.int64)
    there = (home.n - mine) * (sizes.query + sizes.key) // ranks
    return {"heads": there + mine * (ranks - 1) * sizes.out // ranks}


def gather_traffic(home: Shards, sizes: RowSizes) -> dict[str, Ints]:
    """All keys and values to all ranks."""
    mine = np.array([home.count(rank) for rank in range(home.ranks)], np.int64)
    return {"gathered keys": (home.n - mine) * sizes.key}


def part_back(counts: Ints, sizes: RowSizes) -> dict[str, Ints]:
    """Of queries in parts in a backward pass: their outputs, and the gradients of queries."""
    total = int(counts.sum())
    if not total or len(counts) == 1:
        return {}
    merged, back = merge_traffic(counts, sizes, sizes.d * sizes.itemsize)
    return {"queries back": (total - counts) * sizes.rest, "partial results back": merged + back}


def moved_back(counts: Counts, sent: Ints, sizes: RowSizes) -> dict[str, Ints]:
    """Outputs of moved queries to their ranks, gradients back; `sent` keys of each rank."""
    back = counts.returned * sizes.query + sent * sizes.key
    return {"other order back": counts.queries * sizes.rest + back}


def gather_back(home: Shards, sizes: RowSizes) -> dict[str, Ints]:
    """The gradients of keys and values of all ranks."""
    mine = np.array([home.count(rank) for rank in range(home.ranks)], np.int64)
    return {"gathered keys back": mine * (home.ranks - 1) * sizes.key}


class Counts(NamedTuple):
    """Of each rank: keys that it fetches, its queries in parts, queries of others that it computes
    and its own that others do."""

    keys: Ints
    parts: Ints
    queries: Ints
    returned: Ints


def counts_of(needs: list[Needs], home: Shards) -> Counts:
    """Of the needs of all ranks, which have tokens as `home` says."""
    own = [home.tokens(rank) for rank in range(home.ranks)]
    keys = [(one.keys - mine).count for one, mine in zip(needs, own, strict=True)]
    queries = [(one.queries - mine).count for one, mine in zip(needs, own, strict=True)]
    returned = np.zeros(home.ranks, np.int64)
    for one, mine in zip(needs, own, strict=True):
        returned += np.bincount(home.owner((one.queries - mine).list()), minlength=home.ranks)
    parts = [one.parts.count for one in needs]
    return Counts(np.array(keys), np.array(parts), np.array(queries), returned)


def added(several: Sequence[Traffic]) -> dict[str, Ints]:
    """The sums of each kind."""
    out: dict[str, Ints] = {}
    for traffic in several:
        for kind, count in traffic.items():
            out[kind] = out[kind] + count if kind in out else count
    return out


def worst(traffic: Traffic) -> int:
    """What the rank that receives most receives."""
    return int(np.sum([*traffic.values()], axis=0).max()) if traffic else 0
