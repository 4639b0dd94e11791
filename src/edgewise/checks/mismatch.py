"""Shapes that cannot meet, in words."""

from __future__ import annotations

from collections.abc import Sequence

from edgewise.checks import wording
from edgewise.errors import Caller, EdgewiseError, Place
from edgewise.functions.definition import ShapeMismatch
from edgewise.functions.dimensions import Shape, Shapes, common_rows, describe, elementwise, product
from edgewise.language import nodes
from edgewise.language.functions import argument, definition, shapes_of


def with_weight(item: nodes.Expression, weight: Shape, shapes: Shapes) -> EdgewiseError:
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
    step = f"give the weight {rows} columns: `[{out}, {rows}]`"
    if rows is None:
        step = "a weight is (out, in): its columns are the rows of what it multiplies"
    elif rows == out:
        step = f"did you mean `[{into}, {out}]`?"
    return ShapeMismatch(
        f"the weight of {what} is (out, in) = ({out}, {into}), but {what} {describe(shapes)}",
        place,
        step,
    )


def combined(
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
        return "give one of them a weight (out, in) that makes the sizes meet"
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


def transformed(
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
