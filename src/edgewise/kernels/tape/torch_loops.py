"""Lines of scans by functions of torch: for rows that are worth a call each, other precisions, and
without numba."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from edgewise.kernels.tape.instructions import OPS, SLOPES, UNARY
from edgewise.kernels.tape.writer import Code

aten = torch.ops.aten
NAMES = list(OPS)
# the derivative of a function times a gradient, of its result or its argument, as `SLOPES` says
SLOPE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "tanh": aten.tanh_backward,
    "sigmoid": aten.sigmoid_backward,
    "relu": lambda grad, y: aten.threshold_backward(grad, y, 0),
    "exp": torch.mul,
    "sqrt": lambda grad, y: grad / (2 * y),
    "sin": lambda grad, x: grad * x.cos(),
    "cos": lambda grad, x: -grad * x.sin(),
    "abs": lambda grad, x: grad * x.sgn(),
    "log": torch.div,
}
assert SLOPE.keys() == SLOPES.keys()


def run(code: Code, work: Tensor) -> None:
    lines, index = code.lines.tolist(), torch.from_numpy(code.index)
    for number, low, high in code.steps.tolist():
        line = lines[number]

        def view(at: int, line: list[int] = line, low: int = low, high: int = high) -> Tensor:
            start, row, column = line[at : at + 3]
            return work.as_strided((high - low, line[2]), (row, column), start + low * row)

        name = NAMES[line[0]]
        if name in ("gather", "gather_add", "scatter_add"):
            rows = index[line[15] + low : line[15] + high]
            _move(name, line, view, rows, work)
        elif name == "product_add":
            inner = line[12]
            left = work.as_strided((high - low, inner), (line[7], line[8]), line[6] + low * line[7])
            right = work.as_strided((inner, line[2]), (line[10], line[11]), line[9])
            view(3).addmm_(left, right)
        elif name == "dot_add":
            view(3)[:, 0].add_((view(6) * view(9)).sum(1))
        elif name in UNARY:
            view(3).copy_(getattr(torch, name)(view(6)))
        elif name == "multiply_add":
            view(3).addcmul_(view(6), view(9))
        elif name == "slope":
            view(3).copy_(SLOPE[NAMES[line[15]]](view(6), view(9)))
        elif name == "slope_add":
            view(3).add_(SLOPE[NAMES[line[15]]](view(6), view(9)))
        else:
            view(3).copy_(getattr(torch, name)(view(6), view(9)))


def _move(
    name: str, line: list[int], view: Callable[[int], Tensor], rows: Tensor, work: Tensor
) -> None:
    """Rows from or to those of a list; the other side has as many as the list names."""
    at = 3 if name == "scatter_add" else 6
    start, row, column = line[at : at + 3]
    size = (int(rows.max()) + 1, line[2]) if len(rows) else (0, line[2])
    listed = work.as_strided(size, (row, column), start)
    if name == "scatter_add":
        listed.index_add_(0, rows, view(6))
    elif name == "gather":
        view(3).copy_(listed.index_select(0, rows))
    else:
        view(3).add_(listed.index_select(0, rows))
