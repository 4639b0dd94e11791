"""From an attention node to a step on grounded data, or why its rules are run one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import and_
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.checks.evaluation import OutOfDomain
from edgewise.graphs import Pattern, causal, from_edges, full, window
from edgewise.ground.body import SAMPLE, SAMPLES, Body
from edgewise.ground.index import Grid, Index, Keys, locate
from edgewise.ground.rules import Grounder, GroundRule
from edgewise.language import nodes
from edgewise.language.terms import variables
from edgewise.physical.attention import (
    AttentionStep,
    Axes,
    EdgeSide,
    Side,
    by_distance,
    by_head,
    filled,
)
from edgewise.physical.attention_nodes import pairs_of
from edgewise.physical.extents import Extents, Refused, attending_in_all, attending_in_samples
from edgewise.physical.masked import AttendedMask, attended_mask, mask_on, packed_grid
from edgewise.physical.rule import RuleStep
from edgewise.physical.state import State
from edgewise.plan.mask import Mask
from edgewise.plan.nodes import Additive, Attention
from edgewise.plan.score import names_in
from edgewise.scores.nodes import S, separate

DISTANCE = "@distance"
PAIRS = "@pairs"  # a pair for each distance that occurs
SUM, PRODUCT = nodes.Function("sum_agg"), nodes.Function("product")


@dataclass(frozen=True, eq=False)
class Distances:
    """The distances I − J from -(m - 1) to n - 1; `there` are those that some pair has."""

    n: int
    m: int
    there: Tensor

    @property
    def pairs(self) -> Tensor:
        """A pair (i, j) of every distance."""
        distance = torch.arange(1 - self.m, self.n)
        i = distance.clamp(min=0)
        return torch.stack([i, i - distance], 1)


def distances(pattern: Any, n: int, m: int) -> Distances:
    """Those that occur in a pattern, and perhaps some between them."""
    there = torch.ones(n + m - 1, dtype=torch.bool)
    if pattern is None:
        return Distances(n, m, there)
    rows = pattern.rows(n, m).expand()
    some = rows.stop > rows.start
    i, start, stop = rows.slab[some], rows.start[some], rows.stop[some]
    ends = np.zeros(n + m, np.int64)  # +1 where a row begins to cover distances, -1 behind
    np.add.at(ends, np.maximum(i - stop + m, 0), 1)
    np.add.at(ends, i - start + m, -1)
    return Distances(n, m, torch.from_numpy(ends.cumsum()[:-1] > 0))


def tables(
    leaves: Sequence[nodes.Expression],
    node: Attention,
    grounder: Grounder,
    axes: Axes,
    pattern: Any,
) -> tuple[dict[nodes.Expression, Side], Any]:
    """What the score reads for each distance, and the pattern of the pairs that have it."""
    n, m = axes[node.query], axes[node.key]
    if not n or not m:
        raise Refused("there are no pairs")
    found = distances(pattern, n, m)
    keys = Keys(found.pairs[found.there])
    known = replace(grounder, relations=grounder.relations | {PAIRS: keys}, joins={})
    sides, held = {}, found.there
    for leaf in leaves:
        names = tuple(sorted(names_in(leaf) & set(node.shared)))
        side, has = _side(leaf, names, _grounded(leaf, names, node, known), axes, found)
        sides[leaf] = side
        held = held & has
    return sides, _restricted(pattern, held, found)


def _grounded(
    leaf: nodes.Expression, names: tuple[str, ...], node: Attention, grounder: Grounder
) -> GroundRule:
    terms = tuple(nodes.Variable(n) for n in (*names, node.query, node.key))
    pairs = nodes.Atom(PAIRS, terms[-2:], hidden=True)
    rule = nodes.Rule(nodes.Atom("@side", terms), (leaf, pairs, *node.score.where), (PRODUCT,))
    try:
        ground = grounder.ground(Body(rule, grounder.domains))
    except OutOfDomain:  # perhaps at a distance that no pair has: the rules themselves know
        raise Refused(f"`{leaf!r}` has no value at some distances") from None
    if not ground.segments.trivial:
        raise Refused(f"`{leaf!r}` has several values at one distance")
    return ground


def _side(
    leaf: nodes.Expression, names: tuple[str, ...], ground: GroundRule, axes: Axes, found: Distances
) -> tuple[Side, Tensor]:
    """The leaf at every distance, and the distances at which it has a value."""
    sizes = tuple(axes[n] for n in names)
    count = len(found.there)
    grid = Grid((*sizes, count))
    at = found.pairs[grid.column(len(sizes))]
    columns = [*(grid.column(p) for p in range(len(sizes))), at[:, 0], at[:, 1]]
    rows = locate(ground.heads, columns)
    has = (rows >= 0).view(-1, count)
    if len(has) > 1 and not bool((has == has[0]).all()):
        raise Refused(f"`{leaf!r}` has values at other distances in other heads")
    rows = torch.where(rows < 0, ground.heads.rows, rows)
    return Side(RuleStep(ground, SUM), (*names, DISTANCE), (*sizes, count), None, rows), has[0]


def _restricted(pattern: Any, held: Tensor, found: Distances) -> Any:
    """The pairs whose distance has values: those between two distances."""
    if torch.equal(held, found.there):
        return pattern
    some = held.nonzero()[:, 0]
    if not len(some):
        raise Refused("no distance has a value")
    low, high = int(some[0]), int(some[-1])
    if not bool((held | ~found.there)[low : high + 1].all()):
        raise Refused("the distances that have a value are no interval")
    occur = found.there.nonzero()[:, 0]
    parts = [] if pattern is None else [pattern]
    parts += [_at_least(low - found.m + 1)] if low > int(occur[0]) else []
    parts += [_at_least(found.m - 1 - high).T] if high < int(occur[-1]) else []
    return reduce(and_, parts)


def _at_least(distance: int) -> Pattern:
    """{(i, j) : i - j >= distance}."""
    if distance > 0:
        return causal() - window(distance - 1)
    return causal() | window(-distance) if distance else causal()


PRODUCT = nodes.Function("product")
ShapeOf = Callable[[nodes.Rule], tuple[int, ...] | None]


def attention_step(
    node: Attention, grounder: Grounder, shape: ShapeOf, conditions: frozenset[str]
) -> AttentionStep | str:
    """The step for a node, or why its rules must be run one by one.

    `conditions` are relations whose values are logarithms: −∞ says that a row is not there.
    """
    try:
        return _step(node, grounder, shape, conditions)
    except Refused as refusal:
        return str(refusal)


@dataclass(frozen=True, eq=False)
class _Part:
    """An expression that is grounded, before the axes of all of them are known."""

    ground: GroundRule
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Parts:
    """Grounds the expressions of a node, and lays them out along their common axes."""

    grounder: Grounder
    shape: ShapeOf
    extents: Extents

    def add(self, item: nodes.Expression, ranks: tuple[int, ...]) -> _Part:
        names = tuple(sorted(names_in(item) - {SAMPLE.name}))
        names = (SAMPLE.name, *names) if SAMPLE.name in names_in(item) else names
        ground = self._ground(item, names)
        self.extents.add(item, names, ground.heads)
        self.check(item, names, ranks)
        return _Part(ground, names)

    def pair(self, item: nodes.Expression, node: Attention) -> _Part | Listed:
        """A number that is added to scores: along axes, or of the pairs that a relation lists."""
        if {node.query, node.key} <= names_in(item) and SAMPLE.name not in names_in(item):
            listed = self.listed(item)
            if not isinstance(listed.ground.heads, Grid):
                return listed
        return self.add(item, (0,))

    def listed(self, item: nodes.Expression) -> Listed:
        """A number of each pair that has one."""
        names = tuple(sorted(names_in(item)))
        if SAMPLE.name in names:
            raise Refused(f"`{item!r}` lists other pairs in every sample")
        ground = self._ground(item, names)
        self.check(item, names, (0,))
        return Listed(item, ground, names)

    def _ground(self, item: nodes.Expression, names: tuple[str, ...]) -> GroundRule:
        ground = self.grounder.ground(Body(_rule(item, names), self.grounder.domains))
        if not ground.segments.trivial:
            raise Refused(f"`{item!r}` is not dense")
        return ground

    def check(self, item: nodes.Expression, names: tuple[str, ...], ranks: tuple[int, ...]) -> None:
        found = self.shape(_rule(item, names))
        if found is None or len(found) not in ranks:
            raise Refused(f"`{item!r}` is not {'a scalar' if ranks == (0,) else 'a vector'}")

    def side(self, part: _Part) -> Side:
        return Side(
            RuleStep(part.ground, SUM), *self.extents.padded_grid(part.names, part.ground.heads)
        )

    def packed(self, node: Attention, part: _Part) -> Side:
        """The same with the tokens of a ragged batch in one sequence."""
        grid = packed_grid(self.extents, node, part.names, part.ground.heads)
        return Side(RuleStep(part.ground, SUM), *grid)


def _rule(item: nodes.Expression, names: tuple[str, ...]) -> nodes.Rule:
    head = nodes.Atom("@side", tuple(nodes.Variable(n) for n in names))
    return nodes.Rule(head, (item,), (PRODUCT,))


def _step(
    node: Attention, grounder: Grounder, shape: ShapeOf, conditions: frozenset[str]
) -> AttentionStep:
    samples = _samples(node, grounder)
    parts = _Parts(grounder, shape, Extents(samples))
    side, axes = parts.side, parts.extents.axes
    score, products = node.score, node.score.products
    tree, added, factor = separate(score.tree)
    ranks = (0, 1) if not isinstance(products, Additive) else (int(products.vector is not None),)
    queries = [parts.add(q, ranks) for q in score.queries]
    keys = [parts.add(k, ranks) for k in score.keys]
    for number in [number for dot in score.dots for number in dot.numbers]:
        parts.check(number, tuple(sorted(names_in(number))), (0,))
    value = parts.add(node.value, (0, 1, 2))
    scales = [[parts.add(s, (0,)) for s in dot.scale] for dot in score.dots]
    reads = {n: score.reads[n] for n in added}
    told = {n: _condition(reads[n], node, conditions) for n in added}
    there = {axis: [parts.add(reads[n], (0,)) for n in added if told[n] == axis]
             for axis in (node.key, node.query)}  # fmt: skip
    pairs = [parts.pair(reads[n], node) for n in added if told[n] is None]
    biases = [part for part in pairs if isinstance(part, _Part)]
    listed = [part for part in pairs if isinstance(part, Listed)]
    factors = [] if factor is None else [parts.listed(score.reads[factor])]
    numbers = {n: parts.add(score.reads[n], (0,)) for n in by_head(tree)}
    chosen = {n: score.reads[n] for n in by_distance(tree)}
    parts.extents.precompute(alike=node.shared)
    if any(name not in axes for name in (*node.shared, node.query, node.key)):
        raise Refused("a variable has no axis")
    if node.head.weight is not None:
        raise Refused("the sum has a weight of its own")
    _refuse_dense(node, biases, samples, axes)
    mask = mask_on(node, grounder, parts.extents)
    own_pairs = _graph(node, grounder, axes, () if mask is not None else node.pairs.listed)
    pattern = listed_pairs([*listed, *factors], node, axes, own_pairs)
    held, pattern = (
        tables(list(chosen.values()), node, grounder, axes, pattern) if chosen else ({}, pattern)
    )
    found = _attended(node, mask, grounder, parts.extents, pattern, plain=tree == S)
    if found.packed:
        side = partial(parts.packed, node)
    step = AttentionStep(
        node,
        found.attending.index,
        found.axes,
        tuple(map(side, queries)),
        tuple(map(side, keys)),
        tuple(tuple(map(side, group)) for group in scales),
        tuple(map(side, biases)),
        side(value),
        found.attending.queries,
        found.attending.rows,
        found.pattern,
        samples=None if found.packed else samples,
        lengths=found.attending.lengths,
        query_lengths=found.attending.query_lengths,
        present_keys=tuple(map(side, there[node.key])),
        present_queries=tuple(map(side, there[node.query])),
        edge_bias=tuple(edge_side(part, node, axes, found.pattern) for part in listed),
        edge_scale=tuple(edge_side(part, node, axes, found.pattern) for part in factors),
        order=found.order,
        choice=found.choice,
    )
    if not isinstance(products, Additive):
        if tree == S:
            return step
        fills = {n: _number(side(part), node, axes) for n, part in numbers.items()}
        fills |= {n: _table(held[item], node, axes) for n, item in chosen.items()}
        return replace(step, tree=filled(tree, fills, axes[node.key] - 1))
    alone = _Parts(grounder, shape, Extents(None))
    vector = None if products.vector is None else alone.add(products.vector, (1, 2))
    which = pairs_of(found.pattern, axes[node.query], axes[node.key])
    return replace(step, vector=None if vector is None else alone.side(vector), which=which)


def _condition(item: nodes.Expression, node: Attention, conditions: frozenset[str]) -> str | None:
    """The axis, of queries or of keys, on which a condition is that is added to the score."""
    if not isinstance(item, nodes.Atom) or item.relation not in conditions:
        return None
    names = names_in(item) - {SAMPLE.name}
    return next((axis for axis in (node.key, node.query) if names == {axis}), None)


def _refuse_dense(
    node: Attention, biases: Sequence[_Part], samples: int | None, axes: Axes
) -> None:
    if any(node.key in b.names and node.query in b.names for b in biases):
        pairs = (samples or 1) * axes[node.query] * axes[node.key]
        if pairs > 1 << 24:
            raise Refused(f"the bias has a value for each of {pairs:,} pairs")


def _samples(node: Attention, grounder: Grounder) -> int | None:
    """How many samples of a ragged batch the node computes; None if it is the same for all."""
    if SAMPLE not in node.head.terms:
        return None
    if isinstance(node.score.products, Additive):
        raise Refused("additive attention is computed for one sample at a time")
    tree, _, _ = separate(node.score.tree)
    read = [node.score.reads[n] for n in (*by_head(tree), *by_distance(tree))]
    if SAMPLE.name in names_in((*node.score.where, *read)):
        raise Refused("the score reads a number of each sample")
    return grounder.relations[SAMPLES].rows


def _number(side: Side, node: Attention, axes: Axes) -> Callable[[State], Tensor]:
    def number(state: State) -> Tensor:
        data = side(state, node.shared, axes)
        return (data if node.shared else data.unsqueeze(1)).unsqueeze(-1)

    return number


def _table(side: Side, node: Attention, axes: Axes) -> Callable[[State], Tensor]:
    def table(state: State) -> Tensor:
        sizes = axes | {DISTANCE: side.sizes[-1]}
        data = side(state, (*node.shared, DISTANCE), sizes)
        return data if node.shared else data.unsqueeze(1)

    return table


def _graph(node: Attention, grounder: Grounder, axes: Axes, listed: Sequence[nodes.Atom]) -> Any:
    """The pairs as one pattern: the node's own, and those that relations list."""
    pattern = None if node.pairs.pattern is None else node.pairs.pattern.pattern
    for atom in listed:
        index = grounder.index(atom.relation, 2)
        if isinstance(index, Grid):
            raise Refused(f"`{atom.relation}` lists all pairs")
        pairs = pattern_of(index, [v.name for v in variables(atom.terms)], node, axes)
        pattern = pairs if pattern is None else pattern & pairs
    return pattern


