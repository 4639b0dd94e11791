"""Patterns moved and cut: .T shift restrict."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs.checks import LARGEST, shown, whole
from edgewise.graphs.errors import BadSize
from edgewise.graphs.pattern import Expression, Pattern, Span, written
from edgewise.graphs.sizes import sizes
from edgewise.layouts import AND, Rows, combine, pieces, rows_of_pieces, transposed


@dataclass(frozen=True, repr=False)
class transpose(Expression):
    """{(j, i) : (i, j) ∈ pattern}."""

    pattern: Pattern

    @property
    def T(self) -> Pattern:
        return self.pattern

    def form(self, n: int, m: int) -> Rows:
        return transposed(self.pattern.rows(m, n))

    def count(self, n: int, m: int | None = None) -> int:
        n, m = sizes(n, m)
        return self.pattern.count(m, n)

    def holds(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return self.pattern.holds(j, i, m, n)

    def __repr__(self) -> str:
        return written(self.pattern, 4) + ".T"


@dataclass(frozen=True, repr=False)
class shifted(Expression):
    """{(i + by, j + keys) : (i, j) ∈ pattern}, where pattern has n - by queries, m - keys keys."""

    pattern: Pattern
    by: int
    keys: int

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "by", _signed(self.by, "rows"))
        object.__setattr__(self, "keys", _signed(self.keys, "keys"))

    def shift(self, rows: int, keys: int | None = None) -> Pattern:
        by, along = _signed(rows, "rows"), _signed(rows if keys is None else keys, "keys")
        if self.by * by >= 0 and self.keys * along >= 0:  # further the same way
            return shifted(self.pattern, self.by + by, self.keys + along)
        return shifted(self, by, along)

    def form(self, n: int, m: int) -> Rows:
        high, wide = max(n - self.by, 0), max(m - self.keys, 0)
        first, down = max(-self.by, 0), max(self.by, 0)
        p = self.pattern.rows_between(high, wide, min(first, high), high).pieces()
        rows, slopes = (p.top + down, p.bottom + down), (p.dstart, p.dstop)
        start, stop = p.start + self.keys, p.stop + self.keys
        return rows_of_pieces(n, m, pieces(rows, start, stop, slope=slopes, step=p.step))

    def holds(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        high, wide = max(n - self.by, 0), max(m - self.keys, 0)
        if not high or not wide:
            return torch.zeros_like(i + j, dtype=torch.bool)
        if not self.is_arithmetic:  # of its rows only those that are left are worked out
            return super().holds(i, j, n, m)
        a, b = i - self.by, j - self.keys
        inside = self.pattern.holds(a.clamp(0, high - 1), b.clamp(0, wide - 1), high, wide)
        return (a >= 0) & (b >= 0) & inside

    def __repr__(self) -> str:
        by = repr(self.by) if self.by == self.keys else f"{self.by}, {self.keys}"
        return f"{written(self.pattern, 4)}.shift({by})"


@dataclass(frozen=True, repr=False)
class restricted(Expression):
    """{(i, j) ∈ pattern : queries[0] ≤ i < queries[1], keys[0] ≤ j < keys[1]}."""

    pattern: Pattern
    queries: Span = (0, None)
    keys: Span = (0, None)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("queries", "keys"):
            span = getattr(self, name)
            if not isinstance(span, tuple | list) or len(span) != 2:
                raise BadSize(
                    f"`{name}` must be a range (first, last + 1), got {shown(span)}",
                    caller(),
                    f"write `{name}=(0, 8)`, or `{name}=(8, None)` for all from 8 on",
                )
            high = None if span[1] is None else whole(span[1], name)
            object.__setattr__(self, name, (whole(span[0], name), high))

    def stretch(self, n: int, m: int, first: int, last: int) -> Rows:
        (top, bottom), (start, stop) = self.queries, self.keys
        rows = (top - first, (n if bottom is None else bottom) - first)
        box = rows_of_pieces(last - first, m, pieces(rows, start, m if stop is None else stop))
        inner = self.pattern.rows_between(n, m, first, last)
        return combine(last - first, m, inner.pieces(), box.pieces(), AND)

    def holds(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        out = self.pattern.holds(i, j, n, m)
        for value, (low, high) in ((i, self.queries), (j, self.keys)):
            out = out & (value >= low)
            out = out if high is None else out & (value < high)
        return out

    def __repr__(self) -> str:
        named = (("queries", self.queries), ("keys", self.keys))
        given = ", ".join(f"{name}={span}" for name, span in named if span != (0, None))
        return f"{written(self.pattern, 4)}.restrict({given})"


def _signed(value: Any, name: str) -> int:
    return whole(value, name, -LARGEST)
