"""Shapes of values: `()` a scalar, `(n,)` a column, `(1, n)` a row, `(m, n)` a matrix.

Before data is known a value has a set of possible shapes, and a dimension may be any: None.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from math import prod

from edgewise.errors import counted

Dimension = int | None
Shape = tuple[Dimension, ...]
Shapes = frozenset[Shape]

SCALAR: Shapes = frozenset({()})
VECTOR: Shapes = frozenset({(None,), ()})  # a vector of one number is a scalar
ANY: Shapes = frozenset({(), (None,), (None, None)})
MOST = 12  # possibilities; beyond, dimensions are unknown


def matrix(rows: Dimension, columns: Dimension) -> Shapes:
    """n×1 is a column, 1×1 a scalar.

    >>> sorted(matrix(3, 1)), sorted(matrix(1, 1)), sorted(matrix(3, 4))
    ([(3,)], [()], [(3, 4)])
    """
    if columns == 1:
        return {1: SCALAR, None: VECTOR}.get(rows, frozenset({(rows,)}))
    itself: Shapes = frozenset({(rows, columns)})
    return itself | matrix(rows, 1) if columns is None else itself


def column(rows: Dimension) -> Shapes:
    return matrix(rows, 1)


def union(several: Iterable[Shapes]) -> Shapes:
    """All possibilities, without those that a more general one covers."""
    together = frozenset().union(*several)
    if len(together) > MOST:
        return frozenset(tuple(None for _ in shape) for shape in together)
    return frozenset(a for a in together if not any(a != b and _covers(b, a) for b in together))


def _covers(general: Shape, shape: Shape) -> bool:
    return len(general) == len(shape) and all(
        g is None or g == s for g, s in zip(general, shape, strict=True)
    )


def product(left: Shapes, right: Shapes) -> Shapes:
    """The matrix product; a scalar scales.

    >>> sorted(product(frozenset({(64, 32)}), ANY))  # a column, or a matrix of any width
    [(64,), (64, None)]
    """
    return union(_times(a, b) for a in left for b in right)


def _times(left: Shape, right: Shape) -> Shapes:
    if not left or not right:
        return frozenset({left or right})
    rows, inner = (*left, 1)[:2]
    height, columns = (*right, 1)[:2]
    fits = inner is None or height is None or inner == height
    return matrix(rows, columns) if fits else frozenset()


def elementwise(values: Iterable[Shapes]) -> Shapes:
    """Equal shapes; scalars broadcast."""
    return reduce(lambda left, right: union(_broadcast(a, b) for a in left for b in right), values)


def _broadcast(left: Shape, right: Shape) -> Shapes:
    if not left or not right:
        return frozenset({left or right})
    if len(left) != len(right):
        return frozenset()
    pairs = list(zip(left, right, strict=True))
    if any(a is not None and b is not None and a != b for a, b in pairs):
        return frozenset()
    return frozenset({tuple(b if a is None else a for a, b in pairs)})


def numbers(shape: Shape) -> Dimension:
    """How many numbers a value holds."""
    known = [size for size in shape if size is not None]
    return prod(known) if len(known) == len(shape) else None


def show(shape: Shape) -> str:
    """A shape in words; `n` is any size.

    >>> show((64, None)), show((1, 3)), show((5,))
    ('a 64×n matrix', 'a row of 3', 'a column of 5')
    """
    match tuple("n" if size is None else size for size in shape):
        case ():
            return "a scalar"
        case (rows,):
            return f"a column of {rows}"
        case (1, columns):
            return f"a row of {columns}"
        case (rows, columns):
            return f"a {rows}×{columns} matrix"
    return str(shape)


def describe(shapes: Shapes) -> str:
    """What a value is, as much as its possibilities have in common.

    >>> describe(frozenset({(64,), (64, None)})), describe(frozenset({(3,)}))
    ('has 64 rows', 'is a column of 3')
    """
    rows = common_rows(shapes)
    if len(shapes) > 1 and rows is not None:
        return f"has {counted(rows, 'row')}"
    ordered = sorted(shapes, key=lambda shape: (len(shape), tuple(size or 0 for size in shape)))
    return f"is {' or '.join(map(show, ordered[:3]))}"


def common_rows(shapes: Shapes) -> int | None:
    found = {shape[0] if shape else None for shape in shapes}
    return found.pop() if len(found) == 1 else None
