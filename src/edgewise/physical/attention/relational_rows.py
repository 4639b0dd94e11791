"""Which rows the edges of an attention read: its expressions grounded, its pairs found."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.checks.evaluation import OutOfDomain
from edgewise.ground.ground_rule import GroundRule
from edgewise.ground.grounder import Grounder
from edgewise.ground.index import Grid, Index, distinct_rows, index_of, locate, pack, run_starts
from edgewise.ground.joins.body import SAMPLE, Body
from edgewise.kernels.edges import edge_index
from edgewise.language import nodes
from edgewise.language.terms import variables
from edgewise.physical.attention.extents import Refused
from edgewise.physical.attention.relational import Expression, HeadRows, RelationalStep, head_rows
from edgewise.physical.rule import PRODUCT, SUM, RuleStep
from edgewise.plan.relational import RelationalAttention
from edgewise.plan.score import names_in

ShapeOf = Callable[[nodes.Rule], tuple[int, ...] | None]
Columns = Mapping[str, Tensor]


def relational_step(
    node: RelationalAttention, grounder: Grounder, shape: ShapeOf
) -> RelationalStep | str:
    """The step for a node, or why its rules must be run one by one."""
    try:
        return _PairBuilder(node, grounder, shape).step()
    except Refused as refusal:
        return str(refusal)


def value_rule(node: RelationalAttention) -> nodes.Rule:
    """A rule whose values have the shape of what the node sums."""
    if node.values:
        return nodes.Rule(nodes.Atom(node.head.relation), node.values[:1])
    one = node.edge_values[0]
    item = one.edge
    if one.weight is not None:
        item = nodes.Apply(nodes.Function("identity"), (one.edge,), one.weight)
    return nodes.Rule(nodes.Atom(node.head.relation), (item,))


@dataclass(frozen=True, eq=False)
class _GroundPart:
    """An expression that is grounded, and its shape."""

    ground: GroundRule
    names: tuple[str, ...]
    shape: tuple[int, ...]

    @property
    def index(self) -> Columns:
        heads = self.ground.heads
        return {name: heads.column(at) for at, name in enumerate(self.names)}


class _PairBuilder:
    def __init__(self, node: RelationalAttention, grounder: Grounder, shape: ShapeOf) -> None:
        self.node, self.grounder, self.shape = node, grounder, shape
        self.samples = (SAMPLE.name,) if SAMPLE in node.head.terms else ()
        self.query, self.key = (*self.samples, node.query), (*self.samples, node.key)
        self.parts: dict[Expression, _GroundPart] = {}
        dots = (*node.by_query, *node.by_key)
        scales = [s for dot in node.dots for s in dot.scale] + [s for d in dots for s in d.scale]
        self.of_queries = node.of_queries
        self.of_keys = [*(d.key for d in node.dots), *(d.row for d in node.by_key)]
        self.of_edges = [*(d.vector.edge for d in dots), *node.biases]
        self.weighed = [v.edge for v in node.edge_values]
        for item in (*self.of_queries, *self.of_keys, *node.values, *node.edges):
            self._add(item, (0, 1))
        for item in (*node.biases, *scales):
            self._add(item, (0,))
        self.scales = scales
        vectors = [d.vector for d in dots] + list(node.edge_values)
        self.of_weights = {v.weight: None for v in vectors if v.weight is not None}
        for weight in self.of_weights:
            self._add(weight, (0, 1, 2))
        self.combinations = self._combinations()

    def _add(self, item: Expression, ranks: tuple[int, ...]) -> None:
        if item in self.parts:
            return
        names = tuple(sorted(names_in(item) - {SAMPLE.name}))
        names = (SAMPLE.name, *names) if SAMPLE.name in names_in(item) else names
        rule = nodes.Rule(
            nodes.Atom("@side", tuple(nodes.Variable(n) for n in names)), (item,), (PRODUCT,)
        )
        try:
            ground = self.grounder.ground(Body(rule, self.grounder.domains))
        except OutOfDomain:  # perhaps for a row that no edge reads: the rules themselves know
            raise Refused(f"`{item!r}` has keys outside of a domain") from None
        if not ground.segments.trivial:
            raise Refused(f"`{item!r}` has several values for one key")
        shape = self.shape(rule)
        if shape is None or len(shape) not in ranks:
            raise Refused(f"`{item!r}` is not {'a scalar' if ranks == (0,) else 'a vector'}")
        self.parts[item] = _GroundPart(ground, names, shape)

    def _combinations(self) -> dict[str, Tensor]:
        """The values of shared variables, all combinations in order: those of heads."""
        values: dict[str, Tensor] = {}
        for part in self.parts.values():
            for name, held in part.index.items():
                if name in self.node.shared:
                    found = torch.unique(held)
                    if not torch.equal(values.setdefault(name, found), found):
                        raise Refused(f"`{name}` has different values in different parts")
        if any(name not in values for name in self.node.shared):
            raise Refused("a variable of the head is in no part")
        grid = Grid(tuple(len(values[name]) for name in self.node.shared))
        return {name: values[name][grid.column(at)] for at, name in enumerate(self.node.shared)}

    def step(self) -> RelationalStep:
        pairs, values = self._pairs(), self.node.values
        queries, keys, i, j = self._ends(pairs)
        there = self._holds(self.of_edges, pairs)
        there &= self._holds(self.of_queries, queries)[i]
        there &= self._holds(self.of_keys, keys)[j]
        if not bool(there.all()):
            pairs = {name: held[there] for name, held in pairs.items()}
            queries, keys, i, j = self._ends(pairs)
        if not bool(self._holds(self.weighed, pairs).all() & self._holds(values, keys).all()):
            raise Refused("it weights values that some pairs do not have")
        sides = {item: self._side(item, queries) for item in self.of_queries}
        sides |= {item: self._side(item, keys) for item in (*self.of_keys, *values)}
        sides |= {item: self._side(item, pairs) for item in (*self.of_edges, *self.weighed)}
        sides |= {item: self._side(item, {}) for item in self.scales}
        weights = {item: self._side(item, {}) for item in self.of_weights}
        n, m = (len(columns[name]) for columns, name in self._both(queries, keys))
        index, places, heads_first = self._heads(queries)
        return RelationalStep(
            self.node, index, edge_index(i, j, n, m), self.count, sides, weights,
            self._value_shape(), places, heads_first,
        )  # fmt: skip

    def _both(self, queries: Columns, keys: Columns) -> tuple[tuple[Columns, str], ...]:
        return (queries, self.node.query), (keys, self.node.key)

    @property
    def count(self) -> int:
        """The number of heads."""
        return math.prod(len(torch.unique(x)) for x in self.combinations.values())

    def _value_shape(self) -> tuple[int, ...]:
        found = self.shape(value_rule(self.node))
        if found is None or len(found) > 1:
            raise Refused("its value is not a vector")
        return found

    def _pairs(self) -> Columns:
        """Those that a part of the score or a condition lists, by query."""
        names = (*self.query, self.node.key)
        listing = [self.parts[item].index for item in self.of_edges]
        conditions = [self._listed(atom, names) for atom in self.node.listed]
        listing += [index for index, _ in conditions]
        listing = [index for index in listing if set(names) <= set(index)]
        if not listing:
            raise Refused("no part of the score lists its pairs")
        table = distinct_rows(torch.stack([listing[0][name] for name in names], 1))
        for columns, index in conditions:
            rows = locate(index, [table[:, names.index(name)] for name in columns])
            table = table[rows >= 0]
        return dict(zip(names, table.unbind(1), strict=True))

    def _listed(self, atom: nodes.Atom, names: tuple[str, ...]) -> tuple[Columns, Index]:
        terms = [t.name if isinstance(t, nodes.Variable) else "" for t in atom.terms]
        if not set(terms) <= set(names) or len(set(terms)) != len(terms):
            raise Refused(f"`{atom!r}` holds for different pairs in different heads")
        index = self.grounder.index(atom.relation, len(terms))
        return {name: index.column(at) for at, name in enumerate(terms)}, index

    def _ends(self, pairs: Columns) -> tuple[Columns, Columns, Tensor, Tensor]:
        """The different queries and keys, and which of them each pair has."""
        if not len(pairs[self.node.key]):
            raise Refused("there are no pairs")
        starts = run_starts(pack([pairs[name] for name in self.query])[0])
        codes, j = torch.unique(pack([pairs[name] for name in self.key])[0], return_inverse=True)
        one = torch.empty_like(codes).scatter_(0, j, torch.arange(len(j)))
        queries = {name: pairs[name][starts] for name in self.query}
        return queries, {name: pairs[name][one] for name in self.key}, starts.cumsum(0) - 1, j

    def _rows(self, item: Expression, columns: Columns) -> Tensor:
        """(rows, heads), -1 where there is no value; one head where all have the same."""
        part = self.parts[item]
        count = len(next(iter(columns.values()))) if columns else 1
        own = any(name in self.combinations for name in part.names)
        heads = self.count if own else 1
        spread = {name: held.repeat_interleave(heads) for name, held in columns.items()}
        if own:
            spread |= {name: held.repeat(count) for name, held in self.combinations.items()}
        if not set(part.names) <= set(spread):
            raise Refused(f"`{item!r}` is not one of each sample")
        found = locate(part.ground.heads, [spread[name] for name in part.names])
        return (found if part.names else found.expand(count)).view(count, heads)

    def _holds(self, items: Sequence[Expression], columns: Columns) -> Tensor:
        there = torch.ones(len(next(iter(columns.values()))), dtype=torch.bool)
        for item in items:
            rows = self._rows(item, columns) >= 0
            if not torch.equal(rows.all(1), rows.any(1)):
                raise Refused(f"`{item!r}` has values for some heads only")
            there &= rows.all(1)
        return there

    def _side(self, item: Expression, columns: Columns) -> HeadRows:
        return head_rows(RuleStep(self.parts[item].ground, SUM), self._rows(item, columns))

    def _heads(self, queries: Columns):  # type: ignore[no-untyped-def]
        """The atoms that are derived, and their order among (query, head)."""
        count, heads = len(queries[self.node.query]), self.count
        columns = {name: held.repeat_interleave(heads) for name, held in queries.items()}
        columns |= {name: held.repeat(count) for name, held in self.combinations.items()}
        names = [v.name for v in variables(self.node.head.terms)]
        order = pack([columns[name] for name in names])[0].argsort()
        keys = torch.stack([columns[name][order] for name in names], 1)
        numbers = torch.arange(len(order))
        if torch.equal(order, numbers):
            return index_of(keys), None, False
        if torch.equal(order, numbers.view(count, heads).T.flatten()):
            return index_of(keys), None, True
        return index_of(keys), order, False
