"""What a kernel is asked to do, and what it must provide."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Rows

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


@dataclass(frozen=True)
class Case:
    """One call of attention without its numbers: all that a kernel is chosen by.

    Kernels see q as (b, g, n, d), k as (b, m, d) and v as (b, m, dv), where b counts batch
    elements × key heads and g the query heads that share one key head.
    """

    b: int
    g: int
    n: int
    m: int
    d: int
    dv: int
    dtype: torch.dtype
    device: str
    graph: Pattern
    scale: float
    features: frozenset[str] = frozenset()

    @property
    def rows(self) -> Rows:
        return self.graph.rows(self.n, self.m)

    @property
    def pairs(self) -> int:
        return facts(self.graph, self.n, self.m).pairs

    @property
    def is_full(self) -> bool:
        return facts(self.graph, self.n, self.m).full

    @property
    def is_causal(self) -> bool:
        return facts(self.graph, self.n, self.m).causal

    @property
    def work(self) -> int:
        """Pairs over all heads and the batch."""
        return self.b * self.g * self.pairs

    @property
    def density(self) -> float:
        return self.pairs / max(self.n * self.m, 1)

    def scattered(self, block: int) -> str | None:
        """The refusal of block kernels where nearly every pair would be a block of its own.

        An estimate from the number of pieces, so that a large random graph is not cut up first.
        """
        pieces, places = len(self.rows.start), (self.n / block + 1) * (self.m / block + 1)
        found = places * -math.expm1(-pieces / places)
        if pieces < 1 << 17 or found * block * block < 80 * self.pairs:
            return None
        return f"its {self.pairs:,} pairs are scattered over about {found:,.0f} blocks of {block}"

    def heard(self) -> Tensor:
        """Which rows have a key."""
        return torch.from_numpy(self.rows.degrees() > 0)

    def lacks(self, *supported: str) -> str | None:
        """The refusal for a feature asked for and not among `supported`."""
        missing = sorted(self.features - {"lse", *supported})
        return f"it does not take {' and '.join(missing)}" if missing else None


@dataclass(frozen=True, eq=False)
class Terms:
    """What changes scores and weights.

    `bias`: (b, g, n or 1, m or 1), for dense kernels; `edge_bias`: (b, g, e) in the order of
    `graph.edges(n, m)`. `keep` (b, g, e) multiplies the weights: 0 where dropped.
    """

    bias: Tensor | None = None
    edge_bias: Tensor | None = None
    keep: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Saved:
    """What the backward pass starts from. `lse` is +∞ in rows without keys: weights there are 0.

    `out` and `lse` may be those of a larger graph: gradients of disjoint parts then add up.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    terms: Terms
    out: Tensor
    lse: Tensor


@dataclass(frozen=True, eq=False)
class Grads:
    q: Tensor
    k: Tensor
    v: Tensor
    bias: Tensor | None = None
    edge_bias: Tensor | None = None


class Implementation(Protocol):
    """A kernel: the module of its name.

    `cost` is in pairs: 1 is the work of one pair of one head in a large dense product.
    """

    @property
    def name(self) -> str: ...
    def refuses(self, case: Case) -> str | None: ...
    def cost(self, case: Case) -> float: ...
    def forward(
        self, case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms
    ) -> tuple[Tensor, Tensor]: ...
    def backward(self, case: Case, saved: Saved, dout: Tensor) -> Grads: ...


def wide(dtype: torch.dtype) -> torch.dtype:
    """The precision in which sums and the log-sum-exp of `dtype` are kept."""
    return torch.float64 if dtype == torch.float64 else torch.float32


@dataclass(frozen=True)
class Facts:
    pairs: int
    full: bool
    causal: bool


@lru_cache(maxsize=4096)
def facts(graph: Pattern, n: int, m: int) -> Facts:
    """What every call asks about its graph, kept longer than the normal form itself."""
    rows = graph.rows(n, m)
    return Facts(rows.count(), is_full(rows), is_causal(rows))


def is_full(rows: Rows) -> bool:
    return rows.count() == rows.n * rows.m


def is_causal(rows: Rows) -> bool:
    """Exactly {(i, j) : j ≤ i}, on as many keys as queries."""
    if rows.n != rows.m or rows.count() != rows.n * (rows.n + 1) // 2:
        return False
    p = rows.pieces()
    last = p.stop + p.dstop * (p.bottom - p.top - 1)
    return bool((p.step == 1).all() and (last <= p.bottom).all() and _below(p.stop, p.top))


def _below(stop: np.ndarray, top: np.ndarray) -> bool:
    return bool((stop <= top + 1).all())


def default_scale(d: int) -> float:
    return 1 / math.sqrt(d) if d else 1.0
