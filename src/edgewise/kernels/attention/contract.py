"""The contract of kernels: the options and case of a call, its terms, what a kernel provides."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from edgewise.graphs.algebra import union
from edgewise.graphs.cache import cache_of, cached
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.residues import residue_groups
from edgewise.kernels.edges.attention import Dropout
from edgewise.layouts import Rows
from edgewise.scores.nodes import Node, S

EdgeTerm = Tensor | Sequence["EdgeTerm"]  # where graphs differ, a list with one for each


@dataclass(frozen=True)
class Options:
    """What is decided before a call; the seed of dropout is drawn at each."""

    scale: float
    score: Node  # without a default: a trace of torch 2.11 cannot make one
    dropout: float = 0.0
    offset: int = 0
    lse: bool = False
    weights: bool = False
    kernel: str | None = None


class TermInputs(NamedTuple):
    """The tensors of a call beyond q, k and v; `tables` are those of the score."""

    bias: Tensor | None = None
    edge_bias: EdgeTerm | None = None
    edge_scale: EdgeTerm | None = None
    edge_key: EdgeTerm | None = None
    edge_value: EdgeTerm | None = None
    lengths: Tensor | None = None
    tables: tuple[Tensor, ...] = ()


NO_INPUTS = TermInputs()


def changes_scores(options: Options, inputs: TermInputs) -> bool:
    """Whether a low score may become another one: then padding is masked by a bias of -∞."""
    terms = (inputs.bias, inputs.edge_bias, inputs.edge_scale, inputs.edge_key)
    return options.score != S or any(term is not None for term in terms)


WORDS = {"score": "a score of its own", "dropout": "dropout"}
PAIR_TERMS = ("bias", "edge_bias", "edge_scale", "score", "dropout")  # what tiles of scores take
EDGE_AXIS = {"edge_bias": 2, "edge_scale": 2, "edge_key": 1, "edge_value": 1}  # that of edges
EDGE_TERMS = (*PAIR_TERMS, "edge_key", "edge_value")
MANY = 1 << 17  # pieces of a graph that may be scattered
BLOCK_ROWS = 32  # about how many are looked at
FIXED = "fixed"  # among features: no table of the score needs a gradient
Function = TypeVar("Function", bound=Callable[..., Any])
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
    score: Node = S  # applied to the scaled dot product
    tf32: bool = False  # whether products of float32 are rounded to TF32, as torch allows

    def __post_init__(self) -> None:
        # what is cached with a graph must not hold the object that its users hold
        object.__setattr__(self, "graph", cache_of(self.graph).graph)

    @cached_property
    def prepared(self) -> dict[Any, Any]:
        """What a kernel prepared for the strides of tensors."""
        return {}

    @property
    def rows(self) -> Rows:
        return self.graph.rows(self.n, self.m)

    @cached_property
    def facts(self) -> "Facts":
        return facts(self.graph, self.n, self.m)

    @property
    def pairs(self) -> int:
        return self.facts.pairs

    @property
    def is_full(self) -> bool:
        return self.facts.full

    @property
    def is_causal(self) -> bool:
        return self.facts.causal

    @property
    def work(self) -> int:
        """Pairs over all heads and the batch."""
        return self.b * self.g * self.pairs

    @cached_property
    def wide(self) -> torch.dtype:
        return wide(self.dtype)

    @cached_property
    def written_out(self) -> bool:
        """Whether scores have terms that fused products of dot products do not know."""
        return bool(self.features & {*PAIR_TERMS})

    @property
    def learns(self) -> bool:
        """Whether tables of the score need gradients."""
        return FIXED not in self.features

    @property
    def density(self) -> float:
        return self.pairs / max(self.n * self.m, 1)

    def scattered(self, block: int) -> str | None:
        """The refusal of block kernels where nearly every pair would be a block of its own.

        An estimate, so that a large random graph is not cut up first: what so many pieces would
        touch by chance, or what they do touch in some block rows, if that is less.
        """
        if self.pairs < MANY or residue_groups(self.graph, self.n, self.m) is not None:
            return None
        if (pieces := pieces_of(self.graph, self.n, self.m)) < MANY:
            return None
        places = (self.n / block + 1) * (self.m / block + 1)
        chance = places * -math.expm1(-pieces / places)
        found = min(chance, touched_blocks(self.graph, self.n, self.m, block))
        if found * block * block < 80 * self.pairs:
            return None
        return f"its {self.pairs:,} pairs are scattered over about {found:,.0f} blocks of {block}"

    def lacks(self, *supported: str) -> str | None:
        """The refusal for a requested feature that is not among `supported`."""
        missing = sorted(self.features - {"lse", FIXED, *supported})
        listed = " and ".join(WORDS.get(name, f"`{name}`") for name in missing)
        return f"it does not take {listed}" if missing else None


@dataclass(frozen=True, eq=False)
class Terms:
    """What changes scores and weights; e counts the edges in the order of `graph.edges(n, m)`.

    s_ij = score(scale · edge_scale_ij · q_i·(k_j + edge_key_ij)) + bias_ij + edge_bias_ij;
    value j of query i is v_j + edge_value_ij. Shapes: `bias` (b, g, n or 1, m or 1), `edge_bias`
    and `edge_scale` (b, g, e), `edge_key` (b, e, d), `edge_value` (b, e, dv); `tables` (rows,
    length) are those of the score, head h reads row h mod rows.
    """

    bias: Tensor | None = None
    edge_bias: Tensor | None = None
    edge_scale: Tensor | None = None
    edge_key: Tensor | None = None
    edge_value: Tensor | None = None
    tables: tuple[Tensor, ...] = ()
    drop: Dropout | None = None

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        per_pair = (self.bias, self.edge_bias, self.edge_scale, self.edge_key, self.edge_value)
        return (*per_pair, *self.tables)

    @classmethod
    def of(cls, tensors: Sequence[Tensor | None], drop: Dropout | None = None) -> "Terms":
        """Those whose `tensors` these are."""
        tables = tuple(table for table in tensors[5:] if table is not None)
        bias, edge_bias, edge_scale, edge_key, edge_value = tensors[:5]
        return cls(bias, edge_bias, edge_scale, edge_key, edge_value, tables, drop)


NO_TERMS = Terms()


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
    """`terms` holds the gradient of each term of the call."""

    q: Tensor
    k: Tensor
    v: Tensor
    terms: Terms = field(default_factory=Terms)


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


def cached_by_case(function: Function) -> Function:
    """`function(case, ...)`, once for each, cached with its graph."""

    @wraps(function)
    def call(case: Case, *rest: Any) -> Any:
        near = case.__dict__.setdefault("_near", {})  # of this object, found without a hash
        if (function, *rest) in near:
            return near[function, *rest]
        cache, key = cache_of(case.graph), (function, case, *rest)
        entries = cache.at(case.n, case.m)
        if key not in entries:
            cache.add(case.n, case.m, key, function(case, *rest))
            entries = cache.at(case.n, case.m)
        near[function, *rest] = entries[key]
        return entries[key]

    return call  # type: ignore[return-value]


def allows_tf32(dtype: torch.dtype, device: str) -> bool:
    """Whether torch's own products of such tensors are rounded to TF32."""
    if dtype != torch.float32 or device != "cuda":
        return False
    matmul = torch.backends.cuda.matmul
    if hasattr(matmul, "fp32_precision"):  # which the older setting sets too
        return bool(matmul.fp32_precision == "tf32")
    return bool(matmul.allow_tf32)


