"""Value shapes through every weight and function.

Each relation has the set of shapes its values can have: from its facts, or from its rules, to a
fixed point. A relation that only data will give can have any. An operation for which no
combination of possibilities is left is an error, whatever the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from edgewise.checks import wording
from edgewise.checks.weight_names import of_weight
from edgewise.errors import Caller, EdgewiseError, Place, counted
from edgewise.functions import Law
from edgewise.functions.definition import ShapeMismatch
from edgewise.functions.dimensions import (
    ANY,
    SCALAR,
    Shape,
    Shapes,
    common_rows,
    describe,
    elementwise,
    product,
    union,
)
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
            self.errors.append(weight_mismatch(item, next(iter(weight)), shapes))
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
            self.errors.append(combination_mismatch(function, items, shapes, place))
        return result

    def transformed(
        self,
        function: nodes.Function,
        before: Shapes,
        place: nodes.Expression | nodes.Rule | nodes.Line,
    ) -> Shapes:
        result = shapes_of(function, before)
        if before and not result:
            self.errors.append(transformation_mismatch(function, before, place))
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
            self.errors.append(transformation_mismatch(aggregation, before, rule))
        return self.weighted(rule.head, shapes)

    def aggregated(self, function: nodes.Function, shapes: Shapes) -> Shapes:
        """Of the groundings of one head; shares of a group are aggregated by the default before."""
        if Law.NORMALISES in definition(function) and argument(function, "agg_terms"):
            function = self.aggregation
        return shapes_of(function, shapes)

    def line(self, relation: str, derived: list[Shapes]) -> Shapes:
        """What the relation's line makes of any of its rules together."""
        line = self.lines.get(relation)
        chosen = [f for f in line.functions if kind(f) == COMBINATION] if line is not None else []
        combination = chosen[0] if chosen else SUM
        together = NOTHING  # the sum, product, ... of some of the rules so far
        for shapes in derived:
            if combination.name == "product":
                together = union((together, shapes, product(together, shapes)))
            else:
                together = union((together, shapes))
        if together:
            many = definition(combination).variadic
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
        _infer(found, {relation: rules[relation] for relation in sorted(part)})
        for relation in part:
            if not facts and not found.relations[relation]:
                found.relations[relation] = ANY  # recursion that data will start
    return found


def _infer(found: Inference, rules: Mapping[str, list[nodes.Rule]]) -> None:
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


def weight_mismatch(item: nodes.Expression, weight: Shape, shapes: Shapes) -> EdgewiseError:
    """`weight · item`, where the columns of the weight are not the rows of the item."""
    what = called(item, weighted=False)
    place = item.place
    rows = common_rows(shapes)
    if len(weight) == 1:
        return ShapeMismatch(
            f"the weight of {what} {describe(frozenset({weight}))}, but {what} {describe(shapes)}",
            place,
            "a weight multiplies from the left: write a matrix (out, in), or multiply element by "
            "element in the body, `R.a * W.w[...]`",
        )
    out, into = weight
    fitting = f"give {what} {counted(into, 'row')}"
    step = f"give the weight {counted(rows, 'column')}: `[{out}, {rows}]`; or {fitting}"
    if rows is None:
        step = "a weight is (out, in): its columns are the rows of what it multiplies"
    elif rows == out:
        step = f"did you mean `[{into}, {out}]`? Otherwise {fitting}"
    return ShapeMismatch(
        f"the weight of {what} is (out, in) = ({out}, {into}), but {what} {describe(shapes)}",
        place,
        step,
    )


def combination_mismatch(
    function: nodes.Function,
    items: Sequence[nodes.Expression],
    shapes: Sequence[Shapes],
    owner: nodes.Expression | nodes.Rule,
) -> EdgewiseError:
    """The first operand that fits none of those before it."""
    at = next(
        (n for n in range(2, len(items) + 1) if not shapes_of(function, shapes[:n])), len(items)
    )
    place = items[at - 1].place or owner.place
    name = wording.function(place, function.name)
    takes = definition(function).takes
    if takes is not None:
        found = " and ".join(
            f"{called(i)} {describe(s)}" for i, s in zip(items, shapes, strict=True)
        )
        what, help = takes
        return ShapeMismatch(f"`{name}` takes {what}, but {found}", place, help)
    which = _partner(function, shapes, at)
    left, right = shapes[which], shapes[at - 1]
    return ShapeMismatch(
        f"{called(items[which])} {describe(left)} and {called(items[at - 1])} "
        f"{describe(right)}: {_law(function, name)}",
        place,
        _step(function, left, right, place),
    )


