"""What instructions are: one line of integers each, over rows and columns of one array of numbers.

A line has an op, rows and columns; start, step from row to row and from column to column of out, a,
b and c; and where its list begins among indices. A step of a schedule is the number of a line, and
the rows first ≤ i < last that it computes.

gather       out[i] = a[index[i]]        put           out[index[i]] = a[i]
gather_add   out[i] += a[index[i]]       scatter_...   out[index[i]] += a[i], or the extreme of both
product      out = a b, c the inner size dot_add       out[i] += Σ a[i] b[i]
sum, ...     of each row of a            multiply_add  out += a b
slope        out = a f'(b), or +=, where f has the number `index`; b is what `SLOPES` says of f

To add a function: its name in `UNARY`, with its slope, if it has one, in `SLOPES`; its values and
slopes in `numba_loops.py`, and its slope by torch in `torch_loops.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MOVES = ("gather", "gather_add", "put", "scatter_add", "scatter_max", "scatter_min")
PRODUCTS = ("product", "product_add", "dot_add")
AGGREGATIONS = ("sum", "largest", "smallest")
UNARY = (
    *("copy", "neg", "exp", "log", "sqrt", "reciprocal", "tanh", "sigmoid", "relu", "abs"),
    *("sign", "sin", "cos", "erf", "log1p", "logical_not"),
)
BINARY = (
    *("add", "sub", "mul", "div", "maximum", "minimum", "gt", "ge", "lt", "le", "eq", "ne"),
    *("pow", "logical_and", "logical_or"),
)
OTHERS = ("where", "multiply_add", "slope", "slope_add")
OPS = {
    name: at for at, name in enumerate((*MOVES, *PRODUCTS, *AGGREGATIONS, *UNARY, *BINARY, *OTHERS))
}
# functions with a gradient of their own: whether it is computed of f(x) or of x
SLOPES = {
    **dict.fromkeys(("tanh", "sigmoid", "relu", "exp", "sqrt"), "result"),
    **dict.fromkeys(("sin", "cos", "abs", "log"), "argument"),
}
WIDTH = 16  # of a line

Operand = tuple[int, int, int]  # start, step from row to row, from column to column
NONE: Operand = (0, 0, 0)


def line(name: str, size: tuple[int, ...], *operands: Operand, index: int = 0) -> list[int]:
    """A line over rows and columns; its operands are out, a, b and c, or the first of these."""
    rows, columns = size
    listed = (*operands, *[NONE] * (4 - len(operands)))
    return [OPS[name], rows, columns, *(part for each in listed for part in each), index]


def shifted(lines: Sequence[Sequence[int]], start: int, index: int) -> list[list[int]]:
    """Lines of another array that lies in this one from `start` on, with its indices after
    others."""
    slopes, moves = {OPS["slope"], OPS["slope_add"]}, {OPS[name] for name in MOVES}
    product = {OPS["product"], OPS["product_add"]}
    found = []
    for each in lines:
        moved = list(each)
        for at in (3, 6, 9, 12):
            if at < 12 or moved[0] not in product:
                moved[at] += start
        if moved[0] in moves and moved[0] not in slopes:
            moved[15] += index
        found.append(moved)
    return found


def computed_numbers(code: np.ndarray, steps: np.ndarray) -> int:
    """How many numbers steps compute: a matrix product counts its products."""
    lines = code[steps[:, 0]]
    count = (steps[:, 2] - steps[:, 1]) * lines[:, 2]
    products = np.isin(lines[:, 0], [OPS["product"], OPS["product_add"]])
    return int(np.where(products, count * lines[:, 12], count).sum())
