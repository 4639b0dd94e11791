"""A fused attention node on dense axes: queries, keys and values straight into a kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs import causal, from_edges, full
from edgewise.ground.index import Grid, Index, Keys
from edgewise.ground.rules import Grounder
from edgewise.kernels.aggregate import Gather
from edgewise.kernels.attention.flash import fused
from edgewise.language import nodes
from edgewise.language.terms import variables
from edgewise.plan.nodes import Attention
from edgewise.plan.score import names_in
from edgewise.reference.join import Body
from edgewise.run.autocast import autocasts
from edgewise.run.code import Coded, leaves
from edgewise.run.column import Column, column
from edgewise.run.rule import RuleStep
from edgewise.run.scored import bent, pairs_of
from edgewise.run.state import State
from edgewise.run.tape.whole import whole
from edgewise.run.traced import graph_attention

CAUSAL, EVERY = causal(), full()
SUM = nodes.Function("sum_agg")
PRODUCT = nodes.Function("product")
Axes = dict[str, int]
ShapeOf = Callable[[nodes.Rule], tuple[int, ...] | None]


@dataclass(frozen=True, eq=False)
class Side:
    """An expression over some axes: a value for each place of a grid."""

    step: RuleStep
    names: tuple[str, ...]
    sizes: tuple[int, ...]

    def __call__(self, state: State, order: Sequence[str], axes: Axes) -> Tensor:
        """(batch, *axes in `order`, value...), axes it does not hold broadcast."""
        value = self.step(state)
        data = value.data.reshape(value.data.shape[0], *self.sizes, *value.shape)
        held = [n for n in order if n in self.names]
        places = [1 + self.names.index(n) for n in held]
        rest = range(1 + len(self.names), data.ndim)
        data = data.permute(0, *places, *rest)
        shape = [axes[n] if n in self.names else 1 for n in order]
        return data.reshape(data.shape[0], *shape, *value.shape)


@dataclass(frozen=True, eq=False)
class AttentionStep:
    """Runs one attention node; `index` are the heads that have a key to hear."""

    node: Attention
    index: Index
    axes: Axes
    queries: tuple[Side, ...]
    keys: tuple[Side, ...]
    scales: tuple[tuple[Side, ...], ...]
    biases: tuple[Side, ...]
    value: Side
    heard: Tensor | None
    pattern: Any
    vector: Side | None = None  # of the node's form, if it has one
    which: Gather | None = None
    code: Coded | None = None  # the score, if it is code

    @property
    def rule(self) -> nodes.Rule:
        return self.node.instead[1]

    def rules(self) -> Iterator[RuleStep]:
        sides = [*self.queries, *self.keys, self.value, *self.biases]
        sides += [] if self.vector is None else [self.vector]
        yield from (side.step for side in sides)

    def __call__(self, state: State) -> Column:
        if self.node.form is not None:
            return self._heads(*bent(self, state))
        shared, query, key = self.node.shared, self.node.query, self.node.key
        q = self._joined(self.queries, (*shared, query), state, self.scales)
        k = self._joined(self.keys, (*shared, key), state, ())
        v, rank = self.weighed((*shared, key), state)
        if state.cache is not None and self.node.head.relation in state.cache:
            return self._heads(self._cached(state, q, k, v), rank)
        bias = self._bias((*shared, query, key), state)
        dropout = self.node.dropout if state.training else 0.0
        q, k, v = (_in_autocast(self.spread(t)) for t in (q, k, v))
        if self.code is not None:
            score, graph = self.code(state), self.pattern or EVERY
            out = graph_attention(
                q, k, v, graph, bias=bias, dropout=dropout, score=score.node, tables=score.tables
            )
            return self._heads(out, rank)
        return self._heads(self.kernel(q, k, v, bias, dropout), rank)

    def kernel(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, dropout: float
    ) -> Tensor:
        lead = q.shape[1:-2]
        if len(lead) > 1:  # kernels take one axis of heads: fast ones no other
            if bias is not None:
                bias = bias.expand(bias.shape[0], *lead, *bias.shape[-2:]).flatten(1, -3)
            q, k, v = (t.flatten(1, -3) for t in (q, k, v))
            return self.kernel(q, k, v, bias, dropout).unflatten(1, lead)
        ahead = self.pattern == CAUSAL
        if self.pattern is None or (ahead and bias is None):  # no graph to plan for: traceable
            return fused(q, k, v, 1.0, causal=ahead, mask=bias, dropout=dropout)
        return graph_attention(q, k, v, self.pattern, bias=bias, dropout=dropout)

    def _cached(self, state: State, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """New rows over what is kept; what a query adds to all its scores changes none."""
        order = (*self.node.shared, self.node.query, self.node.key)
        kept = tuple(side for side in self.biases if self.node.key in side.names)
        bias = self._bias(order, state, kept)
        q = self.spread(q)
        k, v = (t if self.node.shared else t.unsqueeze(1) for t in (k, v))
        q, k, v = (_in_autocast(t) for t in (q, k, v))
        return _attend_cached(q, k, v, bias, self, state.cache)

    def _joined(
        self,
        sides: Sequence[Side],
        order: Sequence[str],
        state: State,
        scales: Sequence[Sequence[Side]],
    ) -> Tensor:
        """The parts of a query (or key) side by side: Σ qₜᵀkₜ is one dot product."""
        parts = []
        for t, side in enumerate(sides):
            data = side(state, order, self.axes)
            data = data.unsqueeze(-1) if data.ndim == 1 + len(order) else data
            for scale in scales[t] if scales else ():
                data = data * scale(state, (), {}).reshape(-1, *(1,) * (data.ndim - 1))
            parts.append(data)
        if len(parts) == 1:
            return parts[0]
        shape = torch.broadcast_shapes(*(p.shape[:-1] for p in parts))
        return torch.cat([p.expand(*shape, p.shape[-1]) for p in parts], -1)

    def weighed(self, order: Sequence[str], state: State) -> tuple[Tensor, tuple[int, ...]]:
        data = self.value(state, order, self.axes)
        shape = tuple(data.shape[1 + len(order) :])
        return data.reshape(*data.shape[: 1 + len(order)], math.prod(shape)), shape

    def _bias(
        self, order: Sequence[str], state: State, sides: Sequence[Side] | None = None
    ) -> Tensor | None:
        sides = self.biases if sides is None else sides
        if not sides:
            return None
        parts = [side(state, order, self.axes) for side in sides]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total if self.node.shared else total.unsqueeze(1)

    def spread(self, data: Tensor) -> Tensor:
        """(batch, shared..., n, d) with every shared axis at its length."""
        shared = [self.axes[n] for n in self.node.shared]
        data = data.expand(data.shape[0], *shared, *data.shape[-2:])
        return data if shared else data.unsqueeze(1)

    def _heads(self, out: Tensor, shape: tuple[int, ...]) -> Column:
        out = out if self.node.shared else out.squeeze(1)
        names = (*self.node.shared, self.node.query)
        order = [1 + names.index(v.name) for v in variables(self.node.head.terms)]
        out = out.permute(0, *order, out.ndim - 1)
        rows = math.prod(out.shape[1:-1])
        found = Column(out.reshape(out.shape[0], rows, *shape))
        return column(found.data).take(self.heard)


def _in_autocast(data: Tensor) -> Tensor:
    """In the precision of autocast, as torch's own attention takes its arguments."""
    return data.to(torch.get_autocast_dtype(data.device.type)) if autocasts(data.device) else data


