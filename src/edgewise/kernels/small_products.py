"""One to eight rows times matrices: time goes into reading the matrices, so each is read once.

Libraries for matrix products are made for many rows. For one to eight on a CPU, loops over the
rows of the matrix take about as long as reading it does, and the matrices that meet the same rows
share their start on other threads.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from edgewise.kernels.kernel_choices import no_numba
from edgewise.kernels.threads import together

MOST = 8  # rows; with more, blocks of both sides are worth their trouble
SMALL = 1 << 14  # numbers in matrices, below which starting costs more than computing
KINDS = (torch.float32, torch.float64)
CLASSES = (Tensor, torch.nn.Parameter)  # others have a meaning of their own


class Products:
    """Matrices (out, in), made ready to take rows (..., in) as `linear` of torch does."""

    def __init__(self, matrices: Sequence[Tensor]) -> None:
        self.matrices = tuple(matrices)
        self.refusal = _refuses(matrices)
        self._arrays = [] if self.refusal else [m.detach().numpy() for m in matrices]

    def __call__(self, x: Tensor) -> list[Tensor]:
        """The rows times each of the matrices."""
        if self.refuses(x) is not None:
            return [torch.nn.functional.linear(x, matrix) for matrix in self.matrices]
        from edgewise.kernels.edges.numba_loops import times_rows

        lead = x.shape[:-1]
        rows = x.detach().reshape(-1, x.shape[-1]).numpy()
        found = [x.new_empty(*lead, len(array)) for array in self._arrays]
        items = [
            (array, rows, out.numpy().reshape(len(rows), -1))
            for array, out in zip(self._arrays, found, strict=True)
        ]
        together(times_rows, items, [len(array) for array in self._arrays])
        return found

    def refuses(self, x: Tensor) -> str | None:
        """Why the loops do not take these rows, or None."""
        if self.refusal is not None:
            return self.refusal
        if torch.is_grad_enabled() and any(t.requires_grad for t in (x, *self.matrices)):
            return "gradients are required"
        if type(x) not in CLASSES:
            return f"the rows are a {type(x).__name__}"
        if torch._C._len_torch_dispatch_stack() or torch._C._functorch.peek_interpreter_stack():
            return "a transformation is under way"
        if torch.is_autocast_enabled("cpu"):
            return "autocast chooses the precision"
        if x.is_neg():
            return "the rows are a negated view"
        rows = x.shape[:-1].numel()
        if not 0 < rows <= MOST:
            return f"there are {rows} rows, not 1 to {MOST}"
        if x.dtype != self.matrices[0].dtype or x.device.type != "cpu":
            return "rows and matrices differ in precision or device"
        return None


def _refuses(matrices: Sequence[Tensor]) -> str | None:
    """Why the loops do not take these matrices, whatever the rows are."""
    for matrix in matrices:
        if type(matrix) not in CLASSES:
            return f"a matrix is a {type(matrix).__name__}"
        if matrix.dtype not in KINDS or matrix.dtype != matrices[0].dtype:
            return "it takes float32 or float64, the same in all matrices"
        if not matrix.is_contiguous() or matrix.is_neg():
            return "a matrix is not contiguous, or a negated view"
    if sum(m.numel() for m in matrices) < SMALL:
        return f"there are fewer than {SMALL} numbers in the matrices"
    return no_numba(matrices[0].device.type)
