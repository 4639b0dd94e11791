"""The loops of scored attention on a CPU, compiled by numba when first used.

`kind` is the place in `contract.KINDS`. Sums are in one order whatever the number of threads.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-untyped"

import math

import numpy as np
from numba import njit

from edgewise.kernels.prefetch import AHEAD, FAST, LINE, ask_for, lost


@njit(nogil=True, cache=True, inline="always")
def ahead(array, h, row):
    width = array.shape[2]
    for x in range(0, width, LINE // array.itemsize):
        ask_for(array, (h * array.shape[1] + row) * width + x)


@njit(nogil=True, cache=True, fastmath=FAST, inline="always")
def score(kind, slope, q, k, t, h, i, j, e):
    s = q.dtype.type(0)
    if kind == 0:
        s = t[h, e, 0]
    elif kind == 1:
        z = q[h, i, 0] + k[h, j, 0]
        s = z if z > 0 else slope * z  # NaN stays so, which `max` drops
    elif kind == 2:
        for x in range(q.shape[2]):
            z = q[h, i, x] + k[h, j, x]
            s += t[h, 0, x] * (z if z > 0 else slope * z)
    else:
        for x in range(q.shape[2]):
            s += q[h, i, x] * k[h, j, x] * t[h, e, x]
    return s


@njit(nogil=True, cache=True, fastmath=FAST)
def forward(ptr, index, kind, slope, q, k, v, t, keep, out, lse, plus, share, h, first, last):
    """Rows first ≤ i < last of head h; of additive scores also the sums over those above 0."""
    dv, end, most = v.shape[2], len(index) - 1, 0
    for i in range(first, last):
        most = max(most, ptr[i + 1] - ptr[i])
    found = np.empty(most, v.dtype)
    for i in range(first, last):
        a, b = ptr[i], ptr[i + 1]
        top = v.dtype.type(-np.inf)
        for e in range(a, b):
            far = index[min(e + AHEAD, end)]
            ahead(v, h, far)
            if kind > 0:
                ahead(k, h, far)
            s = score(kind, slope, q, k, t, h, i, index[e], e)
            found[e - a] = s
            top = max(top, s)
        for x in range(dv):
            out[h, i, x] = 0
        if kind == 1:
            share[h, i] = 0
            for x in range(dv):
                plus[h, i, x] = 0
        if top == -np.inf and not lost(found[: b - a]):
            lse[h, i] = -np.inf
            continue
        total = v.dtype.type(0)
        for e in range(a, b):
            bare = v.dtype.type(math.exp(found[e - a] - top))
            p = bare
            total += bare
            if keep.shape[0]:
                p *= keep[h, e]
            j = index[e]
            if kind == 1 and q[h, i, 0] + k[h, j, 0] > 0:
                share[h, i] += bare
                for x in range(dv):
                    plus[h, i, x] += p * v[h, j, x]
            for x in range(dv):
                out[h, i, x] += p * v[h, j, x]
        one = v.dtype.type(1) / total
        for x in range(dv):
            out[h, i, x] *= one
        lse[h, i] = top + math.log(total)
        if kind == 1:
            share[h, i] *= one
            for x in range(dv):
                plus[h, i, x] *= one


@njit(nogil=True, cache=True, fastmath=FAST)
def backward_rows(
    ptr, index, kind, slope, q, k, v, t, keep, lse, delta, dout, dq, dt, pairs, h, first, last
):
    """dq of rows first ≤ i < last, dt, and of each edge the weight and the score's gradient.

    Of "of sums", dt is one row for each i, to be summed.
    """
    d, dv, end, one = q.shape[2], v.shape[2], len(index) - 1, v.dtype.type(1)
    for i in range(first, last):
        for x in range(d):
            dq[h, i, x] = 0
        if kind == 2:
            for x in range(d):
                dt[h, i, x] = 0
        for e in range(ptr[i], ptr[i + 1]):
            far = index[min(e + AHEAD, end)]
            ahead(v, h, far)
            if kind > 0:
                ahead(k, h, far)
            j = index[e]
            p = v.dtype.type(math.exp(score(kind, slope, q, k, t, h, i, j, e) - lse[h, i]))
            g = v.dtype.type(0)
            for x in range(dv):
                g += dout[h, i, x] * v[h, j, x]
            kept = p
            if keep.shape[0]:
                kept *= keep[h, e]
            ds = kept * g - p * delta[h, i]
            if kind == 0:
                dt[h, e, 0] = ds
            elif kind == 2:
                for x in range(d):
                    z = q[h, i, x] + k[h, j, x]
                    bend = one if z > 0 else slope
                    dq[h, i, x] += ds * t[h, 0, x] * bend
                    dt[h, i, x] += ds * z * bend
            else:
                for x in range(d):
                    dq[h, i, x] += ds * k[h, j, x] * t[h, e, x]
                    dt[h, e, x] = ds * q[h, i, x] * k[h, j, x]
            pairs[h, e, 0] = kept
            pairs[h, e, 1] = ds


@njit(nogil=True, cache=True, fastmath=FAST)
def backward_columns(ptr, row, edge, kind, slope, q, k, t, dout, pairs, dk, dv, h, first, last):
    """dk and dv of keys first ≤ j < last of head h."""
    d, width, end = q.shape[2], dout.shape[2], len(row) - 1
    one = dout.dtype.type(1)
    for j in range(first, last):
        for x in range(d):
            dk[h, j, x] = 0
        for x in range(width):
            dv[h, j, x] = 0
        for c in range(ptr[j], ptr[j + 1]):
            far = min(c + AHEAD, end)
            ahead(dout, h, row[far])
            ahead(pairs, h, edge[far])
            if kind > 1:
                ahead(q, h, row[far])
            i, e = row[c], edge[c]
            p, ds = pairs[h, e, 0], pairs[h, e, 1]
            if kind == 2:
                for x in range(d):
                    bend = one if q[h, i, x] + k[h, j, x] > 0 else slope
                    dk[h, j, x] += ds * t[h, 0, x] * bend
            elif kind == 3:
                for x in range(d):
                    dk[h, j, x] += ds * q[h, i, x] * t[h, e, x]
            for x in range(width):
                dv[h, j, x] += p * dout[h, i, x]


@njit(nogil=True, cache=True, fastmath=FAST)
def backward_additive(
    ptr, row, edge, slope, q, k, v, keep, lse, delta, dout, dk, dv, h, first, last
):
    """dk and dv of keys first ≤ j < last of head h, from nothing that edges keep."""
    width, end, one = dout.shape[2], len(row) - 1, dout.dtype.type(1)
    for j in range(first, last):
        found = dout.dtype.type(0)
        for x in range(width):
            dv[h, j, x] = 0
        for c in range(ptr[j], ptr[j + 1]):
            ahead(dout, h, row[min(c + AHEAD, end)])
            i = row[c]
            z = q[h, i, 0] + k[h, j, 0]
            bend = one if z > 0 else slope
            p = v.dtype.type(math.exp(z * bend - lse[h, i]))
            g = dout.dtype.type(0)
            for x in range(width):
                g += dout[h, i, x] * v[h, j, x]
            kept = p
            if keep.shape[0]:
                kept *= keep[h, edge[c]]
            found += (kept * g - p * delta[h, i]) * bend
            for x in range(width):
                dv[h, j, x] += kept * dout[h, i, x]
        dk[h, j, 0] = found
