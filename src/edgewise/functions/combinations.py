"""Combinations of the values of a rule's body."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import add, ge, gt, mul
from typing import TYPE_CHECKING, Any

from edgewise.functions import columns, values
from edgewise.functions.columns import broadcast, flat, shape_of, stack
from edgewise.functions.definition import (
    AXIS,
    COMBINATION,
    EPS,
    MOMENTUM,
    Definition,
    Law,
    OneRow,
    ShapeMismatch,
    no_such_row,
)
from edgewise.functions.dimensions import (
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
    show,
    union,
)
from edgewise.functions.values import of_stacked

if TYPE_CHECKING:
    from torch import Tensor

NOTHING: Shapes = frozenset()
PAIR = "two values of one shape", "write it over two atoms"
TABLE = "a table and a number", "write `F.lookup(W.table[rows, size], R.number(V.I))`"
ANGLES = (
    "a vector of d numbers and d/2 of cos and sin",
    "write `F.rotate(R.q(V.I), F.cos(R.angle(V.I)), F.sin(R.angle(V.I)))`",
)
AVERAGES = (
    "a value, and the mean and variance of its relation",
    "write `F.batch_norm(R.x(V.I), W.mean[8,].filled(0.0).fixed(), ...)`",
)
SCALARS = "scalars", "reduce the values to scalars first"


def _refuse(name: str, takes: tuple[str, str], shapes: Sequence[tuple[int, ...]]) -> None:
    got = ", ".join(map(show, shapes))
    raise ShapeMismatch(f"`{name}` takes {takes[0]}, got {got}", help=takes[1])


# concat


def _concat(items: Sequence[Tensor], axis: int) -> Tensor:
    import torch

    if axis == -1:
        return torch.cat([value.flatten() for value in items])
    rows = [v.reshape(1, 1) if v.ndim == 0 else v[:, None] if v.ndim == 1 else v for v in items]
    _check_widths([tuple(value.shape) for value in items])
    return torch.cat(rows)


def _concat_columns(items: Sequence[Tensor], axis: int) -> Tensor:
    import torch

    if axis == -1:
        return torch.cat(flat(items), -1)
    _check_widths([shape_of(item) for item in items])
    tall = [columns.unsqueezed(item, 2) for item in items]
    shape = torch.broadcast_shapes(*(t.shape[:2] for t in tall))
    return torch.cat([t.expand(*shape, *t.shape[2:]) for t in tall], 2)


def _check_widths(shapes: Sequence[tuple[int, ...]]) -> None:
    if len({(*shape, 1, 1)[1] for shape in shapes}) > 1:
        raise ShapeMismatch(
            f"cannot stack {', '.join(map(show, shapes))}", help="give them equal widths"
        )


def _concatenated(operands: Sequence[Shapes], axis: int) -> Shapes:
    if axis == 0:
        return reduce(lambda a, b: union(_stacked(x, y) for x in a for y in b), operands)
    lengths: Shapes = frozenset({(0,)})
    for shapes in operands:
        lengths = union(
            column(_known(add, numbers(a), numbers(b))) for a in lengths for b in shapes
        )
    return lengths


def _stacked(above: Shape, below: Shape) -> Shapes:
    upper, width = (*above, 1, 1)[:2]
    lower, other = (*below, 1, 1)[:2]
    if width is not None and other is not None and width != other:
        return NOTHING
    return matrix(_known(add, upper, lower), other if width is None else width)


def _known(function: Callable[[int, int], int], a: Dimension, b: Dimension) -> Dimension:
    return None if a is None or b is None else function(a, b)


# crossum


def _crossum(items: Sequence[Tensor]) -> Tensor:
    return reduce(lambda a, b: (a[:, None] + b).flatten(), [value.flatten() for value in items])


def _crossum_columns(items: Sequence[Tensor]) -> Tensor:
    return reduce(lambda a, b: (a.unsqueeze(-1) + b.unsqueeze(-2)).flatten(2), flat(items))


def _crossed(operands: Sequence[Shapes]) -> Shapes:
    lengths: Shapes = frozenset({(1,)})
    for shapes in operands:
        lengths = union(
            column(_known(mul, numbers(a), numbers(b))) for a in lengths for b in shapes
        )
    return lengths


# cossim


def _cossim(items: Sequence[Tensor]) -> Tensor:
    if len(items) != 2:
        _refuse("cossim", PAIR, [tuple(value.shape) for value in items])
    a, b = values.aligned(items).reshape(2, -1)
    return a @ b / (a.norm() * b.norm())


def _cossim_columns(items: Sequence[Tensor]) -> Tensor:
    if len(items) != 2:
        _refuse("cossim", PAIR, [shape_of(item) for item in items])
    a, b = flat(list(stack(items)))
    return (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))


# lookup


def _check_lookup(shapes: Sequence[tuple[int, ...]]) -> None:
    if len(shapes) != 2 or not shapes[0] or shapes[1]:
        _refuse("lookup", TABLE, shapes)


def _lookup(items: Sequence[Tensor]) -> Tensor:
    _check_lookup([tuple(value.shape) for value in items])
    table, number = items[0], float(items[1].detach())
    if not number.is_integer() or not 0 <= number < len(table):
        raise no_such_row(number, len(table))
    return table[int(number)]


def _lookup_columns(items: Sequence[Tensor], engine: Any) -> Tensor:
    import torch

    _check_lookup([shape_of(item) for item in items])
    table, number = items
    rows = engine.row_numbers(number, table.shape[2])
    if table.shape[:2] == (1, 1):
        one = table[0, 0]
        found = torch.nn.functional.embedding(rows, one if one.ndim == 2 else one.unsqueeze(-1))
        return found if one.ndim == 2 else found.squeeze(-1)
    shape = torch.broadcast_shapes(table.shape[:2], rows.shape)
    at = rows.expand(shape)[(..., *(None,) * (table.ndim - 2))]
    each = at.expand(*shape, 1, *table.shape[3:])
    return table.expand(*shape, *table.shape[2:]).gather(2, each).squeeze(2)


def _row(operands: Sequence[Shapes]) -> Shapes:
    """A row of a table is a column; a row of a column is a scalar."""
    if len(operands) != 2 or () not in operands[1]:
        return NOTHING
    return union(column((*shape, 1)[1]) for shape in operands[0] if shape)


# rotate


def _check_rotation(shapes: Sequence[tuple[int, ...]]) -> None:
    vector = bool(shapes) and len(shapes[0]) == 1 and shapes[0][0] % 2 == 0
    half = shapes[0][0] // 2 if vector else 0
    angle = () if half == 1 else (half,)  # a column of one number is a scalar
    if not vector or list(shapes[1:]) != [angle, angle]:
        _refuse("rotate", ANGLES, shapes)


def _rotate(items: Sequence[Tensor]) -> Tensor:
    import torch

    _check_rotation([tuple(value.shape) for value in items])
    x, cos, sin = items
    half = x.shape[0] // 2
    a, b = x[:half], x[half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin])


def _rotate_columns(items: Sequence[Tensor]) -> Tensor:
    import torch

    _check_rotation([shape_of(item) for item in items])
    x, *angles = items
    cos, sin = (c if c.ndim > 2 else c.unsqueeze(-1) for c in angles)
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def _rotated(operands: Sequence[Shapes]) -> Shapes:
    """A vector of d numbers, where cos and sin can be d/2."""
    if len(operands) != 3:
        return NOTHING
    angles = elementwise(operands[1:])
    return union(_turn(s[0], angle) for s in operands[0] if len(s) == 1 for angle in angles)


def _turn(size: Dimension, angle: Shape) -> Shapes:
    half = numbers(angle)
    fits = len(angle) < 2 and (size is None or (size % 2 == 0 and half in (None, size // 2)))
    return frozenset({(size if half is None else 2 * half,)}) if fits else NOTHING


# batch_norm


def _batch_norm(items: Sequence[Tensor], eps: float, momentum: float) -> Tensor:
    if len(items) != 3:
        _refuse("batch_norm", AVERAGES, [tuple(value.shape) for value in items])
    x, mean, variance = values.aligned(items)
    return (x - mean) / (variance + eps).sqrt()


def _batch_norm_columns(items: Sequence[Tensor], eps: float, momentum: float) -> Tensor:
    if len(items) != 3:
        _refuse("batch_norm", AVERAGES, [shape_of(item) for item in items])
    x, mean, variance = broadcast(items)
    return (x - mean) / (variance + eps).sqrt()


def _batch_norm_in_training(items: Sequence[Tensor], eps: float, momentum: float) -> Tensor:
    """By the mean and variance of all rows; the averages, which are weights, move towards them."""
    import torch

    x, mean, variance = items
    if x.shape[0] * x.shape[1] < 2:
        raise OneRow(
            "`batch_norm` has a single row: its variance is 0",
            help="give a batch with more rows, or call `model.eval()` to use the averages",
        )
    rows = x.reshape(x.shape[0] * x.shape[1], -1)
    averages = mean.reshape(-1), variance.reshape(-1)
    found = torch.nn.functional.batch_norm(
        rows, *averages, training=True, momentum=momentum, eps=eps
    )
    return found.reshape(x.shape)


# softmax_comb and sparsemax_comb


def _scalar_columns(items: Sequence[Tensor], name: str) -> Tensor:
    import torch

    if any(item.ndim > 2 for item in items):
        largest = max(items, key=lambda item: item.ndim)
        _refuse(name, SCALARS, [shape_of(largest)])
    return torch.cat(flat(items), -1)


def _vector(operands: Sequence[Shapes]) -> Shapes:
    scalars = all(() in shapes for shapes in operands)
    return column(len(operands)) if scalars else NOTHING


# greater and greater_equal


def _compared_values(name: str, compare: Callable[..., Any]) -> Callable[..., Tensor]:
    def value(items: Sequence[Tensor]) -> Tensor:
        a, b = values.scalars(items, name)
        return compare(a, b).to(a.dtype)

    return value


def _compared_columns(name: str, compare: Callable[..., Any]) -> Callable[..., Tensor]:
    def value(items: Sequence[Tensor]) -> Tensor:
        a, b = _scalar_columns(items, name).unbind(-1)
        return compare(a, b).to(a.dtype)

    return value


def _truth(operands: Sequence[Shapes]) -> Shapes:
    return SCALAR if len(operands) == 2 and all(() in s for s in operands) else NOTHING


def _score(function: Callable[..., Any]) -> Callable[..., Any]:
    """Of several scores, from a function of two."""
    return lambda s, *parts: reduce(lambda a, b: function(s, a, b), parts)


_combination = partial(Definition, COMBINATION)
_EACH = {Law.ELEMENTWISE, Law.ORDER_FREE, Law.KEEPS_ONE}
_EXTREME = {*_EACH, Law.MONOTONE, Law.ASSOCIATIVE, Law.IDEMPOTENT}

COMBINATIONS = (
    _combination(
        "sum", "the sum; scalars broadcast", of_stacked(lambda x: x.sum(0)),
        lambda items: reduce(add, broadcast(items)), elementwise,
        {*_EACH, Law.MONOTONE, Law.LINEAR, Law.ASSOCIATIVE}, score=_score(lambda s, a, b: a + b),
        counterpart="sum_agg", operator=("+", 1), aliases=("add",)),
    _combination(
        "product", "the matrix product, from left to right; a scalar scales",
        lambda items: reduce(values.product, items), lambda items: reduce(columns.product, items),
        lambda operands: reduce(product, operands),
        {Law.KEEPS_ONE, Law.ASSOCIATIVE, Law.DISTRIBUTES}, score=_score(lambda s, a, b: a * b),
        operator=("@", 2), aliases=("matmul", "prod")),
    _combination(
        "elproduct", "the product element by element", of_stacked(lambda x: x.prod(0)),
        lambda items: reduce(mul, broadcast(items)), elementwise,
        {*_EACH, Law.ASSOCIATIVE, Law.DISTRIBUTES}, score=_score(lambda s, a, b: a * b),
        operator=("*", 2), aliases=("mul",)),
    _combination(
        "avg", "the mean", of_stacked(lambda x: x.mean(0)),
        lambda items: reduce(add, broadcast(items)) / len(items), elementwise,
        {*_EACH, Law.MONOTONE, Law.LINEAR, Law.IDEMPOTENT},
        score=lambda s, *parts: reduce(add, parts) / len(parts),
        counterpart="avg_agg", aliases=("mean",)),
    _combination(
        "max", "the largest, element by element", of_stacked(lambda x: x.amax(0)),
        lambda items: stack(items).amax(0), elementwise, _EXTREME,
        score=_score(lambda s, a, b: s.maximum(a, b)), gradient="shared equally among ties",
        counterpart="max_agg"),
    _combination(
        "min", "the smallest, element by element", of_stacked(lambda x: x.amin(0)),
        lambda items: stack(items).amin(0), elementwise, _EXTREME,
        score=_score(lambda s, a, b: s.minimum(a, b)), gradient="shared equally among ties",
        counterpart="min_agg"),
    _combination(
        "count", "the number of values", lambda items: items[0].new_tensor(float(len(items))),
        lambda items: items[0].new_full((1, 1), len(items)), lambda operands: SCALAR,
        {Law.ORDER_FREE}, gradient="0", counterpart="count_agg", variadic=lambda: SCALAR),
    _combination(
        "crossum", "the sums of every number with every other, as a vector", _crossum,
        _crossum_columns, _crossed, {Law.ASSOCIATIVE}, variadic=lambda: VECTOR),
    _combination(
        "cossim", "the cosine of the angle between two values", _cossim, _cossim_columns,
        lambda operands: SCALAR if len(operands) == 2 and elementwise(operands) else NOTHING,
        {Law.ORDER_FREE}, takes=PAIR, arity=2, variadic=lambda: SCALAR),
    _combination(
        "softmax_comb", "the softmax of the scalars, as a vector; 0 where all are −∞",
        lambda items: values.softmax(values.scalars(items, "softmax_comb")),
        lambda items: columns.softmax(_scalar_columns(items, "softmax_comb"), -1), _vector,
        takes=SCALARS, counterpart="softmax_agg", variadic=lambda: VECTOR),
    _combination(
        "sparsemax_comb", "the sparsemax of the scalars, as a vector",
        lambda items: values.sparsemax(values.scalars(items, "sparsemax_comb")),
        lambda items: columns.sparsemax(_scalar_columns(items, "sparsemax_comb"), -1), _vector,
        takes=SCALARS, counterpart="sparsemax_agg", variadic=lambda: VECTOR),
    _combination(
        "greater", "1 where the first is greater than the second, else 0",
        _compared_values("greater", gt), _compared_columns("greater", gt), _truth,
        takes=SCALARS, arity=2, gradient="0", variadic=lambda: SCALAR),
    _combination(
        "greater_equal", "1 where the first is at least the second, else 0",
        _compared_values("greater_equal", ge), _compared_columns("greater_equal", ge), _truth,
        takes=SCALARS, arity=2, gradient="0", variadic=lambda: SCALAR),
    _combination(
        "lookup", "the row of a table that a number names", _lookup, _lookup_columns, _row,
        {Law.CHECKED}, takes=TABLE, arity=2, aliases=("embedding",), variadic=lambda: VECTOR),
    _combination(
        "rotate", "rotary positions: the pairs (x_c, x_{c+d/2}) turned by angles", _rotate,
        _rotate_columns, _rotated, takes=ANGLES, arity=3, aliases=("rope",),
        variadic=lambda: VECTOR),
    _combination(
        "batch_norm",
        "(x − mean) / √(variance + eps); in training by those of all rows",
        _batch_norm, _batch_norm_columns, lambda operands, **_: elementwise(operands), {Law.BATCH},
        (EPS, MOMENTUM), takes=AVERAGES, arity=3, in_training=_batch_norm_in_training,
        variadic=lambda eps, momentum: ANY),
    _combination(
        "concat", "all numbers as one vector, or rows on top of each other", _concat,
        _concat_columns, _concatenated, {Law.ASSOCIATIVE}, (AXIS,), counterpart="concat_agg",
        aliases=("cat",), variadic=lambda axis: ANY if axis == 0 else VECTOR),
)  # fmt: skip
