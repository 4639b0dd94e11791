"""The rules of one rank as they run: own rows, and before a rule those that it reads of others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from edgewise.distributed.halo import Halo, halo_of, tied, with_halo
from edgewise.distributed.node_axes import refusal
from edgewise.distributed.rank_grounding import RankGrounding, RankRelation
from edgewise.ground.embeddings import with_stacks
from edgewise.ground.ground_rule import GroundRule
from edgewise.ground.index import Grid, locate
from edgewise.ground.joins.body import OWN
from edgewise.ground.source import Source
from edgewise.inputs.range_check import dense_sizes
from edgewise.language import nodes
from edgewise.physical.demand.need import Need, in_order, reads, source_at
from edgewise.physical.lowering import Lowering, to_device
from edgewise.physical.lowering_state import Column, State
from edgewise.physical.output import Output, Returned
from edgewise.physical.plan import PhysicalPlan, lowered, untraced
from edgewise.physical.step import RelationStep, reached


class _Placed(Need):
    """Ground rules whose rows are those of the columns that they read."""

    def __init__(self, places: Mapping[str, Tensor], counts: Mapping[str, int]) -> None:
        super().__init__(counts)
        self.places = places

    def moved(self, ground: GroundRule) -> GroundRule:
        found, sizes = dict(ground.rows), dict(ground.sizes)
        for at, relation in reads(ground).items():
            if relation not in self.places:
                found[at], sizes[at] = None, 1  # one row stands for all
                continue
            read = ground.rows[at]
            read = torch.arange(ground.count) if read is None else read
            read = self.places[relation][read]
            sizes[at] = self.size(relation)
            found[at] = None if in_order(read, sizes[at]) else read
        return replace(ground, rows=found, sizes=sizes)


class RankRules:
    """A grounded model on the nodes of this rank; it is made by all ranks together."""

    def __init__(self, found: RankGrounding) -> None:
        self.model, self.ranks, self.base, self.own = (
            found.model,
            found.ranks,
            found.base,
            found.own,
        )
        self.axes, self.cut, self.shared, self.shapes = (
            found.axes,
            found.cut,
            found.shared,
            found.shapes,
        )
        self.relations, self.keyed = found.relations, found.keyed
        self.halos = {name: self._halo(name) for name in self.cut}
        self.crossing = dict(self._crossing())
        self.steps = to_device([*map(self._placed, self.relations)], self.model._one.device)
        self.outputs = self._output()
        self._plans: dict[Any, PhysicalPlan] = {}

    def _halo(self, name: str) -> Halo:
        read = [r.read(name) for r in self.relations if name in r.numbers]
        none = torch.zeros(0, dtype=torch.int64)
        return halo_of(self.cut[name], torch.cat([none, *read]).unique())

    def _crossing(self) -> Iterator[tuple[str, dict[str, int]]]:
        for relation in self.relations:
            for ground in [] if relation.taken is None else relation.taken.made:
                found: dict[str, int] = {}
                assert isinstance(ground, GroundRule)
                for at, name in reads(ground).items():
                    if name not in relation.numbers:
                        continue
                    read = ground.rows[at]
                    read = torch.arange(ground.count) if read is None else read.unique()
                    far = torch.isin(relation.numbers[name][read], self.halos[name].far)
                    if int(far.sum()):
                        found[repr(ground.body.literals[at])] = int(far.sum())
                if found:
                    yield repr(_without_own(ground.rule)), found

    def _placed(self, relation: RankRelation) -> RelationStep | None:
        """The rules of a relation where rows are those of columns: own ones, then received ones."""
        if relation.taken is None:
            return None
        places: dict[str, Tensor] = {}
        counts: dict[str, int] = {}
        for name, numbers in relation.numbers.items():
            cut, far = self.cut[name], self.halos[name].far
            own = (numbers >= cut.first) & (numbers < cut.first + len(cut.keys))
            arrived = torch.searchsorted(far, numbers) + len(cut.keys)
            places[name] = torch.where(own, numbers - cut.first, arrived)
            counts[name] = len(cut.keys) + len(far)
        for name, source in relation.sources.items():
            if self._is_one(name):
                continue
            every = torch.arange(source.index.rows)
            read = every if name in self.shared else relation.need.of(name)
            places[name] = torch.zeros_like(every)
            places[name][read] = torch.arange(len(read))
            counts[name] = len(read)
        return relation.taken.built(_Placed(places, counts))

    def _output(self) -> Output:
        model = self.model
        query = self.base.plan.outputs[0]
        name, place = query.relation, self.axes.get(query.relation)
        keys = self.shared[name] if place is None else self.cut[name].keys
        shape = self.shapes.known[name] or ()
        found = Output(name, keys.T.contiguous(), self.base.constants, False, shape=shape)
        sizes = None if model._dense is False else dense_sizes(self.base).get(name)
        if sizes is None and model._dense:
            raise refusal(f"`{name}` has no dense axes")
        if sizes is None:
            return found
        axes, columns = list(sizes), list(keys.unbind(1))
        if place is not None:
            axes[place] = len(self.own)
            columns[place] = torch.searchsorted(self.own, columns[place].contiguous())
        places = locate(Grid(tuple(axes)), columns)
        total = not self.ranks.any(len(places) != Grid(tuple(axes)).rows)
        return replace(found, sizes=tuple(axes), places=None if total else places, fill=model.fill)

    def __call__(self, tensors: Mapping[str, Tensor], as_rows: bool) -> Returned:
        model = self.model
        weights, unit = model._weights(), model._one
        values = [*tensors.values(), *weights.values()]

        def run(lowering: Lowering, symbols: Any) -> Tensor:
            inputs = dict(zip(tensors, symbols, strict=False))
            held = dict(zip(weights, symbols[len(tensors) :], strict=True))
            return self.outputs.tensor(self._run(lowering, inputs, held), as_rows)

        key = (model.training, as_rows)
        plan = self._plans.get(key)
        if plan is None or not plan.fits(values):
            with untraced():
                names = (*tensors, *weights)
                plan = lowered(run, names, values, unit.device, without=model.without)
                self._plans[key] = plan
        return self.outputs.shown(plan(*values), as_rows)

    def _run(self, lowering: Lowering, tensors: Mapping[str, Tensor], weights: Any) -> Column:
        sent: list[Tensor] = []
        columns: dict[str, Column] = {}
        for name, x in tensors.items():
            own = x.reshape(1, len(self.cut[name].keys), *self.base.sources[name].shape)
            columns[name] = self._with_halo(name, Column(own), sent)
        held, out = with_stacks(weights, self.base.stacks), None
        for relation, step in zip(self.relations, self.steps, strict=True):
            found = self._computed(relation, step, columns, held, lowering)
            if relation.name == self.outputs.relation:
                out = found
            columns[relation.name] = self._with_halo(relation.name, found, sent)
        assert out is not None
        if not out.rows:
            out = reached(out, (*tensors.values(), *weights.values()))
        # an output of all ranks has the gradient of one, to which they add up
        share = 1 / self.ranks.count if self.outputs.relation in self.shared else 1.0
        return Column(tied(out.data, sent, share))

    def _computed(
        self,
        relation: RankRelation,
        step: RelationStep | None,
        columns: Mapping[str, Column],
        weights: Mapping[str, Tensor],
        lowering: Lowering,
    ) -> Column:
        unit, name = self.model._one, relation.name
        if step is None:
            shape = self.shapes.known[name] or ()
            none = torch.zeros(1, 0, *shape, dtype=unit.dtype, device=unit.device)
            return Column(lowering.lifted(none))
        read = {one: columns[one] for one in relation.numbers}
        read |= {one: columns[one] for one in relation.sources if one in self.shared}
        for one, (source, some) in self._data(relation).items():
            data = source.data(None, weights, unit.dtype).to(unit.device)
            read[one] = Column(lowering.lifted(data)).take(some)
        integers = {n: c for n, c in read.items() if not c.data.is_floating_point()}
        read |= {n: Column(c.data.to(unit.dtype)) for n, c in integers.items()}
        options = self.model.training, unit.dtype, unit.device, lowering
        found = step(State(read, dict(weights), *options, numbers=integers))[name]
        count = len(self.shared[name] if name in self.shared else self.cut[name].keys)
        return found.expanded(count)  # one row may stand for all

    def _data(self, relation: RankRelation) -> dict[str, tuple[Source, Tensor | None]]:
        """The rows of data that are read; of the facts of the relation itself, those it has."""
        found = {}
        for name, source in relation.sources.items():
            own = relation.taken if name == relation.name else None
            some = relation.need.of(name) if own is None else own.facts
            if name not in self.shared and some is not None and len(some):
                found[name] = source_at(source, some[:1] if self._is_one(name) else some)
        return found

    def _is_one(self, name: str) -> bool:
        """Whether all rows of a relation have one value: keys without values."""
        return name in self.keyed and self.keyed[name].values is None

    def _with_halo(self, name: str, column: Column, sent: list[Tensor]) -> Column:
        if name not in self.halos or self.halos[name].silent:
            return column
        found = with_halo(column.data, self.halos[name])
        sent.append(found)
        return Column(found)


def _without_own(rule: nodes.Rule) -> nodes.Rule:
    left = (i for i in rule.body if not (isinstance(i, nodes.Atom) and i.relation == OWN))
    return replace(rule, body=tuple(left))
