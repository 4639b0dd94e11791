"""Which functions a value of some shape can take, and the shape they give."""

from functools import reduce
from math import prod

import torch

from edgewise import F
from edgewise.language.nodes import Function

Shape = tuple[int, ...]


def canonical(shape: Shape) -> Shape:
    """n×1 is a column, 1×1 a scalar."""
    if prod(shape) == 1:
        return ()
    return shape[:1] if len(shape) == 2 and shape[1] == 1 else shape


def product(left: Shape | None, right: Shape) -> Shape | None:
    """The shape of a matrix product, None if there is none."""
    if left is None or left == () or right == ():
        return None if left is None else left or right
    a, b = (*left, 1)[:2], (*right, 1)[:2]
    return canonical((a[0], b[1])) if a[1] == b[0] else None


def elementwise(shapes: list[Shape]) -> Shape | None:
    found = {shape for shape in shapes if shape}
    return None if len(found) > 1 else next(iter(found), ())


def combinations(shapes: list[Shape], plain: bool) -> list[tuple[Function, Shape]]:
    """Every combination these operands can take; `plain` operands are nonzero facts."""
    count = len(shapes)
    found = [(F.count, ()), (F.concat, canonical((sum(map(prod, shapes)),)))]
    same = elementwise(shapes)
    if same is not None:
        found += [(f, same) for f in (F.sum, F.sum, F.sum, F.avg, F.max, F.min, F.elproduct)]
    multiplied = reduce(product, shapes)
    if multiplied is not None:
        found += [(F.product, multiplied)] * 3
    if count > 1 and prod(map(prod, shapes)) <= 12:
        found.append((F.crossum, canonical((prod(map(prod, shapes)),))))
    if same == () and not any(shapes):
        found += [(f, canonical((count,))) for f in (F.softmax_comb, F.sparsemax_comb)]
    if count == 2 and plain and len(set(shapes)) == 1 and shapes[0]:
        found += [(F.cossim, ())] * 4
    widths = {(*shape, 1, 1)[1] for shape in shapes}
    if len(widths) == 1:
        height = sum((*shape, 1, 1)[0] for shape in shapes)
        found.append((F.concat(axis=0), canonical((height, *widths))))
    return found


SAFE = (  # finite, with finite gradients, wherever they are applied
    [F.relu],
    [F.leaky_relu],
    [F.leaky_relu(0.2)],
    [F.sigmoid],
    [F.tanh],
    [F.gelu],
    [F.gelu_tanh],
    [F.silu],
    [F.elu],
    [F.softplus],
    [F.softmax],
    [F.sparsemax],
    [F.tanh, F.exp],
    [F.softplus, F.log],
    [F.softplus, F.sqrt],
    [F.sigmoid, F.inverse],
    [F.reverse],
    [F.signum],
    [F.lukasiewicz],
    [F.tanh, F.square],
    [F.abs],
    [F.sin],
    [F.cos],
    [F.clamp(-0.7, 0.8)],
    [F.identity],
    [F.dropout(0.25)],
    [F.call(torch.tanh)],
)


def transformations(shape: Shape) -> list[tuple[list[Function], Shape]]:
    found = [(functions, shape) for functions in SAFE]
    if shape:
        flat = (prod(shape),)
        found += (
            [([F.norm(eps=0.1)], shape)] * 2
            + [([F.rms_norm(eps=0.1)], shape)]
            + [([F.reshape(flat)], flat)]
        )
        found.append(([F.transp], canonical((1, *shape) if len(shape) == 1 else shape[::-1])))
        if shape[0] > 1:
            part = (shape[0] - 1, *shape[1:])
            found.append(([F.slice(rows=(1, shape[0]))], canonical(part)))
        if len(shape) == 2:
            found.append(([F.slice(cols=(0, 1))], canonical((shape[0], 1))))
    return found


ELEMENTWISE_AGGREGATIONS = (
    F.sum_agg,
    F.sum_agg,
    F.avg_agg,
    F.max_agg,
    F.min_agg,
    F.std_agg,
    F.median_agg,
    F.lse_agg,
    F.topk_agg(2),
)


def aggregations(shape: Shape) -> list[tuple[Function, Shape | None]]:
    """Every aggregation without terms; None where the shape depends on the data."""
    found: list[tuple[Function, Shape | None]] = [(f, shape) for f in ELEMENTWISE_AGGREGATIONS]
    found += [(F.count_agg, ()), (F.concat_agg, None), (F.concat_agg, None)]
    return found if shape else [*found, (F.softmax_agg, None), (F.sparsemax_agg, None)]


def coerced(shape: Shape, target: Shape) -> tuple[list[Function], Shape | None]:
    """The transformations and the shape of a head weight that turn `shape` into `target`.

    The target is a scalar or a column.
    """
    if shape == target:
        return [], None
    rows = target[0] if target else 1
    if shape == ():
        return [], (rows,)
    flat = prod(shape)
    return ([F.reshape((flat,))] if len(shape) == 2 else []), (rows, flat)
