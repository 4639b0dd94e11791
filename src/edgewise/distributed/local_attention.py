"""Attention of some queries to some keys on one device, with scores and biases of their tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from edgewise.distributed.collectives import Ranks
from edgewise.distributed.token_sets import TokenSet
from edgewise.graphs.cache import cache_of
from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention import blocks, empty, reference
from edgewise.kernels.attention.contract import (
    FIXED,
    NO_TERMS,
    Case,
    Implementation,
    Saved,
    Terms,
    wide,
)
from edgewise.kernels.attention.edges import gather
from edgewise.kernels.attention.registry import choose
from edgewise.kernels.edges.attention import Dropout
from edgewise.layouts.ragged import Ints
from edgewise.scores.nodes import (
    Call,
    Entry,
    I,
    J,
    Leaf,
    Node,
    Number,
    S,
    by_distance,
    moved,
    replaced,
    walk,
)

Tensors = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class PlacedDropout(Dropout):
    """Drops the pairs that one process would: queries and keys count by their tokens."""

    queries: Tensor
    keys: Tensor

    def keep(self, heads: int, i: Tensor, j: Tensor, kind: torch.dtype) -> Tensor:
        return super().keep(heads, self.queries[i], self.keys[j], kind)


class Rest(NamedTuple):
    """Of a forward pass: the results of all parts together, and the gradient of the output."""

    out: Tensor
    lse: Tensor
    dout: Tensor


class TermSums:
    """Gradients of a bias and of the tables of a score, added up over all parts of a call."""

    def __init__(self, bias: Tensor | None, tables: tuple[Tensor, ...]) -> None:
        self.bias = None if bias is None else torch.zeros(bias.shape, **_wide_like(bias))
        self.tables = [torch.zeros(x.shape, **_wide_like(x)) for x in tables]

    def add(self, found: Terms, rows: Tensor | None, keys: Tensor | None) -> None:
        """Those of a part, whose bias has some rows and some keys of the call's."""
        for total, table in zip(self.tables, found.tables, strict=False):
            total += table
        if self.bias is None or found.bias is None:
            return
        grad, into = found.bias.to(self.bias.dtype), self.bias
        if keys is not None:
            every = grad.new_zeros(*grad.shape[:-1], into.shape[-1])
            grad = every.index_add(-1, keys, grad)
        if rows is None:
            into += grad
        else:
            into.index_add_(-2, rows, grad)


def _wide_like(x: Tensor) -> dict[str, Any]:
    return {"dtype": wide(x.dtype), "device": x.device}


class SharedCall(NamedTuple):
    """What all parts of a call share. `score` is of tokens, whatever their places on ranks; `bias`
    has the rows of this rank's tokens `own`, and a column for each token."""

    ranks: Ranks
    scale: float
    own: TokenSet
    drop: Dropout | None = None
    score: Node = S
    least: float = -torch.inf  # log-sum-exps below are of keys that are not there
    tables: tuple[Tensor, ...] = ()
    bias: Tensor | None = None
    learns: bool = False  # whether a table needs a gradient
    sums: TermSums | None = None  # in the backward pass

    def with_keys(self, out: Tensor, lse: Tensor) -> Tensor:
        """0 for queries none of whose keys are there."""
        if self.least == -torch.inf:
            return out
        return torch.where((lse < self.least)[..., None], 0.0, out)


