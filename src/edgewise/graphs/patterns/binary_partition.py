"""BP-Transformer (Ye et al. 2019, arXiv 1911.04070): near tokens singly, far ones as spans."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs.checks import LARGEST, boolean, check_memory, integer, query_key_lengths
from edgewise.graphs.errors import EdgeOutOfRange, SizeMismatch
from edgewise.graphs.int_array import IntArray
from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Rows, rows_of_trapezoids, trapezoids
from edgewise.layouts.ragged import Ints, pointer, ranges


@dataclass(frozen=True, repr=False)
class binary_partition(Pattern):
    """Tokens followed by the spans of a binary tree over them, level by level.

    A token attends to itself and, on each side, to k nodes of every level, coarser with distance,
    that cover every other token exactly once (`causal`: those before it); a span attends to the
    tokens under it. n is `nodes`, tokens and spans together.

    >>> binary_partition(1, tokens=4).nodes
    7
    """

    k: int
    tokens: int = field(kw_only=True)
    causal: bool = field(default=False, kw_only=True)
    clip: int = field(default=6, kw_only=True)

    def __post_init__(self) -> None:
        integer(self.k, "k", 1)
        integer(self.tokens, "tokens", most=LARGEST // 4)  # spans are nodes too
        integer(self.clip, "clip")
        boolean(self.causal, "causal")

    @property
    def sizes(self) -> list[int]:
        """The number of nodes of each level, the tokens first.

        >>> binary_partition(1, tokens=4).sizes
        [4, 2, 1]
        """
        out = [self.tokens]
        while out[-1] > 1:
            out.append(-(-out[-1] // 2))
        return out

    @property
    def nodes(self) -> int:
        return sum(self.sizes)

    def covers(self, node: Tensor) -> tuple[Tensor, Tensor]:
        """The tokens first ≤ t < last under each node.

        >>> binary_partition(1, tokens=4).covers(torch.tensor([0, 6]))
        (tensor([0, 0]), tensor([1, 4]))
        """
        numbers = IntArray(node, "node").array
        if numbers.size and (numbers.min() < 0 or numbers.max() >= self.nodes):
            wrong = numbers.max() if numbers.min() >= 0 else numbers.min()
            raise EdgeOutOfRange(
                f"node {int(wrong)} is out of range",
                caller(),
                f"nodes count from 0 to {self.nodes - 1}",
            )
        node = torch.from_numpy(numbers.copy())
        ptr = torch.from_numpy(pointer(np.array(self.sizes)))
        level = torch.searchsorted(ptr, node, right=True) - 1
        place = node - ptr[level]
        return place << level, ((place + 1) << level).clamp(max=self.tokens)

    def compute_rows(self, n: int, m: int) -> Rows:
        self._check(n, m)
        row, first, count, _, _ = self._runs()
        return rows_of_trapezoids(n, m, trapezoids((row, row + 1), first, first + count))

    def edge_types(self) -> Tensor:
        """The type of each pair of `edges(nodes)`: (2k + 1)·min(level, clip) + 2·position, plus 1
        on the left; 2k replaces 2·position for a token and itself, and a span and its tokens.

        >>> binary_partition(1, tokens=4).edge_types().shape
        torch.Size([22])
        """
        row, first, count, base, step = self._runs()
        key = np.repeat(row, count) * max(self.nodes, 1) + ranges(first, count)
        kind = ranges(base, count, step)
        return torch.from_numpy(kind[np.argsort(key, kind="stable")])

    def _check(self, n: int, m: int) -> None:
        if n != self.nodes or m != self.nodes:
            raise SizeMismatch(
                f"`{self!r}` has {self.nodes} nodes; {query_key_lengths(n, m)}",
                caller(),
                f"use n = {self.nodes}: the tokens and their spans",
            )

    def _runs(self) -> tuple[Ints, Ints, Ints, Ints, Ints]:
        """Row, first node, number of nodes, type of the first, and the step between types."""
        check_memory(64 * self.nodes * len(self.sizes), f"{self.tokens:,} tokens and their spans")
        parts = [*self._spans(), *self._side(right=False)]
        if not self.causal:
            parts += self._side(right=True)
        return tuple(np.concatenate(column) for column in zip(*parts, strict=True))  # type: ignore[return-value]

    def _spans(self) -> list[tuple[Ints, ...]]:
        """A token and itself, and a span and its tokens."""
        ptr = pointer(np.array(self.sizes))
        out: list[tuple[Ints, ...]] = []
        for level, size in enumerate(self.sizes):
            node = np.arange(size)
            first = node << level
            count = np.minimum((node + 1) << level, self.tokens) - first
            kind = np.full(size, self._base(level) + 2 * self.k)
            out.append((node + ptr[level], first, count, kind, np.zeros(size, np.int64)))
        return out

    def _side(self, *, right: bool) -> list[tuple[Ints, ...]]:
        """k nodes per level away from each token.

        Where k nodes end in the middle of a coarser one, its other half takes the first position of
        the coarser level.
        """
        ptr = pointer(np.array(self.sizes))
        out: list[tuple[Ints, ...]] = []
        row = np.arange(self.tokens)
        edge = row + 1 if right else row  # the next node not yet covered, or the last one covered
        used = np.zeros(len(row), np.int64)
        for level, size in enumerate(self.sizes):
            left_over = size - edge if right else edge
            count = np.clip(left_over, 0, self.k - used)
            first = edge if right else edge - count
            place = used if right else used + count - 1
            kind = self._base(level) + 2 * place + (0 if right else 1)
            change = np.full(len(row), 2 if right else -2)
            out.append((row, first + ptr[level], count, kind, change))
            edge = edge + count if right else edge - count
            half = (edge % 2 == 1) & (edge < size)
            node = edge if right else edge - 1
            side = self._base(level + 1) + (0 if right else 1)
            flat = np.zeros(int(half.sum()), np.int64)
            out.append((row[half], node[half] + ptr[level], flat + 1, flat + side, flat))
            used = half.astype(np.int64)
            edge = (edge + 1) // 2 if right else edge // 2
        return out

    def _base(self, level: int) -> int:
        return (2 * self.k + 1) * min(level, self.clip)