def _attended(
    node: Attention,
    mask: Mask | None,
    grounder: Grounder,
    extents: Extents,
    pattern: Any,
    *,
    plain: bool,
) -> AttendedMask:
    """The pairs that queries attend to, of a pattern alone or with a mask; of a score that is
    `plain` tokens may be sorted."""
    if mask is not None:
        return attended_mask(node, mask, grounder, extents, pattern, plain=plain)
    attending = attending_in_samples if extents.samples is not None else attending_in_all
    return AttendedMask(pattern, attending(node, extents, pattern), extents.axes)


@dataclass(frozen=True, eq=False)
class Listed:
    """An expression with a value for each pair that a relation lists, grounded."""

    item: nodes.Expression
    ground: GroundRule
    names: tuple[str, ...]

    @property
    def is_dense(self) -> bool:
        return isinstance(self.ground.heads, Grid)


def listed_pairs(parts: Sequence[Listed], node: Attention, axes: Axes, pattern: Any) -> Any:
    """The pairs of a pattern for which all expressions have values."""
    for part in parts:
        if not part.is_dense:
            pairs = pattern_of(part.ground.heads, part.names, node, axes)
            pattern = pairs if pattern is None else pattern & pairs
    return pattern


def pattern_of(index: Index, names: Sequence[str], node: Attention, axes: Axes) -> Any:
    """The pairs (query, key) that occur among keys, inside the axes."""
    i, j = (index.column(list(names).index(name)) for name in (node.query, node.key))
    n, m = axes[node.query], axes[node.key]
    inside = (i >= 0) & (i < n) & (j >= 0) & (j < m)
    codes = i[inside] * m + j[inside]  # sorted and distinct much faster than pairs are
    if not bool((codes[1:] > codes[:-1]).all()):
        codes = torch.unique(codes)
    return from_edges(torch.stack([codes // m, codes % m]), shape=(n, m))


def edge_side(part: Listed, node: Attention, axes: Axes, pattern: Any) -> EdgeSide:
    """The value of every edge of the pattern, in its order."""
    edges = (pattern or full()).edges(axes[node.query], axes[node.key])
    shared = tuple(n for n in node.shared if n in part.names)
    sizes = tuple(axes[n] for n in shared)
    grid = Grid((*sizes, edges.shape[1]))
    of = dict(zip(shared, range(len(shared)), strict=True))
    at = grid.column(len(shared))
    places = {node.query: edges[0], node.key: edges[1]}
    columns = [
        grid.column(of[name]) if name in of else places[name].to(at.device)[at]
        for name in part.names
    ]
    rows = locate(part.ground.heads, columns)
    if bool((rows < 0).any()):
        raise Refused(f"`{part.item!r}` lists other pairs for other heads")
    return EdgeSide(RuleStep(part.ground, SUM), shared, sizes, rows)
