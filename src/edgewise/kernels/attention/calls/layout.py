"""How the tensors of a call are shaped for kernels, which know no batch and no key heads; and the
weights themselves, one per pair of the graph: for looking, and for losses on attention."""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from edgewise.graphs.checks import integer
from edgewise.graphs.families import Family
from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention.calls import arguments, term_arguments
from edgewise.kernels.attention.calls.split import Graph, expand_terms, is_vector
from edgewise.kernels.attention.contract import (
    FIXED,
    NO_TERMS,
    Case,
    Options,
    TermInputs,
    Terms,
    wide,
)
from edgewise.kernels.attention.terms import Scores, Tile, places
from edgewise.kernels.edges.attention import Dropout
from edgewise.scores.nodes import S

CHUNK = 1 << 24  # numbers gathered at a time
TERMS = ("bias", "edge_bias", "edge_scale", "edge_key", "edge_value")


class Work(NamedTuple):
    """Pairs over all heads, floating-point operations, bytes of inputs and output."""

    pairs: int
    flops: int
    bytes: int


class Spec(NamedTuple):
    """The shapes and the dtype of a call, as meta tensors, its graph and its device; `fixed` says
    that no table of the score learns, `grouped` that tensors are as kernels take them."""

    q: Tensor
    k: Tensor
    v: Tensor
    graph: Graph
    device: torch.device
    fixed: bool = False
    grouped: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the output."""
        return (*self.q.shape[:-1], self.v.shape[-1])

    @property
    def heads(self) -> tuple[int, ...]:
        """Of q, with those of the batch."""
        return tuple(self.q.shape[:-2]) if self.q.ndim > 2 else (1,)


class Layout:
    """The case of a call along one graph, and its tensors as kernels take them."""

    def __init__(self, spec: Spec, options: Options, inputs: TermInputs) -> None:
        assert isinstance(spec.graph, Pattern)
        offset = integer(options.offset, "offset")
        self.graph = spec.graph.shift(-offset, 0) if offset else spec.graph
        tensors = arguments.grouped(spec.q, spec.k, spec.v)
        self.shapes = tuple(tuple(x.shape) for x in tensors)
        case = arguments.build_case(tensors, self.graph, options.scale, spec.device.type)
        self.dropout, self.heads, self.dtype = options.dropout, spec.heads, spec.q.dtype
        self.lead = tuple(spec.q.shape[:-2])
        names = [name for name in TERMS if getattr(inputs, name) is not None]
        self.terms_of = [_Shape(getattr(inputs, name), name, case, spec) for name in names]
        for table in inputs.tables:
            term_arguments.check_table(table, spec.q)
        flags = {"score": options.score != S, "dropout": bool(self.dropout), "lse": options.lse}
        flags[FIXED] = bool(inputs.tables) and spec.fixed
        features = frozenset([*names, *(name for name, flag in flags.items() if flag)])
        if features:
            case = replace(case, features=features, score=options.score)
        self.on_pairs = case.is_full and "edge_bias" in features and not spec.grouped
        if self.on_pairs:
            case = replace(case, features=features - {"edge_bias"} | {"bias"})
        self.case = case
        self.bare = not (names or inputs.tables or self.dropout)

    def tensors(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(b, g, n, d), (b, m, d) and (b, m, dv)."""
        of_q, of_k, of_v = self.shapes
        return q.reshape(of_q), k.reshape(of_k), v.reshape(of_v)

    def terms(self, inputs: TermInputs, seed: int) -> Terms:
        if self.bare:
            return NO_TERMS
        found = {shape.name: shape(getattr(inputs, shape.name)) for shape in self.terms_of}
        tables = tuple([term_arguments.table_rows(table, self.heads) for table in inputs.tables])
        drop = Dropout(self.dropout, seed) if self.dropout else None
        if self.on_pairs:  # where all pairs are edges, a bias of edges is one of pairs
            square = found.pop("edge_bias").unflatten(-1, (self.case.n, self.case.m))
            found["bias"] = square + found["bias"] if "bias" in found else square
        return Terms(**found, tables=tables, drop=drop)

    def weights(self, q: Tensor, k: Tensor, v: Tensor, inputs: TermInputs) -> Tensor:
        """p_ij of every pair, (..., heads, e)."""
        tensors, terms = self.tensors(q, k, v), self.terms(inputs, 0)
        return weights_of(self.case, tensors, terms, self.lead, inputs.lengths)

    @property
    def weights_size(self) -> tuple[int, int]:
        """Pairs and bytes of all weights."""
        case = self.case
        return case.work, 4 * case.work * wide(case.dtype).itemsize + 16 * case.pairs

    @property
    def work(self) -> Work:
        case = self.case
        features, tokens = case.d + case.dv, case.b * (case.g * case.n + case.m)
        size = case.dtype.itemsize
        return Work(case.work, 2 * case.work * features, tokens * features * size)