class LocalAttention:
    """Attention of some queries to some keys on one device."""

    def __init__(self, graph: Pattern, queries: Ints, keys: Ints) -> None:
        self.graph, self.cache = graph, cache_of(graph)
        self.queries, self.keys = torch.from_numpy(queries), torch.from_numpy(keys)
        self.cases: dict[Any, tuple[Case, Implementation]] = {}

    def _case(self, tensors: Tensors, call: SharedCall) -> tuple[Case, Implementation]:
        q, k, v = tensors
        has = {"dropout": call.drop, "bias": call.bias, "score": None if call.score == S else 1}
        features = {"lse", *(name for name, thing in has.items() if thing is not None)}
        features |= {FIXED} if call.tables and not call.learns else set()
        key = (q.shape, v.shape, q.dtype, call.scale, call.score, frozenset(features))
        if key not in self.cases:
            (b, g, n, d), m, dv = q.shape, k.shape[1], v.shape[-1]
            sizes, device = (b, g, n, m, d, dv), q.device.type
            score, _ = self._placed(call.score, len(call.tables))
            case = Case(*sizes, q.dtype, device, self.graph, call.scale, frozenset(features), score)
            self.cases[key] = case, _kernel(case, call.drop)
        return self.cases[key]

    def _placed(self, score: Node, tables: int) -> tuple[Node, tuple[Tensor, ...]]:
        """The score of tokens as one of places, with tables of the tokens where these do not follow
        one another."""
        used = set(walk(score))
        starts = {I: _first(self.queries), J: _first(self.keys)}
        apart = starts[I] - starts[J] if None not in starts.values() else None  # type: ignore[operator]
        if apart is not None and by_distance(score):
            return (moved(score, apart) if apart else score), ()
        leaves: dict[Leaf, Node] = {}
        more: list[Tensor] = []
        for leaf, tokens in ((I, self.queries), (J, self.keys)):
            start = starts[leaf]
            if leaf not in used or start == 0:
                continue
            if start is None:
                leaves[leaf] = Entry(tables + len(more), leaf)
                more.append(tokens[None])
            else:
                leaves[leaf] = Call("add", (leaf, Number(start)))
        return replaced(score, leaves), tuple(more)

    def _bias_places(self, call: SharedCall) -> tuple[Tensor | None, Tensor | None]:
        """The rows and columns of the call's bias that are read; None for the one that is there."""
        assert call.bias is not None
        device, (rows, columns) = call.bias.device, call.bias.shape[-2:]
        place = None
        if rows > 1:
            place = torch.from_numpy(call.own.place(self.queries.numpy())).to(device)
        return place, self.keys.to(device) if columns > 1 else None

    def _terms(self, call: SharedCall, dtype: torch.dtype) -> Terms:
        if call.drop is None and call.bias is None and call.score == S:
            return NO_TERMS
        device, drop, bias = call.ranks.device, None, None
        if call.drop is not None:
            places = self.queries.to(device), self.keys.to(device)
            drop = PlacedDropout(call.drop.chance, call.drop.seed, *places)
        if call.bias is not None:
            at, keys = self._bias_places(call)
            bias = call.bias if at is None else call.bias.index_select(-2, at)
            bias = bias if keys is None else bias.index_select(-1, keys)
        _, more = self._placed(call.score, len(call.tables))
        of_tokens = tuple([x.to(device, dtype) for x in more])
        return Terms(bias=bias, tables=(*call.tables, *of_tokens), drop=drop)

    def forward(self, tensors: Tensors, call: SharedCall) -> tuple[Tensor, Tensor]:
        case, kernel = self._case(tensors, call)
        return kernel.forward(case, *tensors, self._terms(call, case.wide))

    def backward(self, tensors: Tensors, rest: Rest, call: SharedCall) -> Tensors:
        case, kernel = self._case(tensors, call)
        lse = torch.where(rest.lse == -torch.inf, torch.inf, rest.lse)
        saved = Saved(*tensors, self._terms(call, case.wide), rest.out, lse)
        found = kernel.backward(case, saved, rest.dout)
        if call.sums is not None:
            at, keys = (None, None) if call.bias is None else self._bias_places(call)
            call.sums.add(found.terms, at, keys)
        return found.q, found.k, found.v


def _first(tokens: Tensor) -> int | None:
    """The first of tokens that follow one another, else None."""
    if not len(tokens):
        return 0
    first, last = int(tokens[0]), int(tokens[-1])
    return first if last - first == len(tokens) - 1 else None


def _kernel(case: Case, drop: Dropout | None) -> Implementation:
    if drop is None:
        return choose(case).implementation
    known: tuple[Any, ...] = (empty, blocks, gather, reference)  # that read places from the dropout
    return next(kernel for kernel in known if kernel.refuses(case) is None)
