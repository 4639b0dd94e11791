"""The KV cache: keys, values and biases of earlier rows, in buffers that are allocated once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from edgewise.ground.ground_rule import GroundRule
from edgewise.grow.masks import DataMask
from edgewise.kernels.attention.flash import fused
from edgewise.physical.attention.nodes import graph_attention
from edgewise.physical.attention.step import CAUSAL, EVERY, AttentionStep
from edgewise.scores.evaluate import PairScores
from edgewise.scores.nodes import Node, S

Attended = slice | Tensor | None  # keys: a run, a list, all
# of a literal of a ground rule: what it reads at each position, (before, capacity, after)
PositionTables = dict[GroundRule, dict[int, Tensor]]


def read_at(
    tables: PositionTables, ground: GroundRule, at: int, positions: Tensor
) -> Tensor | None:
    """The rows that a literal reads at some positions, None if it reads no position."""
    table = tables.get(ground, {}).get(at)
    return None if table is None else table.index_select(1, positions).reshape(-1)


@dataclass(eq=False)
class KeyValueCache:
    """What attention reads of `length` rows, of at most `capacity`."""

    capacity: int
    length: int = 0
    buffers: dict[tuple[str, str], Tensor] = field(default_factory=dict)
    relations: set[str] = field(default_factory=set)  # whose keys and values are cached
    tables: PositionTables = field(default_factory=dict)
    rows: int = 0  # being appended
    masks: dict[str, DataMask] = field(default_factory=dict)  # of pairs that data chooses
    _attended: dict[Any, Attended] = field(default_factory=dict)  # by the row being appended

    def __contains__(self, relation: str) -> bool:
        return relation in self.relations

    def attend(
        self,
        step: AttentionStep,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        tables: list[Tensor],
    ) -> Tensor:
        """New queries over all keys so far; each is (batch, shared..., rows, size)."""
        assert not tables, "scores that read tables do not grow"
        name, rows = step.node.head.relation, q.shape[-2]
        score = S if step.tree is None else step.tree.tree
        k, v = self._appended(name, "key", k, -2), self._appended(name, "value", v, -2)
        bias = None if bias is None else self._appended(name, "bias", bias, -1)
        if rows == 1:
            attended = self._attended_by_next(self.masks.get(name, step.pattern), q.device)
            k, v = _of(k, attended, -2), _of(v, attended, -2)
            bias = None if bias is None else _of(bias, attended, -1)
            return _one_query(q, k, v, bias) if score == S else _one_scored(q, k, v, bias, score)
        k, v = (_for_all_heads(t, q) for t in (k, v))
        if bias is not None:
            bias = bias.expand(*q.shape[:-1], k.shape[-2])
        if not self.length and score == S:
            if step.order is not None:
                return step.sorted_kernel(step.order, q, k, v, bias, 0.0)
            return step.kernel(q, k, v, bias, 0.0)
        pairs = EVERY if step.pattern is None else step.pattern
        if self.length and name in self.masks:
            pairs = self.masks[name].graph(self.length, self.length + rows)
        elif self.length:
            pairs = pairs.shift(-self.length, 0)
        return graph_attention(q, k, v, pairs, bias=bias, dropout=0.0, score=score)

    def at_positions(self, ground: GroundRule, at: int, positions: Tensor) -> Tensor | None:
        """What a literal reads at the positions of the new rows, None if it reads no position."""
        return read_at(self.tables, ground, at, positions)

    def commit(self) -> None:
        """Count the new rows, which every relation has computed."""
        self.length += self.rows
        self._attended.clear()

    def take(self, samples: Tensor, batch: int) -> None:
        for key, buffer in self.buffers.items():
            if buffer.shape[0] == batch:  # else it is the same for all samples
                self.buffers[key] = buffer.index_select(0, samples)

    def _appended(self, relation: str, what: str, new: Tensor, axis: int) -> Tensor:
        """All rows so far, the new ones written behind those before."""
        buffer = self.buffers.get((relation, what))
        if buffer is None:
            shape = list(new.shape)
            shape[axis] = self.capacity
            buffer = self.buffers[relation, what] = new.new_empty(shape)
        rows = new.shape[axis]
        buffer.narrow(axis, self.length, rows).copy_(new)
        return buffer.narrow(axis, 0, self.length + rows)

    def _attended_by_next(self, pattern: Any, device: torch.device) -> Attended:
        """The keys that the next row attends to: a run of them, or a list."""
        if pattern == CAUSAL:
            return None
        if pattern not in self._attended and isinstance(pattern, DataMask):
            self._attended[pattern] = pattern.keys(self.length, device)
        elif pattern not in self._attended:
            row = pattern.rows_between(self.capacity, self.capacity, self.length, self.length + 1)
            if len(row.start) == 1 and row.step[0] == 1:
                self._attended[pattern] = slice(int(row.start[0]), int(row.stop[0]))
            else:
                self._attended[pattern] = row.edges()[1].to(device)
        return self._attended[pattern]


def _of(cached: Tensor, attended: Attended, axis: int) -> Tensor:
    """The attended rows; a run of them is read where it is."""
    if attended is None:
        return cached
    if isinstance(attended, slice):
        return cached.narrow(axis, attended.start, attended.stop - attended.start)
    return cached.index_select(axis, attended)


def _for_all_heads(cached: Tensor, q: Tensor) -> Tensor:
    """Keys or values that several heads share, for each of them."""
    return cached.expand(*q.shape[:-2], *cached.shape[-2:])


def _one_scored(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, score: Node) -> Tensor:
    """One query per head whose scores are a function of its dot products."""
    k, v = (_for_all_heads(t, q) for t in (k, v))
    none = q.new_empty(0)
    scores = PairScores(q @ k.mT, none, none, none, ())[score]
    return (scores if bias is None else scores + bias).softmax(-1) @ v


def _one_query(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """One query per head; heads that share their keys are rows of one matrix product."""
    axes = range(1, q.ndim - 2)
    shared = [a for a in axes if k.shape[a] == v.shape[a] == 1 and q.shape[a] > 1]
    if bias is not None or not shared or shared != list(axes)[-len(shared) :]:
        k, v = (_for_all_heads(t, q) for t in (k, v))
        mask = None if bias is None else bias.expand(*q.shape[:-1], k.shape[-2])
        return fused(q, k, v, 1.0, mask=mask)
    groups = q.shape[1 : shared[0]]
    rows = q.reshape(q.shape[0], *groups, -1, q.shape[-1])
    k, v = (t.reshape(t.shape[0], *groups, *t.shape[-2:]) for t in (k, v))
    return fused(rows, k, v, 1.0).reshape(*q.shape[:-1], v.shape[-1])