def wide(dtype: torch.dtype) -> torch.dtype:
    """The precision in which sums and the log-sum-exp of `dtype` are computed."""
    return torch.float64 if dtype == torch.float64 else torch.float32


@dataclass(frozen=True)
class Facts:
    pairs: int
    full: bool
    causal: bool
    no_empty_row: bool


@cached
def facts(graph: Pattern, n: int, m: int) -> Facts:
    """What every call needs to know about its graph."""
    groups = residue_groups(graph, n, m)
    if groups is not None:  # so 1 does not attend to 0
        inner = [(group.classes, facts(group.graph, group.n, group.m)) for group in groups]
        pairs = sum(classes * one.pairs for classes, one in inner)
        return Facts(pairs, False, False, all(one.no_empty_row for _, one in inner))
    pairs = graph.count(n, m)
    causal = (
        graph.bitmap is None
        and n == m
        and pairs == n * (n + 1) // 2
        and is_causal(graph.rows(n, m))
    )
    return Facts(pairs, pairs == n * m, causal, _no_empty_row(graph, n, m))


def _no_empty_row(graph: Pattern, n: int, m: int) -> bool:
    if isinstance(graph, union) and any(_no_empty_row(member, n, m) for member in graph.members):
        return True
    if graph.bitmap is not None:
        return bool(graph.bitmap.degrees().all())
    ptr = graph.rows(n, m).ptr
    return bool((ptr[1:] > ptr[:-1]).all())


@cached
def pieces_of(graph: Pattern, n: int, m: int) -> int:
    """About how many pieces the normal form has: a union need not be worked out for it."""
    if isinstance(graph, union):
        return sum(pieces_of(member, n, m) for member in graph.members)
    if graph.bitmap is not None:
        return 0  # it is read in blocks
    return len(graph.rows(n, m).start)


@cached
def touched_blocks(graph: Pattern, n: int, m: int, block: int) -> float:
    """About how many blocks hold pairs, from block rows spread over the graph: in a neighbourhood
    of pixels, say, the pieces of all rows are in the same ones."""
    if isinstance(graph, union):
        return sum(touched_blocks(member, n, m, block) for member in graph.members)
    rows, tops = graph.rows(n, m), range(0, n, max(n // BLOCK_ROWS, block))
    found = 0
    for top in tops:
        part = rows.between(top, min(top + block, n))
        last = part.stop + part.dstop * (part.height[part.slab] - 1) - 1
        ends = np.zeros(m // block + 2, np.int64)
        np.add.at(ends, part.start // block, 1)
        np.add.at(ends, last // block + 1, -1)
        found += int(np.count_nonzero(np.cumsum(ends)))
    return found * (n / block) / max(len(tops), 1)


def is_full(rows: Rows) -> bool:
    return rows.count() == rows.n * rows.m


def is_causal(rows: Rows) -> bool:
    """Exactly {(i, j) : j ≤ i}, on as many keys as queries."""
    if rows.n != rows.m or rows.count() != rows.n * (rows.n + 1) // 2:
        return False
    p = rows.trapezoids()
    last = p.stop + p.dstop * (p.bottom - p.top - 1)
    return bool((p.step == 1).all() and (last <= p.bottom).all() and _below(p.stop, p.top))


def _below(stop: np.ndarray, top: np.ndarray) -> bool:
    return bool((stop <= top + 1).all())


def default_scale(d: int) -> float:
    """The default softmax scale 1/√d, for queries and keys of size d."""
    return 1 / math.sqrt(d) if d else 1.0
