"""Loops over segments and over rows of matrices on a CPU, compiled by numba when first used."""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-untyped"

import numpy as np
from numba import njit

from edgewise.kernels.vectors import FAST, ahead


@njit(nogil=True, cache=True, fastmath=FAST)
def edge_dots(graph, y, x, out, first, last):
    ptr, owner, _, rows = graph
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
def segment_extreme(graph, x, sign, out, ties, first, last):
    """The largest of sign · x of each piece; NaN stays so."""
    ptr, _, place, rows = graph
    d = x.shape[1]
    for p in range(first, last):
        r = place[p] if len(place) else p
        for c in range(d):
            out[r, c] = -np.inf
            ties[r, c] = 0
        for e in range(ptr[p], ptr[p + 1]):
            ahead(x, rows, e)
            for c in range(d):
                value = sign * x[rows[e], c]
                top = out[r, c]
                more = value > top or value != value
                ties[r, c] = 1 if more else ties[r, c] + (1 if value == top else 0)
                out[r, c] = value if more else top
        for c in range(d):
            out[r, c] *= sign


@njit(nogil=True, cache=True)
def equal_sum(graph, a, x, y, out, first, last):
    ptr, owner, place, rows = graph
    d = x.shape[1]
    for p in range(first, last):
        s = owner[p] if len(owner) else p
        r = place[p] if len(place) else p
        for c in range(d):
            out[r, c] = 0
        for e in range(ptr[p], ptr[p + 1]):
            ahead(x, rows, e)
            ahead(a, rows, e)
            for c in range(d):
                same = x[rows[e], c] == y[s, c]
                out[r, c] += a[rows[e], c] if same else 0


@njit(nogil=True, cache=True, fastmath=FAST)
def times_rows(matrix, rows, out, first, last):
    """Columns first ≤ i < last of rows · matrixᵀ: a row of the matrix is read once for all."""
    for i in range(first, last):
        for r in range(rows.shape[0]):
            total = rows.dtype.type(0)
            for x in range(rows.shape[1]):
                total += matrix[i, x] * rows[r, x]
            out[r, i] = total