@whole
def _attend_cached(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, step: AttentionStep, cache: Any
) -> Tensor:
    found: Tensor = cache.attend(step, q, k, v, bias)
    return found


def attention_step(node: Attention, grounder: Grounder, shape: ShapeOf) -> AttentionStep | str:
    """The step for a node, or why its rules must be run one by one."""
    try:
        return _step(node, grounder, shape)
    except Refused as refusal:
        return str(refusal)


class Refused(Exception):
    """Internal: why an attention node cannot be run as one."""


def _step(node: Attention, grounder: Grounder, shape: ShapeOf) -> AttentionStep:
    axes: Axes = {}
    additive = node.form is not None and node.form.kind == "additive"
    ranks = (0,) if additive else (1,) if node.form is not None else (0, 1)
    queries = tuple(_side(q, grounder, axes, shape, ranks) for q in node.queries)
    keys = tuple(_side(k, grounder, axes, shape, ranks) for k in node.keys)
    value = _side(node.value, grounder, axes, shape, (0, 1, 2))
    scales = tuple(
        tuple(_side(s, grounder, {}, shape, (0,)) for s in group) for group in node.scales
    )
    biases = tuple(_product(group, grounder, axes, shape) for group in node.biases)
    if any(name not in axes for name in (*node.shared, node.query, node.key)):
        raise Refused("a variable has no axis")
    if node.head.weight is not None:
        raise Refused("the sum has a weight of its own")
    if any(len(s.names) and node.key in s.names and node.query in s.names for s in biases):
        pairs = axes[node.query] * axes[node.key]
        if pairs > 1 << 24:
            raise Refused(f"the bias has a value for each of {pairs:,} pairs")
    pattern = _graph(node, grounder, axes)
    index, heard = _heard(node, axes, pattern)
    sides = (queries, keys, scales, biases, value)
    if node.form is None:
        code = _coded(node, grounder, axes, shape)
        return AttentionStep(node, index, axes, *sides, heard, pattern, code=code)
    weight = node.form.vector
    vector = None if weight is None else _side(weight, grounder, {}, shape, (1, 2))
    which = pairs_of(pattern, axes[node.query], axes[node.key])
    return AttentionStep(node, index, axes, *sides, heard, pattern, vector, which)


