"""The outputs of a grounded plan: on dense axes, or as explicit rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import EdgewiseError, caller
from edgewise.ground.index import Constants, Grid, Index, KeyOutOfRange, locate
from edgewise.ground.joins.body import SAMPLE
from edgewise.inputs.prepare import BoundPlan
from edgewise.inputs.range_check import dense_sizes
from edgewise.language import nodes
from edgewise.language.dependencies import components, needs
from edgewise.physical.demand.wanted import Want, rows_wanted
from edgewise.physical.lowering_state import Column
from edgewise.physical.relation import Relation
from edgewise.physical.value_shapes import Shapes


class NotTotal(EdgewiseError):
    """A dense output has a place for every key; where a rule derives none, its value is absent."""

    code = "not-total"
    example = (
        "Program([R.h(V.X) <= (R.a(V.X), R.special.lt(V.X, 2))]).compile(R.h)(a=torch.ones(3))"
    )
    instead = (
        "Program([R.h(V.X) <= (R.a(V.X), R.special.lt(V.X, 2))]).compile(R.h, fill=0.0)"
        "(a=torch.ones(3))"
    )


@dataclass(frozen=True, eq=False)
class Output:
    """How the rows of an output relation are returned.

    `rows` are those of the relation that are returned, None for all of them; `sizes` are the
    lengths of their dense axes, None where there are none; `places` are the places of the rows
    on them, None where they are all of them in order.
    """

    relation: str
    keys: Tensor
    constants: Constants
    batched: bool
    sizes: tuple[int, ...] | None = None
    places: Tensor | None = None
    fill: float | None = None
    outside: KeyOutOfRange | None = None  # why there is no dense form
    shape: tuple[int, ...] = ()  # of an empty output, whose values show none
    real: int | None = None  # the rows that count, where others were filled in
    rows: Tensor | None = None

    @property
    def is_dense(self) -> bool:
        """Whether every place of its axes has a value."""
        total = self.places is None or self.fill is not None
        return self.sizes is not None and self.outside is None and total

    def empty(self, batch: int, dtype: torch.dtype, device: torch.device) -> Column:
        return Column(torch.zeros(batch, 0, *self.shape, dtype=dtype, device=device))

    def tensor(self, value: Column, as_rows: bool) -> Tensor:
        """The values, on dense axes if there are any and they are wanted."""
        value = value if self.real is None else Column(value.data[:, : self.real])
        value = value.take(self.rows) if value.rows else value
        if self.sizes is not None and not as_rows:
            return self._dense(value, self.sizes)
        return value.data if self.batched else value.data.squeeze(0)

    def shown(self, data: Tensor, as_rows: bool) -> Tensor | Relation:
        """What the user gets of such a tensor."""
        if self.sizes is not None and not as_rows:
            return data
        return Relation(self.relation, self.keys, data, self.constants, self.batched)

    def _dense(self, value: Column, sizes: tuple[int, ...]) -> Tensor:
        if self.outside is not None:
            raise self.outside
        if self.places is not None and self.fill is None:
            raise NotTotal(
                f"`{self.relation}` has {len(self.places)} of {Grid(sizes).rows} values on its "
                f"axes {sizes}",
                caller(),
                "write a rule that derives the others, or give them a value: "
                "`compile(..., fill=0.0)`"
                if len(sizes) < 2
                else "call `model.rows(...)` for those that hold, or give a value for the others: "
                "`compile(..., fill=0.0)`",
            )
        data = value.data
        if self.places is not None:
            shape = (data.shape[0], Grid(sizes).rows, *value.shape)
            fill = data.new_full(shape, 0.0 if self.fill is None else self.fill)
            data = fill.index_copy(1, self.places, data)
        found = data.reshape(data.shape[0], *sizes, *value.shape)
        return found if self.batched else found.squeeze(0)


@dataclass(frozen=True, eq=False)
class Outputs:
    """What a model returns: one output, or several by their `names`."""

    parts: tuple[Output, ...]
    names: tuple[str, ...] = ()

    @property
    def is_dense(self) -> bool:
        return all(part.is_dense for part in self.parts)

    def tensors(self, values: Sequence[Column], as_rows: bool) -> Tensor | tuple[Tensor, ...]:
        """The values of each output, as a plan computes them."""
        found = [part.tensor(v, as_rows) for part, v in zip(self.parts, values, strict=True)]
        return tuple(found) if self.names else found[0]

    def shown(self, found: Any, as_rows: bool) -> Returned:
        """What the user gets of such tensors."""
        if not self.names:
            return self.parts[0].shown(found, as_rows)
        each = zip(self.names, self.parts, found, strict=True)
        return {name: part.shown(data, as_rows) for name, part, data in each}


def outputs_of(
    prepared: BoundPlan,
    relations: Mapping[str, Index],
    weights: Mapping[str, Tensor],
    fill: float | None,
    dense: bool | None = None,
    want: Want | None = None,
) -> Outputs:
    """Where the rows of the outputs go; of some, only rows that are wanted."""
    plan, parts = prepared.plan, []
    for number, query in enumerate(plan.outputs):
        made = _output_of(query, prepared, relations, weights, fill, dense)
        free, constants = free_positions(query), prepared.constants
        keys = None
        if want is not None:
            keys = want.coded(number, len(free), query.relation, constants, fill)
        if keys is not None:
            made = _wanted(made, query, keys, relations[query.relation], fill)
            made = replace(made, sizes=None) if dense is False else made
            if not len(made.keys.T):
                made = replace(made, shape=_shape(prepared, query.relation, weights))
        parts.append(made)
    return Outputs(tuple(parts), plan.names)


def _wanted(
    output: Output, query: nodes.Atom, keys: Tensor, index: Index, fill: float | None
) -> Output:
    """An output with a row for each wanted key, in order; `keys` are those of its variables."""
    full = wanted_keys(query, keys, output.constants)
    rows, places = rows_wanted(full, index, output.relation, output.constants, fill)
    chosen = full if places is None else full[places]
    sizes = (keys.shape[0],)
    parts: dict[str, Any] = {"keys": chosen.T.contiguous(), "sizes": sizes, "places": places}
    return replace(output, **parts, fill=fill, outside=None, rows=rows)


def wanted_keys(query: nodes.Atom, keys: Tensor, constants: Constants) -> Tensor:
    """The keys of all terms of an output; `keys` are those of its variables."""
    free = free_positions(query)
    columns = [
        keys[:, free.index(query.terms.index(term))]
        if isinstance(term, nodes.Variable)
        else torch.full((len(keys),), constants.code(term))
        for term in query.terms
    ]
    return torch.stack(columns, 1) if columns else keys


def _output_of(
    query: nodes.Atom,
    prepared: BoundPlan,
    relations: Mapping[str, Index],
    weights: Mapping[str, Tensor],
    fill: float | None,
    dense: bool | None,
) -> Output:
    name, constants, index = query.relation, prepared.constants, relations[query.relation]
    rows = _matching(query, index, constants)
    columns = [index.column(p) for p in range(index.arity)]
    columns = columns if rows is None else [column[rows] for column in columns]
    count = index.rows if rows is None else rows.shape[0]
    keys = torch.stack(columns) if columns else torch.zeros(0, count, dtype=torch.int64)
    batched = any(source.batched for source in prepared.sources.values())
    shape = () if index.rows else _shape(prepared, name, weights)
    found = Output(name, keys, constants, batched, shape=shape, rows=rows)
    free = free_positions(query)
    if dense is False:
        return found
    sizes: tuple[int, ...] | None = () if query.terms and not free else None
    sizes = dense_sizes(prepared).get(name) if sizes is None else sizes
    if sizes is None and dense:
        sizes = _lengths(query, index, prepared)
    if sizes is None:
        return found
    if len(free) == index.arity and index == Grid(sizes):
        return replace(found, sizes=sizes, fill=fill)
    sizes = tuple(sizes[p] for p in free)
    places, outside = _places(name, keys[free], count, sizes, constants)
    return replace(found, sizes=sizes, places=places, fill=fill, outside=outside)


def _lengths(query: nodes.Atom, index: Index, prepared: BoundPlan) -> tuple[int, ...]:
    """Axes for rows that have none of their own: one longer than the largest key, as many as there
    are samples. A string is outside of them."""
    found = [index.length(p) for p in range(index.arity)]
    if prepared.samples is not None and query.terms[:1] == (SAMPLE,):
        found[0] = prepared.samples
    return tuple(found)


def free_positions(query: nodes.Atom) -> list[int]:
    """The first place of each variable.

    >>> from edgewise.language import R, V
    >>> free_positions(R.g(V.X, 3, V.X, V.Y))
    [0, 3]
    """
    return [p for p, term in enumerate(query.terms) if _is_first(query.terms, p, term)]


def _is_first(terms: tuple[nodes.Term, ...], place: int, term: nodes.Term) -> bool:
    return isinstance(term, nodes.Variable) and terms.index(term) == place


def _matching(query: nodes.Atom, index: Index, constants: Constants) -> Tensor | None:
    """The rows that have the constants of a query, and equal keys for equal variables."""
    free = free_positions(query)
    if len(free) == len(query.terms):
        return None
    fits = torch.ones(index.rows, dtype=torch.bool)
    for place, term in enumerate(query.terms):
        if place in free:
            continue
        column = index.column(place)
        if isinstance(term, nodes.Variable):
            fits &= column == index.column(query.terms.index(term))
        else:
            fits &= column == constants.code(term)
    return fits.nonzero()[:, 0]


def _shape(prepared: BoundPlan, name: str, weights: Mapping[str, Tensor]) -> tuple[int, ...]:
    """The shape of an output's values by the rules alone; a scalar where they do not say."""
    plan = prepared.plan
    lines = {line.relation: line for line in plan.lines}
    known = {name: source.shape for name, source in prepared.sources.items()}
    shapes = Shapes(weights, plan.aggregation, lines, dict(known))
    for part in components(needs(plan.rules)):
        for relation in part:
            own = [rule for rule in plan.rules if rule.head.relation == relation]
            reads = needs(own, values_only=True)[relation]
            if not part & reads:
                shapes.learn(relation, dict.fromkeys(own))
    return shapes.known.get(name) or ()


def _places(
    relation: str, keys: Tensor, count: int, sizes: tuple[int, ...], constants: Constants
) -> tuple[Tensor | None, KeyOutOfRange | None]:
    """The places of `count` rows on the axes, and the error if one lies outside."""
    columns = list(keys.unbind(0))
    if not columns:
        return None if count else torch.zeros(0, dtype=torch.int64), None
    places = locate(Grid(sizes), columns)
    outside = (places < 0).nonzero()
    if outside.shape[0]:
        key = tuple(constants.constant(int(column[outside[0, 0]])) for column in columns)
        return None, KeyOutOfRange(
            f"`{relation}` is derived for {key}, outside its axes {sizes}",
            caller(),
            "give keys below the length of the dense inputs, or call `model.rows(...)`",
        )
    return (None if places.shape[0] == Grid(sizes).rows else places), None


Returned = Tensor | Relation | dict[str, Tensor | Relation]
