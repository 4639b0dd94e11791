"""One ground rule as tensor work: `W_h · agg(f(comb(W·b, ...)))` over all groundings at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.errors import EdgewiseError
from edgewise.functions import Law
from edgewise.ground.body import own_families
from edgewise.language import functions, nodes
from edgewise.language.statements import combination
from edgewise.physical import families
from edgewise.physical.column import Column, Gathered, GridColumn, column, product
from edgewise.physical.functions import aggregate, combine, normalise, transform
from edgewise.physical.projections import is_matrix, projected, values_of
from edgewise.physical.row_access import RowAccess
from edgewise.physical.rule_body import single_atom
from edgewise.physical.state import State


@dataclass(frozen=True, eq=False)
class RuleStep(RowAccess):
    """Computes the heads of one ground rule."""

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
        function = combination(self.rule.functions)
        value = self._dotted(0, state)
        if value is None and items:
            value = combine(function, self._operands(function, items, state))
        elif value is None:
            one = torch.ones(1, 1, dtype=state.dtype, device=state.device)
            value = Column(state.lifted(one))
        for function in self.rule.functions:
            if functions.kind(function) == functions.TRANSFORMATION:
                value = transform(function, value, state.training)
        value = self._aggregated(self._in_every_grounding(value))
        if self.rule.head.weight is not None:
            value = product(self._head_weight(self.rule.head.weight, state), value)
        return value

    def _dotted(self, which: int, state: State) -> Column | None:
        """Dot products of rows as numbers of a product of matrices, where they are that."""
        if which not in self.dots:
            return None
        (left, a), (right, b), dots = self.dots[which]
        return dots(
            left._in_every_grounding(left.expression(a, state)),
            right._in_every_grounding(right.expression(b, state)),
        )

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
        return Column(normalise(aggregation, inner.data, self.ground.groups))

    def _reduced(self, function: nodes.Function, value: Column) -> Column:
        linear = Law.LINEAR in functions.definition(function)
        if isinstance(value, GridColumn) and self.ground.segments.trivial and linear:
            return value
        if isinstance(value, Gathered | families.Grouped) and value.aggregates(function.name):
            return column(value.aggregated(function.name))
        if self.runs is not None and linear:
            each = value.data  # torch adds up numbers well on a CPU, and rows nowhere
            if each.ndim > 2 or each.is_cuda:
                return column(Gathered(each, self.runs).aggregated(function.name))
        return column(aggregate(function, value.data, self.ground.segments))

    # expressions

    def expression(self, item: nodes.Expression, state: State) -> Column:
        """An expression in every grounding (or one row, if it is the same in all)."""
        alone = single_atom(item)
        if alone is not None:
            rows = self.ground.rows[self.place(alone)]
            source = state.relations[alone.relation]
            whole = isinstance(item, nodes.Atom) and self._is_shared(item, state)
            if self.project_first and (rows is None or source.rows <= len(rows) or whole):
                found = self._in_rows(item, source, state, alone.relation)
                return self._chosen(found, self.place(alone))
            return self._in_rows(item, self._taken(source, self.place(alone)), state)
        owner = own_families(item)
        inner = None if owner is None else self.within.get(self.place(owner))
        if owner is not None and inner is not None and state.cache is None:
            return self._chosen(inner.expression(item, state), self.place(owner))
        return self._combined(item, state)

    def _chosen(self, value: Column, at: int) -> Column:
        """From a value for each row of an atom to one in each grounding."""
        which = self.gathers.get(at)
        if which is not None and value.rank and value.rows > 1:
            return Gathered(value.data, which)
        return self._taken(value, at) if value.rows > 1 else value

    def _taken(self, value: Column, at: int) -> Column:
        """The rows of a source that a literal reads."""
        way = self.strides.get(at)
        if way is not None and value.rows == way.size:
            return way.taken(value)
        return value.take(self.ground.rows[at])

    def _combined(self, item: nodes.Expression, state: State) -> Column:
        match item:
            case nodes.Atom():
                everywhere = self._family_everywhere(item, state)
                if everywhere is not None:
                    return everywhere
                value = self._taken(state.relations[item.relation], self.place(item))
            case nodes.SpecialAtom():
                numbers = self._at_positions(self.place(item), state)
                numbers = self.ground.numbers[self.place(item)] if numbers is None else numbers
                value = Column(state.lifted(numbers.to(state.dtype).unsqueeze(0)))
            case nodes.Weight():
                return self._weight(item, state)
            case nodes.Apply(function=function):
                taken = self._dotted(id(item), state)
                if taken is None:
                    operands = self._operands(function, item.operands, state)
                    taken = self._applied(function, operands, state)
                value = taken
            case _:
                raise TypeError(f"carries no value: {item!r}")
        return self._weighted(item.weight, value, state)

    def _operands(
        self, function: nodes.Function, items: Sequence[nodes.Expression], state: State
    ) -> list[Column]:
        """What a function is applied to; a number that is looked up stays an integer."""
        found = values_of(
            function,
            items,
            lambda item: self.expression(item, state),
            lambda atom, bias: self._affine(atom, bias, state),
        )
        if function.name == "lookup" and len(items) == 2:
            number = items[1]
            if isinstance(number, nodes.Atom) and number.weight is None:
                exact = state.numbers.get(number.relation)
                found[1] = exact.take(self.ground.rows[self.place(number)]) if exact else found[1]
        return found

    def _applied(self, function: nodes.Function, operands: list[Column], state: State) -> Column:
        if functions.kind(function) == functions.COMBINATION:
            return combine(function, operands)
        return transform(function, operands[0], state.training)

    def _in_rows(
        self, item: nodes.Expression, source: Column, state: State, whole: str | None = None
    ) -> Column:
        """An expression of one atom on the rows of its relation; `whole` names it if all rows."""
        match item:
            case nodes.Atom():
                if whole is not None and item.weight is not None:
                    found = projected(item.weight, whole, source, state)
                    if found is not None:
                        return column(found)
                value = source
            case nodes.Weight():
                return self._weight(item, state)
            case nodes.Apply(function=function):
                operands = values_of(
                    function,
                    item.operands,
                    lambda operand: self._in_rows(operand, source, state, whole),
                    lambda atom, bias: _mapped(atom, bias, whole, source, state),
                )
                value = self._applied(function, operands, state)
            case _:
                raise TypeError(f"carries no value: {item!r}")
        return self._weighted(item.weight, value, state)

    def _affine(self, atom: nodes.Atom, bias: nodes.Weight, state: State) -> Column | None:
        """Rows times a matrix and a vector more, where a product takes all rows."""
        source, at = state.relations[atom.relation], self.place(atom)
        if not self.project_first:
            return None
        if bias.keys:
            return self._family_everywhere(atom, state, bias)
        rows = self.ground.rows[at]
        if rows is not None and source.rows > len(rows) and not self._is_shared(atom, state):
            return None
        found = _mapped(atom, bias, atom.relation, source, state)
        return None if found is None else self._chosen(found, at)

    def _is_shared(self, atom: nodes.Atom, state: State) -> bool:
        """Whether all rows of an atom times its matrix are computed once for several steps."""
        if atom.weight is None or atom.weight.keys or atom.relation not in state.whole:
            return False
        return is_matrix(atom.weight, state)

    # weights

    def _weighted(self, weight: nodes.Weight | None, value: Column, state: State) -> Column:
        if weight is None:
            return value
        if weight.keys and value.rank and is_matrix(weight, state):
            return self._family_times(weight, value, state)
        return product(self._weight(weight, state), value)

    def _weight(self, weight: nodes.Weight, state: State) -> Column:
        tensor = state.weights[str(weight.name)].to(state.dtype)
        if not weight.keys:
            return column(tensor.reshape(1, 1, *tensor.shape))
        family = families.members(tensor, len(weight.keys))
        rows = self._at_positions(self.place(weight), state)
        every = column(family.unsqueeze(0))
        return self._taken(every, self.place(weight)) if rows is None else every.take(rows)

    def _at_positions(self, at: int, state: State) -> Tensor | None:
        """What a literal reads where rows are appended, None where that is what it always does."""
        found: Tensor | None = None
        if state.cache is not None:
            found = state.cache.at_positions(self.ground, at, state.positions)
        return found

    def _family_everywhere(
        self, item: nodes.Atom, state: State, bias: nodes.Weight | None = None
    ) -> Column | None:
        """Every member of a family times every row, where the groundings are just that."""
        weight, source = item.weight, state.relations[item.relation]
        if weight is None or not weight.keys or not self.project_first:
            return None
        layout = self.layouts.get(self.place(item))
        whole = projected(weight, item.relation, source, state, bias) if layout else None
        if layout is None or whole is None:
            return None
        size = state.weights[str(weight.name)].shape[-2]
        return families.laid_out(whole, size, layout, self.ground.count)

    def _family_times(self, weight: nodes.Weight, value: Column, state: State) -> Column:
        """A matrix of a family times a vector in each grounding, one product per member."""
        tensor = state.weights[str(weight.name)].to(state.dtype)
        family = families.members(tensor, len(weight.keys))
        at = self.place(weight)
        wide = value.rank == 1 and value.shape[0] == family.shape[-1]
        if self.ground.rows[at] is None or not wide or not self.each_member:
            return product(self._weight(weight, state), value)
        full = self._in_every_grounding(value)
        if at in self.chunks:
            return families.times_in_chunks(family, full.data, self.chunks[at])
        return families.times_by_member(family, full, self.by_member[at])

    def _head_weight(self, weight: nodes.Weight, state: State) -> Column:
        found = self._weight(weight, state)
        if not weight.keys or self.ground.segments.trivial:
            return found
        starts = self.ground.segments.padded[:, 0]
        return found.take(starts)


def _mapped(
    atom: nodes.Atom, bias: nodes.Weight, whole: str | None, source: Column, state: State
) -> Column | None:
    """All rows of a relation times a matrix, and a vector more."""
    if whole is None or atom.weight is None:
        return None
    found = projected(atom.weight, whole, source, state, bias)
    return None if found is None else column(found)
