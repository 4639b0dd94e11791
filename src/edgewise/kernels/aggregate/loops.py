"""The loops of aggregation on a CPU, compiled by numba when first used."""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-untyped"

import numpy as np
from numba import njit

from edgewise.kernels.prefetch import FAST, ahead


@njit(nogil=True, cache=True, fastmath=FAST)
def dots(ptr, rows, owner, y, x, out, first, last):
    d = x.shape[1]
    for p in range(first, last):
        s = owner[p] if len(owner) else p
        for e in range(ptr[p], ptr[p + 1]):
            ahead(x, rows, e)
            found = x.dtype.type(0)
            for c in range(d):
                found += y[s, c] * x[rows[e], c]
            out[e] = found


@njit(nogil=True, cache=True)
def extreme(ptr, rows, owner, x, sign, out, ties, first, last):
    """The largest of sign · x of each piece; what is not a number stays so."""
    d = x.shape[1]
    for p in range(first, last):
        for c in range(d):
            out[p, c] = -np.inf
            ties[p, c] = 0
        for e in range(ptr[p], ptr[p + 1]):
            ahead(x, rows, e)
            for c in range(d):
                value = sign * x[rows[e], c]
                top = out[p, c]
                more = value > top or value != value
                ties[p, c] = 1 if more else ties[p, c] + (1 if value == top else 0)
                out[p, c] = value if more else top
        for c in range(d):
            out[p, c] *= sign


@njit(nogil=True, cache=True)
def equal_total(ptr, rows, owner, a, x, y, out, first, last):
    d = x.shape[1]
    for p in range(first, last):
        s = owner[p] if len(owner) else p
        for c in range(d):
            out[p, c] = 0
        for e in range(ptr[p], ptr[p + 1]):
            ahead(x, rows, e)
            ahead(a, rows, e)
            for c in range(d):
                same = x[rows[e], c] == y[s, c]
                out[p, c] += a[rows[e], c] if same else 0
