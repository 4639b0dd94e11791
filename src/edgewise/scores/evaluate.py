"""A score on tensors: the definition of what compiled scores compute."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from edgewise.scores.nodes import BOOLEAN, REAL, Call, Entry, Leaf, Node, Number
from edgewise.scores.primitives import PRIMITIVES, kind, operand_kinds


@dataclass(eq=False)
class PairScores:
    """Pairs of some heads: `s` (heads, ...) holds their dot products, `i` and `j` (...) their
    positions, `h` (heads, 1...) the numbers of the heads. A table (rows, length) is read at row
    h mod rows."""

    s: Tensor
    i: Tensor
    j: Tensor
    h: Tensor
    tables: tuple[Tensor, ...]
    found: dict[Node, Tensor] = field(default_factory=dict)

    def __getitem__(self, node: Node) -> Tensor:
        """The value of a node for every pair; parts that occur twice are computed once."""
        if node not in self.found:
            self.found[node] = self._value(node)
        return self.found[node]

    def _value(self, node: Node) -> Tensor:
        match node:
            case Leaf(name):
                value: Tensor = getattr(self, name)
                return value
            case Number(number):
                dtype = torch.int64 if node.is_integer else self.s.dtype
                return torch.tensor(number, dtype=dtype, device=self.s.device)
            case Entry(table):
                return self._entries(self.tables[table], self.indices(node)).to(self.s.dtype)
            case Call(function, operands):
                kinds = operand_kinds(node)
                parts = [self._as(x, want) for x, want in zip(operands, kinds, strict=True)]
                return PRIMITIVES[function].torch(*parts)
        raise AssertionError(node)

    def _entries(self, table: Tensor, at: Tensor) -> Tensor:
        """The entries `at` of each head's row."""
        if len(table) == 1:
            return table[0].index_select(0, at.flatten()).view(at.shape)
        row = self.h % len(table)
        if at.ndim == self.h.ndim and len(at) > 1:  # they depend on the head
            return table[row, at]
        own = table.index_select(0, row.flatten())
        pairs = self.h.ndim - 1
        shape = (*(1,) * (pairs - at.ndim), *at.shape[max(at.ndim - pairs, 0) :])
        return own.index_select(1, at.flatten()).view(len(row), *shape)

    def _as(self, node: Node, want: str | None) -> Tensor:
        value = self[node]
        if want == REAL and not value.is_floating_point():
            return value.to(self.s.dtype)
        return value.bool() if want == BOOLEAN else value

    def indices(self, entry: Entry) -> Tensor:
        """The index of an entry, clamped to its table."""
        index, last = self[entry.index], self.tables[entry.table].shape[1] - 1
        index = index.floor().nan_to_num(0.0) if kind(entry.index) == REAL else index
        return index.clamp(0, last).long()

    def add_to(self, total: Tensor, entry: Entry, grad: Tensor) -> None:
        """Add the gradient of an entry for every pair to that of its table."""
        rows, at, grad = len(total), self.indices(entry), grad.expand(self.s.shape)
        if at.ndim == self.s.ndim and len(at) > 1:  # it depends on the head
            at = (self.h % rows) * total.shape[1] + at
            at, total, rows = at.expand(self.s.shape)[None], total.view(1, -1), 1
            grad = grad[None]
        grad = grad.reshape(-1, rows, *self.s.shape[1:]).sum(0) if len(grad) > rows else grad
        at = at.expand(rows, *self.s.shape[1:]) if at.ndim <= self.s.ndim else at
        accumulate(total, at.reshape(rows, -1), grad.reshape(rows, -1))


def accumulate(total: Tensor, at: Tensor, values: Tensor) -> None:
    """total[r, at[r, x]] += values[r, x], in one order of sums on every run."""
    values = values.to(total.dtype)
    if total.is_cuda:  # sorted there; scatter_add_ adds in the order of arrival
        rows = torch.arange(len(total), device=total.device)[:, None]
        total.index_put_((rows, at), values, accumulate=True)
    else:
        total.scatter_add_(1, at, values)
