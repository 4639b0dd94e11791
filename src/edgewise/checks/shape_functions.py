"""What every function does to shapes; no possibility is left where it cannot be applied."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from edgewise.checks.dimensions import (
    ANY,
    SCALAR,
    VECTOR,
    Dimension,
    Shape,
    Shapes,
    column,
    elementwise,
    matrix,
    numbers,
    product,
    union,
)
from edgewise.language import nodes
from edgewise.language.functions import argument

NOTHING: Shapes = frozenset()


def transform(function: nodes.Function, shapes: Shapes) -> Shapes:
    """The shapes after a transformation."""
    match function.name:
        case "transp":
            return union(_transposed(shape) for shape in shapes)
        case "slice":
            return union(_sliced(function, shape) for shape in shapes)
        case "reshape":
            return union(_reshaped(argument(function, "shape"), shape) for shape in shapes)
        case "call":
            return ANY if shapes else NOTHING
    return shapes


def _transposed(shape: Shape) -> Shapes:
    match shape:
        case (rows,):
            return frozenset({(1, rows)})
        case (rows, columns):
            return matrix(columns, rows)
    return frozenset({shape})


def _sliced(function: nodes.Function, shape: Shape) -> Shapes:
    rows, columns = argument(function, "rows"), argument(function, "cols")
    if (rows and not shape) or (columns and len(shape) < 2):
        return NOTHING
    height, width = (*shape, 1, 1)[:2]
    for wanted, size in ((rows, height), (columns, width)):
        if wanted and size is not None and wanted[1] > size:
            return NOTHING
    height = rows[1] - rows[0] if rows else height
    width = columns[1] - columns[0] if columns else width
    return matrix(height, width) if shape else frozenset({shape})


def _reshaped(sizes: tuple[int, ...], shape: Shape) -> Shapes:
    wanted, held = numbers(sizes), numbers(shape)
    if held is not None and held != wanted:
        return NOTHING
    rows, columns = (*sizes, 1, 1)[:2]
    return matrix(rows, columns)


def combine(function: nodes.Function, operands: Sequence[Shapes]) -> Shapes:
    """The shapes of a combination of several values."""
    match function.name:
        case "product":
            return reduce(product, operands)
        case "count":
            return SCALAR
        case "concat" if argument(function, "axis") == 0:
            return reduce(_stacked, operands)
        case "concat":
            return reduce(_flat_sum, operands, frozenset({(0,)}))
        case "crossum":
            return reduce(_pairs, operands, frozenset({(1,)}))
        case "cossim":
            return SCALAR if len(operands) == 2 and elementwise(operands) else NOTHING
        case "lookup":
            return _row(*operands) if len(operands) == 2 and () in operands[1] else NOTHING
        case "rotate":
            return _turned(*operands) if len(operands) == 3 else NOTHING
        case "softmax_comb" | "sparsemax_comb":
            scalars = all(() in shapes for shapes in operands)
            return column(len(operands)) if scalars else NOTHING
    return elementwise(operands)


def _stacked(above: Shapes, below: Shapes) -> Shapes:
    return union(_stack(a, b) for a in above for b in below)


def _stack(above: Shape, below: Shape) -> Shapes:
    upper, width = (*above, 1, 1)[:2]
    lower, other = (*below, 1, 1)[:2]
    if width is not None and other is not None and width != other:
        return NOTHING
    return matrix(_sum(upper, lower), other if width is None else width)


def _flat_sum(before: Shapes, after: Shapes) -> Shapes:
    return union(column(_sum(numbers(a), numbers(b))) for a in before for b in after)


def _pairs(before: Shapes, after: Shapes) -> Shapes:
    return union(column(_times(numbers(a), numbers(b))) for a in before for b in after)


def _row(tables: Shapes, numbers: Shapes) -> Shapes:
    """A row of a table is a column; a row of a column is a scalar."""
    return union(column((*shape, 1)[1]) for shape in tables if shape)


def _turned(vectors: Shapes, cosines: Shapes, sines: Shapes) -> Shapes:
    """A vector of d numbers, where cos and sin can be d/2."""
    angles = elementwise([cosines, sines])
    return union(_turn(shape[0], angle) for shape in vectors if len(shape) == 1 for angle in angles)


def _turn(size: Dimension, angle: Shape) -> Shapes:
    half = numbers(angle)
    fits = len(angle) < 2 and (size is None or (size % 2 == 0 and half in (None, size // 2)))
    whole = size if half is None else 2 * half
    return frozenset({(whole,)}) if fits else NOTHING


def _sum(a: Dimension, b: Dimension) -> Dimension:
    return None if a is None or b is None else a + b


def _times(a: Dimension, b: Dimension) -> Dimension:
    return None if a is None or b is None else a * b


def aggregate(function: nodes.Function, default: nodes.Function, shapes: Shapes) -> Shapes:
    """The shapes of the aggregated groundings of one head."""
    match function.name:
        case "count_agg":
            return SCALAR if shapes else NOTHING
        case "concat_agg":
            return VECTOR if shapes else NOTHING
        case "softmax_agg" | "sparsemax_agg" if argument(function, "agg_terms"):
            return aggregate(default, default, shapes)
        case "softmax_agg" | "sparsemax_agg":
            return VECTOR if () in shapes else NOTHING
    return shapes
