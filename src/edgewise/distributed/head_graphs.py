"""Heads with graphs of their own, whose keys are exchanged together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import NamedTuple

import torch
from torch import Tensor

from edgewise.distributed.local_attention import LocalAttention, Rest, SharedCall, Tensors
from edgewise.graphs.families import per_head
from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention.calls.split import parts_of


@dataclass(frozen=True)
class HeadGraphs:
    """The different graphs of query heads, and the heads of each."""

    heads: int
    graphs: tuple[tuple[Pattern, tuple[int, ...]], ...]

    @classmethod
    def of(cls, graphs: per_head) -> HeadGraphs:
        """
        >>> from edgewise.graphs import causal, per_head, window
        >>> HeadGraphs.of(per_head(causal(), window(1), causal())).graphs
        ((causal(), (0, 2)), (window(1), (1,)))
        """
        found = [(part.graph, tuple(part.at)) for part in parts_of(graphs)]
        return cls(len(graphs), tuple(found))

    @property
    def union(self) -> Pattern:
        """The pairs of any head."""
        return reduce(or_, [graph for graph, _ in self.graphs])

    def of_group(self, group: int, groups: int) -> Iterator[tuple[int, Pattern, list[int]]]:
        """The graphs of one of several groups of heads, which count from 0 in it, with numbers."""
        each = self.heads // groups
        for number, (graph, heads) in enumerate(self.graphs):
            own = [head - group * each for head in heads if head // each == group]
            if own:
                yield number, graph, own

    def attention(
        self, local: Callable[[Pattern], LocalAttention], batch: int, rank: int, groups: int = 1
    ) -> HeadsAttention:
        """Of the heads that a rank computes, by a function for each graph."""
        own = self.of_group(rank % groups, groups)
        parts = [_OfGraph(number, local(graph), torch.tensor(at)) for number, graph, at in own]
        return HeadsAttention(tuple(parts), batch)


class _OfGraph(NamedTuple):
    """The heads of one graph, the `number`-th of a call."""

    number: int
    local: LocalAttention
    at: Tensor

    def call(self, call: SharedCall) -> SharedCall:
        """Other weights are dropped for each graph, as in `GraphPart.seed`."""
        if call.drop is None:
            return call
        return call._replace(drop=replace(call.drop, seed=call.drop.seed + (self.number << 20)))


@dataclass(frozen=True, eq=False)
class HeadsAttention:
    """Attention of some queries to some keys on one device, graph by graph: q (batch · shared, g,
    n, d), k and v (batch · shared, m, d), as in `LocalAttention`."""

    parts: tuple[_OfGraph, ...]
    batch: int

    def forward(self, tensors: Tensors, call: SharedCall) -> tuple[Tensor, Tensor]:
        q, v = tensors[0], tensors[2]
        found = [
            part.local.forward(self._of(tensors, part.at), part.call(call)) for part in self.parts
        ]
        out = self._together([out[:, 0] for out, _ in found], q, v.shape[-1])
        lse = self._together([lse[:, 0, :, None] for _, lse in found], q, 1)
        return out, lse[..., 0]

    def backward(self, tensors: Tensors, rest: Rest, call: SharedCall) -> Tensors:
        q, k, v = tensors
        queries, of_keys = [], (torch.zeros_like(k), torch.zeros_like(v))
        for part in self.parts:
            at = part.at
            of_heads = Rest(
                self._queries(rest.out, at),
                self._queries(rest.lse[..., None], at)[..., 0],
                self._queries(rest.dout, at),
            )
            dq, *more = part.local.backward(self._of(tensors, at), of_heads, part.call(call))
            queries.append(dq[:, 0])
            for into, grad in zip(of_keys, more, strict=True):
                shared, heads = into.unflatten(0, (self.batch, -1)), grad.to(into.dtype)
                shared.index_add_(1, self._shared(q, at), heads.unflatten(0, (self.batch, -1)))
        return self._together(queries, q, q.shape[-1]), *of_keys

    def _of(self, tensors: Tensors, at: Tensor) -> Tensors:
        """The queries of some heads, each with its keys."""
        q, k, v = tensors
        keys = self._shared(q, at)
        of_keys = (x.unflatten(0, (self.batch, -1)).index_select(1, keys) for x in (k, v))
        return self._queries(q, at), *(x.flatten(0, 1) for x in of_keys)

    def _queries(self, x: Tensor, at: Tensor) -> Tensor:
        """(batch · heads, 1, n, d) of (batch · shared, g, n, d)."""
        heads = x.unflatten(0, (self.batch, -1)).flatten(1, 2)
        return heads.index_select(1, at.to(x.device)).flatten(0, 1)[:, None]

    def _shared(self, q: Tensor, at: Tensor) -> Tensor:
        """The head of keys of some heads."""
        return (at // q.shape[1]).to(q.device)

    def _together(self, found: list[Tensor], q: Tensor, size: int) -> Tensor:
        """(batch · shared, g, n, size) of the heads of each graph."""
        heads = len(q) // self.batch * q.shape[1]
        into = found[0].new_empty(self.batch, heads, q.shape[2], size)
        for part, rows in zip(self.parts, found, strict=True):
            into.index_copy_(1, part.at.to(q.device), rows.unflatten(0, (self.batch, -1)))
        return into.reshape(*q.shape[:3], size)