def _coded(node: Attention, grounder: Grounder, axes: Axes, shape: ShapeOf) -> Coded | None:
    if node.code is None:
        return None
    numbers: dict[nodes.Expression, Callable[[State], Tensor]] = {}
    for leaf in leaves(node.code):
        side = _side(leaf, grounder, axes, shape, (0,))

        def number(state: State, side: Side = side) -> Tensor:
            data = side(state, node.shared, axes)
            return data if node.shared else data.unsqueeze(1)

        numbers[leaf] = number
    return Coded(node.code, node.query, numbers)


def _product(
    factors: Sequence[nodes.Expression], grounder: Grounder, axes: Axes, shape: ShapeOf
) -> Side:
    whole = factors[0] if len(factors) == 1 else nodes.Apply(PRODUCT, tuple(factors))
    return _side(whole, grounder, axes, shape, (0,))


def _side(
    item: nodes.Expression, grounder: Grounder, axes: Axes, shape: ShapeOf, allowed: tuple[int, ...]
) -> Side:
    names = tuple(sorted(names_in(item)))
    head = nodes.Atom("@side", tuple(nodes.Variable(n) for n in names))
    rule = nodes.Rule(head, (item,), (PRODUCT,))
    ground = grounder.ground(Body(rule, grounder.domains))
    if not isinstance(ground.heads, Grid) or not ground.segments.trivial:
        raise Refused(f"`{item!r}` is not dense")
    for name, size in zip(names, ground.heads.sizes, strict=True):
        if axes.setdefault(name, size) != size:
            raise Refused(f"axis `{name}` has lengths {axes[name]} and {size}")
    found = shape(rule)
    if found is None or len(found) not in allowed:
        raise Refused(f"`{item!r}` is not {'a scalar' if allowed == (0,) else 'a vector'}")
    return Side(RuleStep(ground, SUM), names, ground.heads.sizes)


def _graph(node: Attention, grounder: Grounder, axes: Axes) -> Any:
    """The pairs as one pattern: the node's own, and those that relations list."""
    pattern = node.pattern.pattern if node.pattern is not None else None
    for atom in node.edges:
        index = grounder.index(atom.relation, 2)
        if isinstance(index, Grid):
            raise Refused(f"`{atom.relation}` lists all pairs")
        order = [v.name for v in variables(atom.terms)]
        i, j = (index.column(order.index(name)) for name in (node.query, node.key))
        n, m = axes[node.query], axes[node.key]
        inside = (i >= 0) & (i < n) & (j >= 0) & (j < m)
        listed = from_edges(torch.stack([i[inside], j[inside]]), shape=(n, m))
        pattern = listed if pattern is None else pattern & listed
    return pattern


def _heard(node: Attention, axes: Axes, pattern: Any) -> tuple[Index, Tensor | None]:
    """The heads with at least one key, and their rows among all."""
    sizes = tuple(axes[v.name] for v in variables(node.head.terms))
    grid = Grid(sizes)
    n, m = axes[node.query], axes[node.key]
    if pattern is None:
        if m == 0:
            raise Refused("there are no keys")
        return grid, None
    if not n or not m:
        raise Refused("there are no pairs")
    degrees = pattern.degrees(n, m)
    if bool((torch.as_tensor(degrees) > 0).all()):
        return grid, None
    at = [v.name for v in variables(node.head.terms)].index(node.query)
    hears = torch.as_tensor(degrees)[grid.column(at)] > 0
    rows = hears.nonzero()[:, 0]
    keys = torch.stack([grid.column(p)[rows] for p in range(grid.arity)], 1)
    return Keys(keys), rows
