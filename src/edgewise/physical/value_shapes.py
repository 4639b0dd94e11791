"""The shape of values, found by running rules on meta tensors with one row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import EdgewiseError
from edgewise.functions import Law
from edgewise.functions.dimensions import ANY, SCALAR
from edgewise.ground.ground_rule import GroundRule
from edgewise.ground.index import Grid
from edgewise.ground.joins.body import Body
from edgewise.language import functions, nodes
from edgewise.language.statements import applied_functions, combination, weights
from edgewise.layouts.ragged import Segments
from edgewise.physical.functions import combine, transform
from edgewise.physical.lowering import Lowering
from edgewise.physical.lowering_state import Column, State, column, product
from edgewise.physical.rule import RuleStep

ONE = Segments(1, torch.zeros(1, dtype=torch.int64), 1)
Shape = tuple[int, ...]
MANY = 1 << 14  # shapes that are remembered


@dataclass
class Shapes:
    """Relation → shape of its values; None where it depends on the data."""

    weights: Mapping[str, Tensor]
    default: nodes.Function
    lines: Mapping[str, nodes.Line]
    known: dict[str, Shape | None] = field(default_factory=dict)
    found: dict[Any, Shape | None] = field(default_factory=dict)  # by all that it depends on

    def rule(self, rule: nodes.Rule, width: int | None = None) -> Shape | None:
        """The shape of the values a rule derives; `width` is the groundings of every head.

        It does not depend on how many rows there are, so it is the same for other lengths.
        """
        body = Body(rule, {})
        aggregation = self._aggregation(rule)
        found = functions.definition(aggregation)
        grouped = dict(aggregation.arguments).get("agg_terms")
        vector = Law.ORDER_FREE not in found and not grouped
        if vector and width is None:
            return None
        width = int(width) if vector and width is not None else None  # a shape has plain numbers
        read = tuple(
            self.known.get(a.relation)
            for a in body.literals
            if isinstance(a, nodes.Atom) and a.carries_value
        )
        if None in read:
            return None
        held = tuple(self.weights[str(weight.name)].shape for weight in weights(rule))
        key = (rule, width, read, held, self.default)
        if key not in self.found:
            shape = self._run(body, aggregation, width)
            if "call" in {f.name for f in (*rule.functions, *applied_functions(rule.body))}:
                return shape  # a module may have changed when it is called again
            if len(self.found) > MANY:
                self.found.clear()
            self.found[key] = shape
        return self.found[key]

    def _aggregation(self, rule: nodes.Rule) -> nodes.Function:
        own = (f for f in rule.functions if functions.kind(f) == functions.AGGREGATION)
        return next(own, self.default)

    def _run(self, body: Body, aggregation: nodes.Function, width: int | None) -> Shape | None:
        rule = body.rule
        rows: dict[int, Tensor | None] = {}
        numbers: dict[int, Tensor] = {}
        columns: dict[str, Column] = {}
        for at, literal in enumerate(body.literals):
            match literal:
                case nodes.Atom() if literal.carries_value:
                    shape = self.known[literal.relation]
                    assert shape is not None
                    columns[literal.relation] = _meta(shape)
                    rows[at] = None
                case nodes.SpecialAtom() if literal.carries_value:
                    numbers[at] = torch.empty(1, device="meta")
                case nodes.Weight():
                    rows[at] = None
        ground = GroundRule(body, 1, rows, numbers, Grid((1,)), ONE, None)
        plain = tuple(f for f in rule.functions if functions.kind(f) != functions.AGGREGATION)
        step = RuleStep(_bare(ground, plain), nodes.Function("sum_agg"))
        used = self._used(rule)
        for traced in (True, False):  # symbols have rules for shapes, meta tensors all functions
            state = _state(columns, used, traced)
            try:
                return self._aggregated(step, state, aggregation, width)
            except NotImplementedError:
                continue
            except (EdgewiseError, RuntimeError):
                return None
        return None

    def _aggregated(
        self, step: RuleStep, state: State, aggregation: nodes.Function, width: int | None
    ) -> Shape:
        """The shape after an aggregation that changes it: vectors of all groundings, counts."""
        head = step.rule.head.weight
        shapes = functions.shapes_of(aggregation, ANY)
        if width is None and shapes != SCALAR:
            return step(state).shape
        bare = replace(step.rule, head=replace(step.rule.head, weight=None))
        inner = RuleStep(replace(step.ground, body=Body(bare, {})), step.default)(state)
        size = math.prod(inner.shape) * (width or 1)
        found = column(torch.empty(1, 1, *((size,) if width else ()), device="meta"))
        if head is None:
            return found.shape
        tensor = state.weights[str(head.name)]
        weight = column(tensor.reshape(1, 1, *tensor.shape[len(head.keys) :]))
        return product(weight, found).shape

    def _used(self, rule: nodes.Rule) -> dict[str, Tensor]:
        """The weights of a rule without their numbers; of a family one member."""
        found = {}
        for weight in weights(rule):
            shape = self.weights[str(weight.name)].shape
            members = (1,) * len(weight.keys)
            found[str(weight.name)] = torch.empty((*members, *shape[len(members) :]), device="meta")
        return found

    def learn(self, relation: str, rules: Mapping[nodes.Rule, int | None]) -> None:
        """Record the shape of a relation from its rules (with their widths) and its line."""
        found = {self.rule(rule, width) for rule, width in rules.items()}
        if relation in self.known:
            found.add(self.known[relation])
        if None in found or not found:
            self.known[relation] = None
            return
        line = self.lines.get(relation)
        if line is None and len(found) == 1:
            (self.known[relation],) = found
            return
        listed = line.functions if line is not None else ()
        key = (listed, frozenset(found))
        if key not in self.found or "call" in {f.name for f in listed}:
            self.found[key] = _of_line(
                listed, [_meta(shape) for shape in found if shape is not None]
            )
        self.known[relation] = self.found[key]


def _of_line(listed: Sequence[nodes.Function], columns: Sequence[Column]) -> Shape | None:
    """The shape that functions of a line give of the values of rules."""
    named = {str(at): column for at, column in enumerate(columns)}
    columns = list(_state(named, {}, True).relations.values())
    try:
        value = combine(combination(listed), columns)
        for function in listed:
            if functions.kind(function) == functions.TRANSFORMATION:
                value = transform(function, value, False)
    except (EdgewiseError, RuntimeError):
        return None
    return value.shape


def _state(columns: dict[str, Column], weights: dict[str, Tensor], traced: bool) -> State:
    """What a rule reads, without numbers: symbols if `traced`, else meta tensors."""
    device = torch.device("meta")
    lowering = Lowering(device)
    if traced:
        columns = {n: Column(lowering.placeholder(n, c.data)) for n, c in columns.items()}
        weights = {n: lowering.placeholder(n, tensor) for n, tensor in weights.items()}
    return State(columns, weights, False, torch.float32, device, lowering)


def _meta(shape: Shape) -> Column:
    return Column(torch.empty(1, 1, *shape, device="meta"))


def _bare(ground: GroundRule, plain: tuple[nodes.Function, ...]) -> GroundRule:
    body = Body(replace(ground.rule, functions=plain), {})
    return replace(ground, body=body)
