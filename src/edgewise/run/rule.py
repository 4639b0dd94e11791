"""One ground rule as tensor work: `W_h · agg(f(comb(W·b, ...)))` over all groundings at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from edgewise.aggregations import NORMALISATIONS, aggregate
from edgewise.errors import EdgewiseError
from edgewise.ground.rules import GroundRule
from edgewise.language import functions, nodes
from edgewise.language.statements import atoms, weights
from edgewise.reference.evaluate import combination
from edgewise.run.column import Column, column, product
from edgewise.run.functions import combine, transform


@dataclass
class State:
    """What a step reads: relations computed so far, weights, and values shared between rules."""

    relations: dict[str, Column]
    weights: Mapping[str, Tensor]
    training: bool
    dtype: torch.dtype
    device: torch.device
    shared: dict[str, list[tuple[Tensor, Column]]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class RuleStep:
    """Computes the heads of one ground rule."""

    ground: GroundRule
    default: nodes.Function
    project_first: bool = True

    def place(self, literal: nodes.Expression) -> int:
        """The place of a literal of the body in the grounding, by identity."""
        for at, other in enumerate(self.ground.body.literals):
            if other is literal:
                return at
        raise TypeError(f"not a literal of this rule: {literal!r}")

    @property
    def rule(self) -> nodes.Rule:
        return self.ground.rule

    @property
    def aggregation(self) -> nodes.Function:
        own = (f for f in self.rule.functions if functions.kind(f) == functions.AGGREGATION)
        return next(own, self.default)

    def __call__(self, state: State) -> Column:
        try:
            return self._compute(state)
        except EdgewiseError as error:
            if error.place is None:
                error.place = self.rule.place
            raise

    def _compute(self, state: State) -> Column:
        if not self.ground.count:
            return Column(torch.zeros(1, 0, dtype=state.dtype, device=state.device))
        items = [item for item in self.rule.body if item.carries_value]
        one = Column(torch.ones(1, 1, dtype=state.dtype, device=state.device))
        operands = [self.expression(item, state) for item in items]
        value = combine(combination(self.rule.functions), operands) if operands else one
        for function in self.rule.functions:
            if functions.kind(function) == functions.TRANSFORMATION:
                value = transform(function, value, state.training)
        value = self._aggregated(self._in_every_grounding(value))
        if self.rule.head.weight is not None:
            value = product(self._head_weight(self.rule.head.weight, state), value)
        return value

    def _in_every_grounding(self, value: Column) -> Column:
        if value.rows == self.ground.count:
            return value
        shape = (value.data.shape[0], self.ground.count, *value.shape)
        return Column(value.data.expand(shape))

    def _aggregated(self, value: Column) -> Column:
        aggregation = self.aggregation
        if self.ground.groups is None:
            return self._reduced(aggregation, value)
        inner = self._reduced(self.default, value)
        return Column(NORMALISATIONS[aggregation.name](inner.data, self.ground.groups))

    def _reduced(self, function: nodes.Function, value: Column) -> Column:
        k = {"k": function["k"]} if function.name == "topk_agg" else {}
        return column(aggregate(function.name, value.data, self.ground.segments, **k))

    # expressions

    def expression(self, item: nodes.Expression, state: State) -> Column:
        """An expression in every grounding (or one row, if it is the same in all)."""
        alone = self._single_atom(item)
        if alone is not None:
            rows = self.ground.rows[self.place(alone)]
            source = state.relations[alone.relation]
            if self.project_first and (rows is None or source.rows <= len(rows)):
                return self._in_rows(item, source, state).take(rows)
            return self._in_rows(item, source.take(rows), state)
        return self._combined(item, state)

    def _combined(self, item: nodes.Expression, state: State) -> Column:
        match item:
            case nodes.Atom():
                place = self.place(item)
                value = state.relations[item.relation].take(self.ground.rows[place])
            case nodes.SpecialAtom():
                numbers = self.ground.numbers[self.place(item)]
                value = Column(numbers.to(state.dtype).unsqueeze(0))
            case nodes.Weight():
                return self._weight(item, state)
            case nodes.Apply(function=function):
                operands = [self.expression(operand, state) for operand in item.operands]
                value = self._applied(function, operands, state)
            case _:
                raise TypeError(f"carries no value: {item!r}")
        return self._weighted(item.weight, value, state)

    def _applied(self, function: nodes.Function, operands: list[Column], state: State) -> Column:
        if functions.kind(function) == functions.COMBINATION:
            return combine(function, operands)
        return transform(function, operands[0], state.training)

    def _single_atom(self, item: nodes.Expression) -> nodes.Atom | None:
        """The atom of an expression of one atom and plain weights: computed once per row."""
        found = list(atoms(item))
        if len(found) != 1 or not isinstance(found[0], nodes.Atom):
            return None
        if any(weight.keys for weight in weights(item)):
            return None
        return found[0]

    def _in_rows(self, item: nodes.Expression, source: Column, state: State) -> Column:
        match item:
            case nodes.Atom():
                value = source
            case nodes.Weight():
                return self._weight(item, state)
            case nodes.Apply(function=function):
                operands = [self._in_rows(operand, source, state) for operand in item.operands]
                value = self._applied(function, operands, state)
            case _:
                raise TypeError(f"carries no value: {item!r}")
        if item.weight is None:
            return value
        known = state.shared.setdefault(str(item.weight.name), [])
        for data, weighted in known:
            if data is value.data:
                return weighted
        weighted = self._weighted(item.weight, value, state)
        known.append((value.data, weighted))
        return weighted

    # weights

    def _weighted(self, weight: nodes.Weight | None, value: Column, state: State) -> Column:
        if weight is None:
            return value
        if weight.keys and value.rank and _matrix(weight, state):
            return self._family_times(weight, value, state)
        return product(self._weight(weight, state), value)

    def _weight(self, weight: nodes.Weight, state: State) -> Column:
        tensor = state.weights[str(weight.name)].to(state.dtype)
        if not weight.keys:
            return column(tensor.reshape(1, 1, *tensor.shape))
        members = tensor.flatten(0, len(weight.keys) - 1) if len(weight.keys) > 1 else tensor
        rows = self.ground.rows[self.place(weight)]
        return column(members.unsqueeze(0)).take(rows)

    def _family_times(self, weight: nodes.Weight, value: Column, state: State) -> Column:
        """A matrix of a family times a vector in each grounding, one product per member."""
        tensor = state.weights[str(weight.name)].to(state.dtype)
        members = tensor.flatten(0, len(weight.keys) - 1) if len(weight.keys) > 1 else tensor
        rows = self.ground.rows[self.place(weight)]
        if rows is None or value.rank != 1 or value.shape[0] != members.shape[-1]:
            return product(self._weight(weight, state), value)
        full = self._in_every_grounding(value).data
        out = full.new_zeros(*full.shape[:2], members.shape[1])
        for member, chosen in enumerate(self._by_member(self.place(weight), len(members))):
            if len(chosen):
                part = torch.nn.functional.linear(full.index_select(1, chosen), members[member])
                out = out.index_copy(1, chosen, part)
        return column(out)

    def _by_member(self, at: int, count: int) -> list[Tensor]:
        rows = self.ground.rows[at]
        assert rows is not None
        order = rows.argsort(stable=True)
        return list(order.split(torch.bincount(rows, minlength=count).tolist()))

    def _head_weight(self, weight: nodes.Weight, state: State) -> Column:
        found = self._weight(weight, state)
        if not weight.keys or self.ground.segments.trivial:
            return found
        starts = self.ground.segments.padded[:, 0]
        return found.take(starts)


def _matrix(weight: nodes.Weight, state: State) -> bool:
    shape = state.weights[str(weight.name)].shape[len(weight.keys) :]
    return len(shape) == 2 and shape[1] > 1
