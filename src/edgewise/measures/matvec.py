"""Matrix–vector products without listing pairs: a progression is a difference of prefix sums."""

from functools import cached_property
from typing import Any

import numpy as np

from edgewise.layouts import Rows
from edgewise.layouts.ragged import Ints, owners


class MatVec:
    """x ↦ A·x in O(n + trapezoids), A the 0/1 matrix of the rows.

    With P[t] = x[t] + P[t - step] a progression sums to P[last] - P[first - step].

    >>> from edgewise.graphs import causal
    >>> MatVec(causal().rows(4))(np.array([1.0, 2.0, 3.0, 4.0])).tolist()
    [1.0, 3.0, 6.0, 10.0]
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.steps = np.unique(rows.step)

    @property
    def cost(self) -> int:
        """The number of elements that one product reads."""
        return len(self.steps) * self.rows.m + 2 * len(self.rows.expand().start)

    @cached_property
    def _ends(self) -> Any:
        """Of each row, +1 at the prefix sum of every last key and -1 before every first."""
        from scipy.sparse import csr_array

        wide = self.rows.expand()
        lengths = self.rows.m + self.steps
        place = np.searchsorted(self.steps, wide.step)
        base = (np.cumsum(lengths) - lengths)[place]
        last = base + wide.start + wide.size * wide.step
        column = np.stack([last, base + wide.start], axis=1).ravel()
        sign: Ints = np.tile(np.array([1, -1]), len(wide.start))
        shape = (self.rows.n, int(lengths.sum()))
        return csr_array((sign, (np.repeat(owners(wide.ptr), 2), column)), shape=shape)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        if not len(self.steps):
            return np.zeros(self.rows.n, x.dtype)
        return np.asarray(self._ends @ np.concatenate([_sums(x, int(s)) for s in self.steps]))


def _sums(x: np.ndarray, step: int) -> np.ndarray:
    """P, after `step` zeros."""
    turns = -(-len(x) // step)
    padded = np.zeros((turns + 1) * step, x.dtype)
    padded[step : step + len(x)] = x
    sums = np.cumsum(padded.reshape(turns + 1, step), axis=0).ravel()
    return np.asarray(sums[: len(x) + step])
