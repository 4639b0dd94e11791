"""Shapes of values: `()` a scalar, `(n,)` a column, `(1, n)` a row, `(m, n)` a matrix."""

from __future__ import annotations

from edgewise.errors import EdgewiseError
from edgewise.language import nodes

Dimension = int | None  # None: any
Shape = tuple[Dimension, ...]


class ShapeMismatch(EdgewiseError):
    """Values meet by the rules of linear algebra.

    `product` and weights multiply matrices, so the columns of the left one are the rows of the
    right one. Everything elementwise takes equal shapes or a scalar.
    """

    code = "shape-mismatch"
    example = """\
Program([
    R.h(V.X) <= R.a(V.X)[64, 32],
    R.g(V.X) <= R.h(V.X)[64, 32],
]).check()"""
    instead = """\
Program([
    R.h(V.X) <= R.a(V.X)[64, 32],
    R.g(V.X) <= R.h(V.X)[32, 64],
]).check()"""


def plain(sizes: tuple[int, ...]) -> Shape:
    """n×1 is a column, 1×1 a scalar."""
    kept = sizes[:1] if len(sizes) == 2 and sizes[1] == 1 else sizes
    return () if kept == (1,) else kept


def of_weight(weight: nodes.Weight | None) -> Shape:
    """The shape that a declared weight, or the value of a fact, says."""
    if weight is None:
        return ()
    if weight.shape is not None:
        return plain(weight.shape)
    match weight.value:
        case nodes.Held(thing):
            return plain(tuple(thing.shape))
        case (tuple() as row, *_) as rows:
            return plain((len(rows), len(row)))
        case tuple() as column:
            return plain((len(column),))
    return ()


def show(shape: Shape) -> str:
    """A shape as people write it; `n` is any size."""
    if not shape:
        return "a scalar"
    sizes = ", ".join("n" if size is None else str(size) for size in shape)
    return f"({sizes},)" if len(shape) == 1 else f"({sizes})"
