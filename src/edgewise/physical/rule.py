"""One ground rule as tensor operations, straight from its text: `W_h · agg(f(comb(W·b, ...)))`.

Nothing is optimised here: every literal is gathered for every grounding, and passes over the graph
(`physical/passes/__init__.py`) find out what can be computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.errors import EdgewiseError
from edgewise.functions import DEFINITIONS
from edgewise.ground.ground_rule import GroundRule
from edgewise.language import functions, nodes
from edgewise.language.statements import combination
from edgewise.physical.functions import aggregate, combine, normalise, transform
from edgewise.physical.lowering_state import Column, State, column, product

SUM, PRODUCT = nodes.Function("sum_agg"), nodes.Function("product")


@dataclass(frozen=True, eq=False)
class RuleStep:
    """Computes the heads of one ground rule; `default` aggregates where the rule does not say."""

    ground: GroundRule
    default: nodes.Function
    mask: str | None = None  # an input: 1 for groundings that count, 0 for others

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
        if items:
            function = combination(self.rule.functions)
            value = combine(function, self._operands(function, items, state), state.training)
        else:
            one = torch.ones(1, 1, dtype=state.dtype, device=state.device)
            value = Column(state.lifted(one))
        for function in self.rule.functions:
            if functions.kind(function) == functions.TRANSFORMATION:
                value = transform(function, value, state.training)
        value = value.expanded(self.ground.count)
        value = self._aggregated(value) if self.mask is None else self._masked(value, state)
        if self.rule.head.weight is not None:
            value = product(self._head_weight(self.rule.head.weight, state), value)
        return value

    def _aggregated(self, value: Column) -> Column:
        parts, groups = self.ground.segments, self.ground.groups
        if groups is None:
            return column(aggregate(self.aggregation, value.data, parts))
        inner = column(aggregate(self.default, value.data, parts))
        return Column(normalise(self.aggregation, inner.data, groups))

    def _masked(self, value: Column, state: State) -> Column:
        """The sum or the mean of the groundings that count."""
        assert self.mask is not None
        mask = Column(state.masks[self.mask].unsqueeze(0))
        parts = self.ground.segments
        total = column(aggregate(SUM, product(mask, value).data, parts))
        if self.aggregation.name == SUM.name:
            return total
        count = aggregate(SUM, mask.data, parts).clamp(min=1)
        return product(Column(count.reciprocal()), total)

    def _expression(self, item: nodes.Expression, state: State) -> Column:
        """An expression in every grounding (or one row, if it is the same in all)."""
        match item:
            case nodes.Atom():
                source = state.relations[item.relation]
                value = source.take(self.ground.rows[self._at(item)]) if source.rows > 1 else source
            case nodes.SpecialAtom():
                at = self._at(item)
                numbers = self._at_positions(at, state)
                numbers = self.ground.numbers[at] if numbers is None else numbers
                value = Column(state.lifted(numbers.to(state.dtype).unsqueeze(0)))
            case nodes.Weight():
                return self._weight(item, state)
            case nodes.Apply(function=function):
                operands = self._operands(function, item.operands, state)
                if functions.kind(function) == functions.COMBINATION:
                    value = combine(function, operands, state.training)
                else:
                    value = transform(function, operands[0], state.training)
            case _:
                raise TypeError(f"carries no value: {item!r}")
        return value if item.weight is None else self._weighted(item.weight, value, state)

    def _operands(
        self, function: nodes.Function, items: Sequence[nodes.Expression], state: State
    ) -> list[Column]:
        """What a function is applied to; a number that is looked up stays an integer."""
        found = [self._expression(item, state) for item in items]
        if function.name == "lookup" and len(items) == 2:
            number = items[1]
            if isinstance(number, nodes.Atom) and number.weight is None:
                exact = state.numbers.get(number.relation)
                found[1] = exact.take(self.ground.rows[self._at(number)]) if exact else found[1]
        return found

    def _at(self, literal: nodes.Expression) -> int:
        """The position of a literal in the body, by identity."""
        for at, other in enumerate(self.ground.body.literals):
            if other is literal:
                return at
        raise TypeError(f"not a literal of this rule: {literal!r}")

    # weights

    def _weighted(self, weight: nodes.Weight, value: Column, state: State) -> Column:
        """A weight times a value; a matrix of a family times a vector is one product a grounding,
        which passes over the graph recognise."""
        factor = self._weight(weight, state)
        matrices = weight.keys and factor.rank == 2 and factor.rows > 1 and value.rank == 1
        if matrices and factor.shape[1] == value.shape[0] and value.rows > 1:
            return column((factor.data @ value.data.unsqueeze(-1)).squeeze(-1))
        return product(factor, value)

    def _weight(self, weight: nodes.Weight, state: State) -> Column:
        tensor = state.weights[str(weight.name)].to(state.dtype)
        if not weight.keys:
            return column(tensor.reshape(1, 1, *tensor.shape))
        members = tensor.flatten(0, len(weight.keys) - 1) if len(weight.keys) > 1 else tensor
        rows = self._at_positions(self._at(weight), state)
        rows = self.ground.rows[self._at(weight)] if rows is None else rows
        return column(members.unsqueeze(0)).take(rows)

    def _at_positions(self, at: int, state: State) -> Tensor | None:
        """What a literal reads where rows are appended; None where positions do not matter."""
        found: Tensor | None = None
        if state.cache is not None:
            found = state.cache.at_positions(self.ground, at, state.positions)
        return found

    def _head_weight(self, weight: nodes.Weight, state: State) -> Column:
        found = self._weight(weight, state)
        if not weight.keys or self.ground.segments.trivial:
            return found
        return found.take(self.ground.segments.padded[:, 0])

    # what the gathers of a rule are, for memory estimates and explanations

    @property
    def sums_rows(self) -> bool:
        """Whether rule heads aggregate gathered rows as they are, or times a scalar."""
        parts = self.ground.segments
        if parts.trivial or not parts.ordered or self.ground.groups is not None:
            return False
        if any(functions.kind(f) == functions.TRANSFORMATION for f in self.rule.functions):
            return False
        alone = sum(item.carries_value for item in self.rule.body) == 1
        aggregation = functions.definition(self.aggregation)
        if aggregation.is_extreme:
            return alone
        products = alone or combination(self.rule.functions).name == "product"
        return aggregation.kernel is not None and products

    @property
    def written_out(self) -> str | None:
        """Why groundings are materialised before they are aggregated."""
        parts, name = self.ground.segments, self.aggregation.name
        if parts.trivial:
            return None
        if self.ground.groups is not None:
            return f"{name} reads every grounding"
        if DEFINITIONS[name].kernel is None:
            return f"it does not compute {name}"
        if not self.sums_rows:
            return "what is aggregated is more than a row, or a number times a row"
        rows = self.ground.rows
        if all(rows[at] is None for at in self.ground.sizes):
            return "the groundings of a head lie side by side"
        return "torch aggregates single numbers and small graphs as fast"