def _partner(function: nodes.Function, shapes: Sequence[Shapes], at: int) -> int:
    """Which earlier operand the last one clashes with."""
    clashing = [n for n in range(at - 1) if not shapes_of(function, [shapes[n], shapes[at - 1]])]
    return clashing[-1] if clashing else at - 2


def _law(function: nodes.Function, name: str) -> str:
    if function.name == "product":
        return "a product needs as many columns on the left as rows on the right"
    if function.name == "concat":
        return f"`{name}` with `axis=0` stacks values of one width"
    return f"`{name}` takes equal shapes or a scalar"


def _step(function: nodes.Function, left: Shapes, right: Shapes, place: Place | None) -> str:
    python = isinstance(place, Caller)
    transposed_left, transposed_right = _transposed(left), _transposed(right)
    transpose = "`.T`" if python else "`transp`"
    if function.name == "product":
        if product(transposed_left, right):
            return f"transpose the left one with {transpose}"
        if product(left, transposed_right):
            return f"transpose the right one with {transpose}"
        return "give one of them a weight (out, in) that makes the sizes match"
    if elementwise([left, transposed_right]) and (1 in _flat(left) or 1 in _flat(right)):
        return f"transpose one of them with {transpose}"
    if {len(shape) for shape in left} != {len(shape) for shape in right}:
        multiply = wording.function(place, "product")
        return f"to multiply a matrix by a vector, use `{multiply}`; a sum needs equal shapes"
    return "give both a weight with the same number of rows (out)"


def _flat(shapes: Shapes) -> set[int | None]:
    return {size for shape in shapes for size in shape}


def _transposed(shapes: Shapes) -> Shapes:
    return frozenset(
        (1, *s) if len(s) == 1 else s[:0:-1] if s[:1] == (1,) else s[::-1] for s in shapes
    )


def transformation_mismatch(
    function: nodes.Function, before: Shapes, owner: nodes.Expression | nodes.Rule | nodes.Line
) -> EdgewiseError:
    """A transformation or an aggregation of a value that it cannot take."""
    place = function.place or owner.place
    name = wording.function(place, function.name)
    if function.name == "reshape":
        sizes = argument(function, "shape")
        return ShapeMismatch(
            f"`{name}` cannot give {sizes}: the value {describe(before)}",
            place,
            "give sizes whose product is the number of elements",
        )
    if function.name == "slice":
        rows, columns = argument(function, "rows"), argument(function, "cols")
        ranges = " and ".join(
            f"{what} {wanted[0]} to {wanted[1]}"
            for what, wanted in (("rows", rows), ("columns", columns))
            if wanted
        )
        return ShapeMismatch(
            f"`{name}` takes {ranges}, but the value {describe(before)}",
            place,
            "ranges are half-open and must lie inside: `rows=(0, 2)` takes the first two",
        )
    return ShapeMismatch(
        f"`{name}` without `agg_terms` takes scalars, but the value {describe(before)}",
        place,
        "name the variables of the rule head it runs over, as in `agg_terms=[V.J]`",
    )


def called(item: nodes.Expression, weighted: bool = True) -> str:
    """An item of a body in backticks."""
    match item:
        case nodes.Atom() | nodes.SpecialAtom():
            shown = f"`{wording.name(item)}`"
        case nodes.Apply(function=nodes.Function(name="transp"), operands=(nodes.Atom() as atom,)):
            shown = f"`{atom.relation}` transposed"
        case nodes.Apply():
            shown = f"`{item.function.name}` of {' and '.join(map(called, item.operands))}"
        case nodes.Weight(name=str()):
            return f"the weight `{item.name}`"
        case _:
            return "a weight"
    return f"{shown} with its weight" if weighted and item.weight is not None else shown
