"""Grounding on one rank: the rules of its own rule heads, relation by relation.

All ranks do it together: each asks the others for the keys that its rules may read, and grounds
them on those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from edgewise.distributed.collectives import Ranks
from edgewise.distributed.node_axes import node_axes, node_places, node_variables, refusal
from edgewise.distributed.node_ranges import Range
from edgewise.distributed.semi_joins import CutRelation, SemiJoins
from edgewise.errors import EdgewiseError
from edgewise.ground.embeddings import with_stacks
from edgewise.ground.index import Grid, Keys
from edgewise.ground.joins.body import OWN
from edgewise.ground.source import Source
from edgewise.inputs.kinds import Input, rows
from edgewise.inputs.prepare import BoundPlan, prepare, renumbered
from edgewise.inputs.sources import rows_source
from edgewise.language import nodes
from edgewise.language.dependencies import needs
from edgewise.language.statements import atoms
from edgewise.module import Model
from edgewise.passes import optimise
from edgewise.physical.build import values_of
from edgewise.physical.demand.need import Need, keys_at
from edgewise.physical.demand.partial_grounding import INLINING, PlanGrounder
from edgewise.physical.demand.smaller_plan import RelationIndex, TakenRelation
from edgewise.physical.plan import untraced
from edgewise.physical.value_shapes import Shapes
from edgewise.physical.weights import like

DIMENSIONS = 8  # at most, of a shape and its length
ONE_RULE = ("find patterns", "fuse attention", *INLINING)  # passes that rewrite rules


@dataclass(frozen=True, eq=False)
class RankRelation:
    """A relation on this rank: the rules of its own rows, None where it has none, and what they
    read: of relations that all have, of cut ones by their numbers."""

    name: str
    taken: TakenRelation | None
    sources: dict[str, Source]
    numbers: dict[str, Tensor]  # of each row that the rules were grounded on
    need: Need

    def read(self, relation: str) -> Tensor:
        """The numbers of the rows of a cut relation that are read."""
        return self.numbers[relation][self.need.of(relation)]


class RankGrounding:
    """The relations of a model on the nodes of this rank, for dense inputs of some shapes."""

    def __init__(
        self,
        model: Model,
        ranks: Ranks,
        partition: Tensor,
        keyed: Mapping[str, Input],
        values: Mapping[str, Tensor],
    ) -> None:
        self.model, self.ranks, self.partition = model, ranks, partition
        self.own = (partition == ranks.rank).nonzero()[:, 0]
        self.dense = tuple(values)
        self.base = self._bound(keyed, values)
        every = {n: renumbered(item, self.base.constants) for n, item in keyed.items()}
        self.keyed: dict[str, rows] = {n: i for n, i in every.items() if isinstance(i, rows)}
        self._sources: dict[str, list[tuple[Tensor, Source]]] = {}
        rules = self.base.plan.rules
        bounds = {name: _bounds(item.keys) for name, item in self.keyed.items()}
        bounds |= {name: self._dense_bounds(name) for name in values}
        self.places = node_places(rules, values, bounds, len(partition))
        self.axes = node_axes(rules, self.places)
        self._refuse()
        lines = {line.relation: line for line in self.base.plan.lines}
        known = {n: s.shape for n, s in self.base.sources.items()}
        self.shapes = Shapes(
            self.weights, self.base.plan.aggregation, lines, dict(known), model._shapes
        )
        self.cut = {name: CutRelation(ranks, self._nodes_of(name), 0) for name in self.dense}
        self.shared: dict[str, Tensor] = {}  # keys of derived relations that all ranks have
        self.relations = [self._relation(name) for name in self._order()]

    def _bound(self, keyed: Mapping[str, Input], values: Mapping[str, Tensor]) -> BoundPlan:
        """The rules, each of its own, with facts and the axes of dense inputs, without keys."""
        model = self.model
        plan, _ = optimise(model.stages["plan"], without=(*model.without, *ONE_RULE))
        plan = replace(plan, steps=plan.rules)
        inputs: dict[str, Input] = {}
        for name, item in keyed.items():
            assert isinstance(item, rows)
            some = None if item.values is None else item.values[:0]
            inputs[name] = rows.of(item.keys[:, :0], some, item.strings)
        for name, x in values.items():
            shape = (len(self.partition), *x.shape[1:])
            every = torch.empty(shape, dtype=x.dtype, device="meta")
            inputs[name] = every if x.is_floating_point() else every.unsqueeze(-1)
        found = prepare(plan, model._reader.arities, inputs, None, model._one.dtype)
        self.weights: Mapping[str, Tensor] = like(model, model._paths)
        if "stack embeddings" not in model.without:
            found = found.stacked(inputs, self.weights)
            self.weights = with_stacks(self.weights, found.stacks)
        return found

    def _refuse(self) -> None:
        if not self.base.plan.is_one_relation:
            raise refusal("it has several outputs, or some rows of one")
        for name in self.dense:
            if self.base.sources[name].batched:
                raise refusal(f"`{name}` is a batch")
        count = len(self.partition)
        cut = {name: self.places[name] for name in (*self.dense, *self.axes)}
        for rule in self.base.plan.rules:
            for atom in atoms(rule.body):
                if isinstance(atom, nodes.Atom) and atom.relation in self.keyed:
                    self._check_keys(atom, count, node_variables(rule, cut))

    def _dense_bounds(self, name: str) -> list[Range]:
        index = self.base.sources[name].index
        return [(0, index.length(at) - 1) for at in range(index.arity)]

    def _check_keys(self, atom: nodes.Atom, count: int, known: set[str]) -> None:
        """Refuse keys that are no nodes where they are joined with nodes."""
        for place, term in enumerate(atom.terms):
            keys = self.keyed[atom.relation].keys[place]
            if isinstance(term, nodes.Variable) and term.name in known and len(keys):
                low, high = map(int, keys.aminmax())
                if low < 0 or high >= count:
                    key = self.base.constants.constant(high if high >= count else low)
                    raise refusal(f"`{atom.relation}` has the key {key!r}, there are {count} nodes")

    def _order(self) -> list[str]:
        """Relations, each after those that it needs; the same on all ranks."""
        rules = self.base.plan.rules
        graph, waiting = needs(rules), [*dict.fromkeys(rule.head.relation for rule in rules)]
        found: list[str] = []
        while waiting:
            ready = [name for name in waiting if not graph[name] & set(waiting)]
            if not ready:
                raise refusal("its rules are recursive")
            found += ready
            waiting = [name for name in waiting if name not in ready]
        return found

    def _nodes_of(self, name: str) -> Tensor:
        """The keys of a dense input on this rank."""
        index = self.base.sources[name].index
        assert isinstance(index, Grid)
        inner = Grid(index.sizes[1:])
        first = self.own.repeat_interleave(inner.rows)[:, None]
        return torch.cat(
            [first, keys_at(inner, torch.arange(inner.rows)).repeat(len(self.own), 1)], 1
        )

    def _keys_of(self, name: str) -> Tensor:
        """The keys of a relation that all ranks have."""
        if name in self.keyed:
            return self.keyed[name].keys.T
        if name in self.shared:
            return self.shared[name]
        source = self.base.sources.get(name)
        if source is None:
            return torch.zeros(0, self.model._reader.arities.get(name, 0), dtype=torch.int64)
        return source.index.keys

    def _relation(self, name: str) -> RankRelation:
        """Ground the rules of a relation for the nodes of this rank; on all ranks at once."""
        rules = [rule for rule in self.base.plan.rules if rule.head.relation == name]
        place = self.axes.get(name)
        reach = SemiJoins(self.base.constants, self._keys_of, self.cut, self.partition)
        for rule in rules:
            reach.follow(rule, place, self.own)
        failure, keys = None, torch.zeros(0, len(rules[0].head.terms), dtype=torch.int64)
        try:
            found, keys = self._grounded(name, rules, place, reach)
        except EdgewiseError as error:
            failure = error
        self.ranks.agree(f"the rules of `{name}`", name, failure)
        self.shapes.known[name] = self._shape(name, bool(len(keys)))
        if place is None:
            self.shared[name] = keys
        else:
            self.cut[name] = CutRelation(self.ranks, keys, place)
        return found

    def _grounded(
        self, name: str, rules: Sequence[nodes.Rule], place: int | None, reach: SemiJoins
    ) -> tuple[RankRelation, Tensor]:
        """The rules of own rows, and the keys of these."""
        read = {a.relation for rule in rules for a in atoms(rule) if isinstance(a, nodes.Atom)}
        sources = {n: s for n, s in self.base.sources.items() if n in read | {name}}
        for one, held in reach.rows.items():
            if one in self.keyed:
                sources[one] = self._source(one, held)
            elif one in self.shared:
                sources[one] = self._derived(one, self.shared[one])
        for one, (keys, _) in reach.found.items():
            sources[one] = self._derived(one, keys)
        if place is not None:
            sources[OWN] = Source(Keys(self.own[:, None]))
            rules = [_for_own(rule, place) for rule in rules]
        lines = tuple(line for line in self.base.plan.lines if line.relation == name)
        query = nodes.Atom(name, rules[0].head.terms)
        plan = replace(self.base.plan, steps=tuple(rules), lines=lines, outputs=(query,))
        model = self.model
        with untraced():
            prepared = replace(self.base, plan=plan, sources=sources)
            memory = values_of(plan, sources, model._one.dtype, model._one.device)
            options = {"lift": False, "in_parts": True, "memory": memory, "found": model._shapes}
            found = PlanGrounder(prepared, self.weights, model.limit, options).all()
        (index,) = found.demand.steps
        assert isinstance(index, RelationIndex)
        widths = {g.ground.rule: g.ground.segments.width for g in index.parts}  # type: ignore[union-attr]
        self.shapes.learn(name, widths)
        own = self._own_rows(name, found.executable.relations[name].keys, place)
        need = Need(found.demand.sizes)
        need.add(name, own)
        taken = index.taken(need, None) if len(own) else None
        numbers = {one: number for one, (_, number) in reach.found.items()}
        data = {n: s for n, s in sources.items() if n not in numbers}
        made = RankRelation(name, taken, data, numbers, need)
        return made, found.executable.relations[name].keys[own]

    def _shape(self, name: str, has_rows: bool) -> tuple[int, ...]:
        """The shape of values, which may follow from rows that other ranks have."""
        known = self.shapes.known.get(name)
        mine = [-1] * DIMENSIONS if known is None else [len(known), *known]
        mine += [0] * (DIMENSIONS - len(mine))
        every = {tuple(row) for row in self.ranks.gather(self.ranks.integers(mine)).tolist()}
        found = {row[1 : 1 + row[0]] for row in every if row[0] >= 0}
        if len(found) > 1 or self.ranks.any(known is None and has_rows):
            raise refusal(f"values of `{name}` have several shapes")
        return next(iter(found), ())

    def _own_rows(self, name: str, keys: Tensor, place: int | None) -> Tensor:
        """The rows of own nodes: facts of the program may be of others."""
        if place is None:
            return torch.arange(len(keys))
        node = keys[:, place]
        if len(node) and not 0 <= int(node.min()) <= int(node.max()) < len(self.partition):
            raise refusal(f"a key of `{name}` is not one of the {len(self.partition)} nodes")
        return (self.partition[node] == self.ranks.rank).nonzero()[:, 0]

    def _source(self, name: str, held: Tensor) -> Source:
        """Some rows of a relation; rules that read the same ones share them."""
        for other, source in self._sources.get(name, []):
            if torch.equal(other, held):
                return source
        item, chosen = self.keyed[name], held.nonzero()[:, 0]
        some = None if item.values is None else item.values[chosen.to(item.values.device)]
        part = rows.of(item.keys[:, chosen.to(item.keys.device)], some, item.strings)
        found = rows_source(name, part, len(item.keys))
        self._sources.setdefault(name, []).append((held, found))
        return found

    def _derived(self, name: str, keys: Tensor) -> Source:
        return Source(Keys(keys), shape=self.shapes.known[name] or ())


def _bounds(keys: Tensor) -> list[Range]:
    """The least and the largest of each key."""
    return [(int(c.min()), int(c.max())) if len(c) else (0, -1) for c in keys]


def _for_own(rule: nodes.Rule, place: int) -> nodes.Rule:
    """The rule for the nodes of this rank."""
    return replace(rule, body=(*rule.body, nodes.Atom(OWN, (rule.head.terms[place],), hidden=True)))
