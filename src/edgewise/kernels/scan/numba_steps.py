"""A loop over levels compiled by numba, once for all programs: it reads their instructions."""

# mypy: disable-error-code="untyped-decorator,import-untyped"

from __future__ import annotations

from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

import numpy as np
from torch import Tensor

from edgewise.kernels.scan import numba_loops
from edgewise.kernels.scan.program import Scan

Code = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
_CODE: WeakKeyDictionary[Scan, Code] = WeakKeyDictionary()


def _code(scan: Scan) -> Code:
    """The instructions as integers: op, then offset and width of out, a and b, then where their
    index and matrix begin; alpha and beta beside them; all indices one after another."""
    found = _CODE.get(scan)
    if found is not None:
        return found
    starts = np.cumsum([0, *map(len, scan.tables)])
    sizes = np.cumsum([0, *(a * b for a, b in scan.shapes)])
    lines, numbers = [], []
    for x in scan.instructions:
        line = [x.op]
        for at in (x.out, x.a, x.b):
            slot = scan.slots[at]
            line += [slot.offset, slot.width] if at >= 0 else [0, 0]
        line += [starts[x.index] if x.index >= 0 else 0, sizes[x.weight] if x.weight >= 0 else 0]
        lines.append(line)
        numbers.append((x.alpha, x.beta))
    index = np.concatenate([*scan.tables, np.zeros(0, np.int64)])
    made = (
        np.array(lines, np.int64),
        np.array(numbers, np.float64),
        index.astype(np.int64),
        *(x.astype(np.int64) for x in (scan.which, scan.first, scan.last)),
    )
    _CODE[scan] = made
    return made


def _loop(name: str) -> Callable[..., None]:
    found: Callable[..., None] = getattr(numba_loops, name)
    return found


def _flat(matrices: Sequence[Tensor], like: Tensor, turned: bool) -> np.ndarray:
    parts = [(m.detach().t() if turned else m.detach()).reshape(-1).numpy() for m in matrices]
    return np.concatenate(parts) if parts else np.zeros(0, like.numpy().dtype)


def forward(scan: Scan, work: Tensor, matrices: Sequence[Tensor]) -> None:
    code, numbers, *schedule = _code(scan)
    kind = work.numpy().dtype
    _loop("forward")(
        code, numbers.astype(kind), *schedule, _flat(matrices, work, True), work.numpy()
    )


def backward(scan: Scan, work: Tensor, grads: Tensor, matrices: Sequence[Tensor]) -> None:
    """Gradients of all slots: `grads` has those of results, and zeros."""
    code, numbers, *schedule = _code(scan)
    kind = work.numpy().dtype
    flat = _flat(matrices, work, False)
    _loop("backward")(code, numbers.astype(kind), *schedule, flat, work.numpy(), grads.numpy())
