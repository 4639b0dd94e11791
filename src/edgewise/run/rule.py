"""One ground rule as tensor work: `W_h · agg(f(comb(W·b, ...)))` over all groundings at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from edgewise.aggregations import NORMALISATIONS, aggregate, averaged
from edgewise.aggregations.gather import Gather, gather
from edgewise.errors import EdgewiseError
from edgewise.ground.rules import GroundRule
from edgewise.ground.within import by_row, own_families
from edgewise.language import functions, nodes
from edgewise.language.statements import atoms, weights
from edgewise.layouts.segments import segments
from edgewise.reference.evaluate import combination
from edgewise.run.column import Column, Gathered, column, product
from edgewise.run.functions import combine, transform

# these read rows as a table of segments
SUMS = ("sum_agg", "avg_agg")
NEED_TABLES = {"median_agg", "topk_agg", "concat_agg", "softmax_agg", "sparsemax_agg"}


@dataclass
class State:
    """What a step reads: relations computed so far, weights, and values shared between rules."""

    relations: dict[str, Column]
    weights: Mapping[str, Tensor]
    training: bool
    dtype: torch.dtype
    device: torch.device
    projections: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    shared: dict[tuple[str, str], Tensor] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class RuleStep:
    """Computes the heads of one ground rule."""

    ground: GroundRule
    default: nodes.Function
    project_first: bool = True
    layouts: dict[int, str] | None = None  # place of an atom with a family weight → order

    def __post_init__(self) -> None:
        if self.layouts is None:
            object.__setattr__(self, "layouts", self._family_layouts())

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
        operands = [self.expression(item, state) for item in items]
        if operands:
            value = combine(combination(self.rule.functions), operands)
        else:
            value = Column(torch.ones(1, 1, dtype=state.dtype, device=state.device))
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
        if isinstance(value, Gathered) and function.name in SUMS:
            sums = value.total()
            return column(
                sums if function.name == "sum_agg" else averaged(sums, self.ground.segments)
            )
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
                found = self._in_rows(item, source, state, alone.relation)
                return self._chosen(found, self.place(alone))
            return self._in_rows(item, source.take(rows), state)
        owner = own_families(item)
        inner = None if owner is None else self.within.get(self.place(owner))
        if owner is not None and inner is not None:
            return self._chosen(inner.expression(item, state), self.place(owner))
        return self._combined(item, state)

    def _chosen(self, value: Column, at: int) -> Column:
        """From a value for each row of an atom to one in each grounding."""
        which = self.gathers.get(at)
        if which is not None and value.rank and value.rows > 1:
            return Gathered(value.data, which)
        return value.take(self.ground.rows[at] if value.rows > 1 else None)

    @cached_property
    def within(self) -> dict[int, RuleStep]:
        """Place of an atom → its rows alone, where a family of weights goes by its key."""
        if not self.project_first:
            return {}
        inner = by_row(self.ground)
        return {at: RuleStep(ground, self.default) for at, ground in inner.items()}

    def _combined(self, item: nodes.Expression, state: State) -> Column:
        match item:
            case nodes.Atom():
                everywhere = self._family_everywhere(item, state)
                if everywhere is not None:
                    return everywhere
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

    def _in_rows(
        self, item: nodes.Expression, source: Column, state: State, whole: str | None = None
    ) -> Column:
        """An expression of one atom on the rows of its relation; `whole` names it if all rows."""
        match item:
            case nodes.Atom():
                if whole is not None and item.weight is not None:
                    projected = _projected(item.weight, whole, source, state)
                    if projected is not None:
                        return column(projected)
                value = source
            case nodes.Weight():
                return self._weight(item, state)
            case nodes.Apply(function=function):
                operands = [
                    self._in_rows(operand, source, state, whole) for operand in item.operands
                ]
                value = self._applied(function, operands, state)
            case _:
                raise TypeError(f"carries no value: {item!r}")
        return self._weighted(item.weight, value, state)

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

    def _family_everywhere(self, item: nodes.Atom, state: State) -> Column | None:
        """Every member of a family times every row, where the groundings are just that."""
        weight, source = item.weight, state.relations[item.relation]
        if weight is None or not weight.keys or not self.project_first:
            return None
        layout = (self.layouts or {}).get(self.place(item))
        projected = _projected(weight, item.relation, source, state) if layout else None
        if projected is None:
            return None
        size = state.weights[str(weight.name)].shape[-2]
        members = projected.shape[2] // size
        if members * projected.shape[1] != self.ground.count:
            return None  # groundings are all of some members and rows, not of all
        split = projected.reshape(*projected.shape[:2], members, size)
        outer = split.transpose(1, 2) if layout == "members first" else split
        return column(outer.reshape(split.shape[0], -1, size))

    def _family_layouts(self) -> dict[int, str]:
        """Atoms with a family weight whose groundings are members × rows, and in which order."""
        found = {}
        for atom in atoms(self.rule.body):
            if isinstance(atom, nodes.Atom) and atom.weight is not None and atom.weight.keys:
                members = self.ground.rows.get(self.place(atom.weight))
                rows = self.ground.rows.get(self.place(atom))
                layout = _product_layout(members, rows, self.ground.count)
                if layout:
                    found[self.place(atom)] = layout
        return found

    def _family_times(self, weight: nodes.Weight, value: Column, state: State) -> Column:
        """A matrix of a family times a vector in each grounding, one product per member."""
        tensor = state.weights[str(weight.name)].to(state.dtype)
        members = tensor.flatten(0, len(weight.keys) - 1) if len(weight.keys) > 1 else tensor
        rows = self.ground.rows[self.place(weight)]
        if rows is None or value.rank != 1 or value.shape[0] != members.shape[-1]:
            return product(self._weight(weight, state), value)
        full = self._in_every_grounding(value).data
        chunk = self.chunks.get(self.place(weight))
        if chunk is not None:  # (batch, member, place, value) times a matrix for each member
            each = full.reshape(full.shape[0], -1, chunk, full.shape[-1])
            return column((each @ members[: each.shape[1]].mT).reshape(*full.shape[:2], -1))
        order, inverse, sizes = self.by_member[self.place(weight)]
        each = full.index_select(1, order).split(sizes, 1)
        parts = [torch.nn.functional.linear(x, w) for x, w in zip(each, members, strict=False)]
        listed = torch.cat(parts, 1)
        if isinstance(inverse, Gather) and listed.shape[2] > 1:
            return Gathered(listed, inverse)
        return column(listed).take(inverse.rows if isinstance(inverse, Gather) else inverse)

    @cached_property
    def chunks(self) -> dict[int, int]:
        """Place of a family → groundings of each member, where all have as many, in order."""
        found = {}
        for at, literal in enumerate(self.ground.body.literals):
            rows = self.ground.rows.get(at)
            if isinstance(literal, nodes.Weight) and rows is not None and len(rows):
                parts = segments(rows, int(rows.max()) + 1)
                if parts.even and parts.width:
                    found[at] = parts.width
        return found

    @cached_property
    def by_member(self) -> dict[int, tuple[Tensor, Tensor | Gather, list[int]]]:
        """Place of a family → groundings by its members, the way back, how many each has."""
        found: dict[int, tuple[Tensor, Tensor | Gather, list[int]]] = {}
        for at, literal in enumerate(self.ground.body.literals):
            rows = self.ground.rows.get(at)
            if isinstance(literal, nodes.Weight) and rows is not None and at not in self.chunks:
                order = rows.argsort(stable=True)
                back = order.argsort()
                way = gather(back, self.ground.segments, len(back)) if self._sums_rows else back
                found[at] = order, way, torch.bincount(rows).tolist()
        return found

    @property
    def _sums_rows(self) -> bool:
        """Whether heads sum rows as they are, so that rows need not be written out."""
        parts = self.ground.segments
        if parts.trivial or not parts.ordered or self.ground.groups is not None:
            return False
        return self.aggregation.name in SUMS and _scales_only(self.rule)

    @cached_property
    def gathers(self) -> dict[int, Gather]:
        """Place of an atom → which of its rows each head sums, if it sums them as they are."""
        if not self._sums_rows:
            return {}
        return {
            at: gather(rows, self.ground.segments, self.ground.sizes[at])
            for at, rows in self.ground.rows.items()
            if rows is not None and at in self.ground.sizes
        }

    def settle(self) -> None:
        """Work out what depends on keys alone, so that a step is nothing but tensor work."""
        names = {self.aggregation.name, self.default.name}
        listed = bool(names & NEED_TABLES) or self.rule.head.weight is not None
        for parts in (self.ground.segments, self.ground.groups):
            if parts is not None and not parts.even:
                parts.sizes  # noqa: B018
                if listed:
                    parts.padded  # noqa: B018
        self.by_member  # noqa: B018
        self.gathers, self.chunks  # noqa: B018
        for inner in self.within.values():
            inner.settle()

    def _head_weight(self, weight: nodes.Weight, state: State) -> Column:
        found = self._weight(weight, state)
        if not weight.keys or self.ground.segments.trivial:
            return found
        starts = self.ground.segments.padded[:, 0]
        return found.take(starts)


def _scales_only(rule: nodes.Rule) -> bool:
    """Whether a grounding is at most a scalar times a row."""
    one = sum(item.carries_value for item in rule.body) == 1
    plain = all(functions.kind(f) != functions.TRANSFORMATION for f in rule.functions)
    return plain and (one or combination(rule.functions).name == "product")


def _product_layout(members: Tensor | None, rows: Tensor | None, count: int) -> str | None:
    """How the groundings of members × rows are ordered, if they are all of them."""
    if members is None or rows is None or not count:
        return None
    high, wide = int(members.max()) + 1, int(rows.max()) + 1
    if high * wide != count:
        return None
    here = torch.arange(count, device=members.device)
    if bool((members == here // wide).all()) and bool((rows == here % wide).all()):
        return "members first"
    if bool((rows == here // high).all()) and bool((members == here % high).all()):
        return "rows first"
    return None


def _projected(weight: nodes.Weight, relation: str, source: Column, state: State) -> Tensor | None:
    """All rows of a relation times a matrix, or times all matrices of a family side by side.

    The matrices that the model applies to one relation are one product, computed once.
    """
    if source.rank != 1 or not _matrix(weight, state):
        return None
    key = (relation, str(weight.name))
    if key not in state.shared:
        names = state.projections.get(relation, ())
        names = names if weight.name in names else (str(weight.name),)
        matrices = [state.weights[n].to(state.dtype).flatten(0, -2) for n in names]
        if any(m.shape[1] != source.shape[0] for m in matrices):
            return None
        if len(matrices) == 1:
            state.shared[key] = torch.nn.functional.linear(source.data, matrices[0])
            return state.shared[key]
        together = torch.nn.functional.linear(source.data, torch.cat(matrices))
        parts = together.split([len(m) for m in matrices], -1)
        state.shared.update(zip(((relation, n) for n in names), parts, strict=True))
    return state.shared[key]


def projected_weights(step: RuleStep) -> Iterator[tuple[str, str]]:
    """The matrices that a rule applies to whole relations: (relation, weight)."""
    for atom in atoms(step.rule.body):
        if isinstance(atom, nodes.Atom) and atom.carries_value and atom.weight is not None:
            at = step.place(atom)
            plain = step.ground.rows.get(at) is None and not atom.weight.keys
            if plain or at in (step.layouts or {}):
                yield atom.relation, str(atom.weight.name)


def _matrix(weight: nodes.Weight, state: State) -> bool:
    shape = state.weights[str(weight.name)].shape[len(weight.keys) :]
    return len(shape) == 2 and shape[1] > 1
