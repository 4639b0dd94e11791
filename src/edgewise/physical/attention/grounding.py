"""From an attention node to a step on grounded data, or why its rules are run one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from torch import Tensor

from edgewise.graphs import full
from edgewise.ground.ground_rule import GroundRule
from edgewise.ground.grounder import Grounder
from edgewise.ground.index import Index
from edgewise.ground.joins.body import SAMPLE, SAMPLES, Body
from edgewise.language import nodes
from edgewise.language.terms import variables
from edgewise.physical.attention.distance_tables import read_table, tables
from edgewise.physical.attention.edge_terms import Listed, edge_side, listed_pairs, pattern_of
from edgewise.physical.attention.extents import (
    Extents,
    Refused,
    attending_in_all,
    attending_in_samples,
    is_product,
)
from edgewise.physical.attention.mask import AttendedMask, attended_mask, mask_on, packed_grid
from edgewise.physical.attention.pairs import pairs_of
from edgewise.physical.attention.sides import Axes, Side, by_distance, by_head, filled
from edgewise.physical.attention.step import AttentionStep
from edgewise.physical.demand.need import GroundIndex
from edgewise.physical.lowering_state import State
from edgewise.physical.rule import PRODUCT, SUM, RuleStep
from edgewise.plan.mask import Conjunction, Mask
from edgewise.plan.nodes import Additive, Attention
from edgewise.plan.score import names_in
from edgewise.scores.nodes import S, separate

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


@dataclass(eq=False)
class _Part:
    """An expression that is grounded; `index` are its places, once the axes of all are known."""

    item: nodes.Expression
    ground: GroundRule
    names: tuple[str, ...]
    index: Index


@dataclass(frozen=True, eq=False)
class _Parts:
    """Grounds the expressions of a node, and lays them out along their common axes."""

    grounder: Grounder
    shape: ShapeOf
    extents: Extents
    parts: list[_Part] = field(default_factory=list)

    def add(self, item: nodes.Expression, ranks: tuple[int, ...]) -> _Part:
        names = tuple(sorted(names_in(item) - {SAMPLE.name}))
        names = (SAMPLE.name, *names) if SAMPLE.name in names_in(item) else names
        ground = self._ground(item, names)
        self.check(item, names, ranks)
        self.parts.append(_Part(item, ground, names, ground.heads))
        return self.parts[-1]

    def meet(self, heads: Sequence[str], held: Mapping[str, Sequence[Tensor]]) -> None:
        """Let all parts have the same axes: of heads, the keys that all of them have."""
        found = [(part.names, part.ground.heads) for part in self.parts]
        self.extents.meet(heads, found, held)
        for part in self.parts:
            part.index, rows = self.extents.ranked(part.names, part.ground.heads)
            if rows is not None:
                part.ground = GroundIndex(part.ground).taken(rows)
            self.extents.add(part.item, part.names, part.index)

    def pair(self, item: nodes.Expression, node: Attention) -> _Part | Listed:
        """A number that is added to scores: along axes, or of the pairs that a relation lists."""
        if {node.query, node.key} <= names_in(item) and SAMPLE.name not in names_in(item):
            listed = self.listed(item)
            if not is_product(listed.ground.heads):
                return listed
        return self.add(item, (0,))

    def listed(self, item: nodes.Expression) -> Listed:
        """A number of each pair that has one."""
        names = tuple(sorted(names_in(item)))
        if SAMPLE.name in names:
            raise Refused(f"`{item!r}` lists different pairs in each sample")
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
        return Side(RuleStep(part.ground, SUM), *self.extents.padded_grid(part.names, part.index))

    def packed(self, node: Attention, part: _Part) -> Side:
        """The same with the tokens of a ragged batch in one sequence."""
        grid = packed_grid(self.extents, node, part.names, part.index)
        return Side(RuleStep(part.ground, SUM), *grid)


def _rule(item: nodes.Expression, names: tuple[str, ...]) -> nodes.Rule:
    head = nodes.Atom("@side", tuple(nodes.Variable(n) for n in names))
    return nodes.Rule(head, (item,), (PRODUCT,))


@dataclass(frozen=True, eq=False)
class _Reads:
    """All that the score and the sum of a node read, grounded; `chosen` by distance is not yet."""

    queries: list[_Part]
    keys: list[_Part]
    value: _Part
    scales: list[list[_Part]]
    present: dict[str, list[_Part]]  # conditions that are added to the score, by their axis
    biases: list[_Part]
    listed: list[Listed]
    factors: list[Listed]
    numbers: dict[int, _Part]
    chosen: dict[int, nodes.Expression]


def _reads(node: Attention, parts: _Parts, conditions: frozenset[str]) -> _Reads:
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
    present = {axis: [parts.add(reads[n], (0,)) for n in added if told[n] == axis]
               for axis in (node.key, node.query)}  # fmt: skip
    pairs = [parts.pair(reads[n], node) for n in added if told[n] is None]
    return _Reads(
        queries,
        keys,
        value,
        scales,
        present,
        biases=[part for part in pairs if isinstance(part, _Part)],
        listed=[part for part in pairs if isinstance(part, Listed)],
        factors=[] if factor is None else [parts.listed(score.reads[factor])],
        numbers={n: parts.add(score.reads[n], (0,)) for n in by_head(tree)},
        chosen={n: score.reads[n] for n in by_distance(tree)},
    )


def _step(
    node: Attention, grounder: Grounder, shape: ShapeOf, conditions: frozenset[str]
) -> AttentionStep:
    samples = _samples(node, grounder)
    parts = _Parts(grounder, shape, Extents(samples))
    extents, axes = parts.extents, parts.extents.axes
    tree, _, _ = separate(node.score.tree)
    reads = _reads(node, parts, conditions)
    parts.meet(node.shared, _held(node, grounder))
    extents.precompute(alike=node.shared)
    if any(name not in axes for name in (*node.shared, node.query, node.key)):
        raise Refused("a variable has no axis")
    if node.head.weight is not None:
        raise Refused("the sum has a weight of its own")
    _refuse_dense(node, reads.biases, samples, axes)
    products = node.score.products
    mask = mask_on(node, grounder, extents)
    if mask is None and samples is not None and isinstance(products, Additive):
        mask = Conjunction(node.pairs.listed)  # edges are of packed samples, not of padded ones
    own_pairs = _graph(node, grounder, axes, () if mask is not None else node.pairs.listed)
    pattern = listed_pairs([*reads.listed, *reads.factors], node, axes, own_pairs)
    held: dict[nodes.Expression, Side] = {}
    if reads.chosen:
        held, pattern = tables(list(reads.chosen.values()), node, grounder, extents, pattern)
    plain = tree == S and not isinstance(products, Additive)
    found = _attended(node, mask, grounder, extents, pattern, plain=plain)
    side = partial(parts.packed, node) if found.packed else parts.side
    step = _attending(node, reads, found, side, extents)
    if isinstance(products, Additive):
        alone = _Parts(grounder, shape, Extents(None, extents.numbers))
        vector = None if products.vector is None else alone.add(products.vector, (1, 2))
        alone.meet((), {})
        pattern = full() if found.pattern is None else found.pattern
        which = pairs_of(pattern, found.axes[node.query], found.axes[node.key])
        return replace(step, vector=None if vector is None else alone.side(vector), which=which)
    if tree == S:
        return step
    fills = {n: _number(side(part), node, axes) for n, part in reads.numbers.items()}
    fills |= {n: read_table(held[item], node, axes) for n, item in reads.chosen.items()}
    return replace(step, tree=filled(tree, fills, axes[node.key] - 1))


def _attending(
    node: Attention,
    reads: _Reads,
    found: AttendedMask,
    side: Callable[[_Part], Side],
    extents: Extents,
) -> AttentionStep:
    """The step with scores that are products."""
    attending = found.attending
    return AttentionStep(
        node,
        attending.index,
        found.axes,
        tuple(map(side, reads.queries)),
        tuple(map(side, reads.keys)),
        tuple(tuple(map(side, group)) for group in reads.scales),
        tuple(map(side, reads.biases)),
        side(reads.value),
        attending.queries,
        attending.rows,
        found.pattern,
        samples=None if found.packed else extents.samples,
        lengths=attending.lengths,
        query_lengths=attending.query_lengths,
        present_keys=tuple(map(side, reads.present[node.key])),
        present_queries=tuple(map(side, reads.present[node.query])),
        edge_bias=tuple(edge_side(part, node, extents, found.pattern) for part in reads.listed),
        edge_scale=tuple(edge_side(part, node, extents, found.pattern) for part in reads.factors),
        order=found.order,
        choice=found.choice,
    )


def _held(node: Attention, grounder: Grounder) -> dict[str, list[Tensor]]:
    """The heads for which conditions hold, by their axis; those of each sample are a mask's."""
    found: dict[str, list[Tensor]] = {}
    for atom in node.pairs.heads:
        if SAMPLE not in atom.terms:
            (name,) = (v.name for v in variables(atom.terms))
            keys = grounder.index(atom.relation, 1).column(0).unique()
            found.setdefault(name, []).append(keys)
    return found


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


def _graph(node: Attention, grounder: Grounder, axes: Axes, listed: Sequence[nodes.Atom]) -> Any:
    """The pairs as one pattern: the node's own, and those that relations list."""
    pattern = None if node.pairs.pattern is None else node.pairs.pattern.pattern
    for atom in listed:
        index = grounder.index(atom.relation, 2)
        pairs = pattern_of(index, [v.name for v in variables(atom.terms)], node, axes)
        if isinstance(pairs, full):
            continue
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