class _Shape:
    """How a term of pairs or edges gets the axes that kernels take."""

    def __init__(self, term: Tensor, name: str, case: Case, spec: Spec) -> None:
        heads = spec.heads
        shared = tuple(spec.k.shape[:-2]) if spec.k.ndim > 2 else (1,)
        rows = (case.b,) if is_vector(name) else (case.b, case.g)
        lead = shared if is_vector(name) else heads
        last: tuple[int, ...] = {
            "bias": (case.n, case.m),
            "edge_key": (case.pairs, case.d),
            "edge_value": (case.pairs, case.dv),
        }.get(name, (case.pairs,))
        term_arguments.check_broadcast(term, name, (*lead, *last))
        missing = len(lead) + len(last) - term.ndim
        if name == "bias":  # the axes after the heads may stay 1
            last = ((1,) * missing + tuple(term.shape))[len(lead) :]
        self.name, self.dtype, self.axes = name, spec.q.dtype, (None,) * missing
        self.expanded, self.shape = (*lead, *last), (*rows, *last)

    def __call__(self, term: Tensor) -> Tensor:
        term = term_arguments.as_bias(term, self.dtype)[self.axes]
        return term.expand(self.expanded).reshape(self.shape)


class Expanded:
    """Lists of edge terms, one for each graph, in all of their axes."""

    def __init__(self, spec: Spec, options: Options, inputs: TermInputs) -> None:
        self.spec, self.shapes = spec, dict[str, tuple[int, ...]]()
        assert isinstance(spec.graph, Family)
        if inputs.bias is not None:
            lead = (*spec.heads, spec.q.shape[-2], spec.k.shape[-2])
            term_arguments.check_broadcast(inputs.bias, "bias", lead)
        for table in inputs.tables:
            term_arguments.check_table(table, spec.q)

        def checked(term: Tensor, name: str, lead: tuple[int, ...], graph: Any) -> Tensor:
            arguments.check_strided(term, name)
            last = (spec.v if name.startswith("edge_value") else spec.k).shape[-1:]
            n, m = spec.q.shape[-2], spec.k.shape[-2]
            pairs = arguments.pairs_of(graph, n, m, options.offset)
            shape = (*lead, pairs, *(last if is_vector(name) else ()))
            term_arguments.check_broadcast(term, name, shape)
            self.shapes[name] = shape
            return self._expanded(term, name)

        self.inputs = expand_terms(inputs, checked, spec.graph, spec.q, spec.k, spec.v)

    def _expanded(self, term: Tensor, name: str, *_: Any) -> Tensor:
        shape = self.shapes[name]
        term = term_arguments.as_bias(term, self.spec.q.dtype)
        return term[(None,) * (len(shape) - term.ndim)].expand(shape)

    def __call__(self, inputs: TermInputs) -> TermInputs:
        if not self.shapes:
            return inputs
        spec = self.spec
        return expand_terms(inputs, self._expanded, spec.graph, spec.q, spec.k, spec.v)


def weights_of(
    case: Case,
    tensors: tuple[Tensor, Tensor, Tensor],
    terms: Terms,
    lead: tuple[int, ...],
    lengths: Tensor | None,
) -> Tensor:
    """p_ij = exp(s_ij - max_j s_ij) / Σ_j exp(s_ij - max_j s_ij): (*lead, e).

    They are a softmax of their own: beside a log-sum-exp that a kernel rounds otherwise, a weight
    of large scores would be above 1.
    """
    i, j = places(case.graph, case.n, case.m, tensors[0].device)
    dot = _dots(tensors[0], tensors[1], terms.edge_key, i, j) * case.scale
    tile = Tile(i, j, torch.arange(len(i), device=i.device))
    score = Scores(case, terms, tile, dot).values().reshape(*lead, len(i))
    if lengths is not None:
        there = j < lengths[..., None]
        score = torch.where(there[..., None, :] if lead else there, score, -torch.inf)
    return _softmax(score, i, case.n)


def _softmax(score: Tensor, i: Tensor, n: int) -> Tensor:
    """Of each row's scores; 0 in rows where all are -∞."""
    low = score.new_full((*score.shape[:-1], n), -torch.inf)
    most = low.scatter_reduce(-1, i.expand(score.shape), score.detach(), "amax")
    most = torch.where(most == -torch.inf, 0, most)
    part = torch.exp(score - most[..., i])
    total = torch.zeros_like(most).index_add(-1, i, part)
    return part / torch.where(total == 0, 1, total)[..., i]


def _dots(q: Tensor, k: Tensor, edge_key: Tensor | None, i: Tensor, j: Tensor) -> Tensor:
    kind = wide(q.dtype)
    step = max(CHUNK // max(q.shape[0] * q.shape[1] * q.shape[-1], 1), 1)
    parts = []
    for at in range(0, max(len(i), 1), step):
        part = slice(at, at + step)
        keys = k[:, j[part]]
        keys = keys if edge_key is None else keys + edge_key[:, part]
        parts.append((q[:, :, i[part]].to(kind) * keys[:, None].to(kind)).sum(-1))
    return torch.cat(parts, -1)
