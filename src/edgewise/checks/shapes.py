"""Value shapes through every weight and function.

Each relation has the set of shapes its values can have: from its facts, or from its rules, to a
fixed point. A relation that only data will give can have any. An operation for which no
combination of possibilities is left is an error, whatever the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from edgewise.checks import mismatch
from edgewise.checks.weight_names import of_weight
from edgewise.errors import EdgewiseError
from edgewise.functions import Law
from edgewise.functions.definition import ShapeMismatch
from edgewise.functions.dimensions import ANY, SCALAR, Shape, Shapes, product, union
from edgewise.language import Program, nodes
from edgewise.language.dependencies import components, needs
from edgewise.language.functions import (
    AGGREGATION,
    COMBINATION,
    TRANSFORMATION,
    argument,
    arguments,
    definition,
    kind,
    shapes_of,
)
from edgewise.language.statements import weights

__all__ = ["ShapeMismatch", "inferred", "mismatched_shapes"]

SUM = nodes.Function("sum")
NOTHING: Shapes = frozenset()


@dataclass
class Inference:
    """What is known of the shapes in a program; `errors` collects what cannot be."""

    weights: Mapping[str, Shape]
    aggregation: nodes.Function
    lines: Mapping[str, nodes.Line]
    relations: dict[str, Shapes] = field(default_factory=dict)
    errors: list[EdgewiseError] = field(default_factory=list)

    def weight(self, weight: nodes.Weight) -> Shapes:
        return frozenset({self.weights[weight.name] if weight.name else of_weight(weight)})

    def weighted(self, item: nodes.Expression, shapes: Shapes) -> Shapes:
        if item.weight is None or not shapes:
            return shapes
        weight = self.weight(item.weight)
        result = product(weight, shapes)
        if not result:
            self.errors.append(mismatch.with_weight(item, next(iter(weight)), shapes))
        return result

    def expression(self, item: nodes.Expression) -> Shapes:
        """The shapes of an item of a body; nothing if one of its relations has no value yet."""
        match item:
            case nodes.Weight():
                return self.weight(item)
            case nodes.Atom():
                return self.weighted(item, self.relations.get(item.relation, ANY))
            case nodes.Apply(function=function, operands=operands):
                if kind(function) == COMBINATION:
                    return self.weighted(item, self.combined(function, operands, item))
                before = self.expression(operands[0])
                return self.weighted(item, self.transformed(function, before, item))
        return self.weighted(item, SCALAR)

    def combined(
        self,
        function: nodes.Function,
        items: tuple[nodes.Expression, ...],
        place: nodes.Expression | nodes.Rule,
    ) -> Shapes:
        shapes = [self.expression(item) for item in items]
        if not all(shapes):
            return NOTHING
        result = shapes_of(function, shapes)
        if not result:
            self.errors.append(mismatch.combined(function, items, shapes, place))
        return result

    def transformed(
        self,
        function: nodes.Function,
        before: Shapes,
        place: nodes.Expression | nodes.Rule | nodes.Line,
    ) -> Shapes:
        result = shapes_of(function, before)
        if before and not result:
            self.errors.append(mismatch.transformed(function, before, place))
        return result

    def rule(self, rule: nodes.Rule) -> Shapes:
        """W_h · agg(f(comb(W·b, ...)))."""
        items = tuple(item for item in rule.body if item.carries_value)
        chosen = [f for f in rule.functions if kind(f) == COMBINATION]
        shapes = self.combined(chosen[0] if chosen else SUM, items, rule) if items else SCALAR
        for function in rule.functions:
            if kind(function) == TRANSFORMATION:
                shapes = self.transformed(function, shapes, rule)
        own = [f for f in rule.functions if kind(f) == AGGREGATION]
        aggregation = own[0] if own else self.aggregation
        before, shapes = shapes, self.aggregated(aggregation, shapes)
        if before and not shapes:
            self.errors.append(mismatch.transformed(aggregation, before, rule))
        return self.weighted(rule.head, shapes)

    def aggregated(self, function: nodes.Function, shapes: Shapes) -> Shapes:
        """Of the groundings of one head; shares of a group are aggregated by the default before."""
        if Law.NORMALISES in definition(function) and argument(function, "agg_terms"):
            function = self.aggregation
        return shapes_of(function, shapes)

    def line(self, relation: str, derived: list[Shapes]) -> Shapes:
        """What the relation's line makes of any of its rules together."""
        line = self.lines.get(relation)
        chosen = [f for f in line.functions if kind(f) == COMBINATION] if line else []
        combination = chosen[0] if chosen else SUM
        together = NOTHING  # the sum, product, ... of some of the rules so far
        for shapes in derived:
            if combination.name == "product":
                together = union((together, shapes, product(together, shapes)))
            else:
                together = union((together, shapes))
        if together:
            many = definition(combination).many
            together = together if many is None else many(**arguments(combination))
        if line is None:
            return together
        for function in line.functions:
            if kind(function) == TRANSFORMATION:
                together = self.transformed(function, together, line)
        return together


def mismatched_shapes(program: Program, facts: tuple[nodes.Atom, ...]) -> Iterator[EdgewiseError]:
    inference = inferred(program, facts)
    inference.errors.clear()  # while shapes were still being found
    for relation, rules in _by_head(program).items():
        inference.line(relation, [inference.rule(rule) for rule in rules])
    yield from inference.errors


def inferred(program: Program, facts: tuple[nodes.Atom, ...]) -> Inference:
    """The shapes of all relations."""
    named: dict[str, Shape] = {}
    for statement in program.flat:
        for weight in weights(statement):
            if weight.name is not None and weight.is_declared:
                named.setdefault(weight.name, of_weight(weight))
    found = Inference(named, program.aggregation, {line.relation: line for line in program.lines})
    found.relations.update(_of_facts(program, facts, named))
    rules = _by_head(program)
    for part in components(needs(program.rules, values_only=True)):
        for relation in part:
            found.relations.setdefault(relation, NOTHING)
        _settle(found, {relation: rules[relation] for relation in sorted(part)})
        for relation in part:
            if not facts and not found.relations[relation]:
                found.relations[relation] = ANY  # recursion that data will start
    return found


def _settle(found: Inference, rules: Mapping[str, list[nodes.Rule]]) -> None:
    """Apply the rules of relations that need each other until their shapes stay the same."""
    changed = True
    while changed:
        changed = False
        for relation, own in rules.items():
            before = found.relations[relation]
            derived = found.line(relation, [found.rule(rule) for rule in own])
            found.relations[relation] = union((before, derived))
            changed |= found.relations[relation] != before


def _by_head(program: Program) -> dict[str, list[nodes.Rule]]:
    rules: dict[str, list[nodes.Rule]] = {}
    for rule in program.rules:
        rules.setdefault(rule.head.relation, []).append(rule)
    return rules


def _of_facts(
    program: Program, facts: tuple[nodes.Atom, ...], named: Mapping[str, Shape]
) -> dict[str, Shapes]:
    stated = {(fact.atom.relation, fact.atom.terms): fact.atom for fact in program.facts}
    stated |= {(atom.relation, atom.terms): atom for atom in facts}  # data replaces
    shapes: dict[str, set[Shape]] = {}
    for atom in stated.values():
        shapes.setdefault(atom.relation, set()).add(_of_value(atom.weight, named))
    return {relation: union([frozenset(found)]) for relation, found in shapes.items()}


def _of_value(weight: nodes.Weight | None, named: Mapping[str, Shape]) -> Shape:
    if weight is None or weight.is_declared or weight.name is None:
        return of_weight(weight)
    return named[weight.name]
