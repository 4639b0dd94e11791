"""The loops of CSR attention, compiled by numba when first used.

They release the lock and are run by plain threads on ranges of rows: no OpenMP, which a forked
process could not use, no atomics, and sums in one order whatever the number of threads.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"

import math

import numpy as np
from numba import njit

# Sums may be reordered so that they vectorise; infinities keep their meaning.
FAST = {"reassoc", "contract", "arcp", "nsz"}


@njit(nogil=True, cache=True, fastmath=FAST)
def forward(ptr, index, q, k, v, bias, keep, scale, out, lse, h, first, last):
    """Rows first ≤ i < last of head h: scores, their log-sum-exp, the weighted sum."""
    d, dv, group = q.shape[2], v.shape[2], q.shape[0] // k.shape[0]
    keys, values = k[h // group], v[h // group]
    most = 0
    for i in range(first, last):
        most = max(most, ptr[i + 1] - ptr[i])
    score = np.empty(most, q.dtype)
    for i in range(first, last):
        a, b = ptr[i], ptr[i + 1]
        top = -np.inf
        for e in range(a, b):
            j = index[e]
            s = q[h, i, 0] * 0
            for x in range(d):
                s += q[h, i, x] * keys[j, x]
            s *= scale
            if bias.shape[0]:
                s += bias[h, e]
            score[e - a] = s
            top = max(top, s)
        for x in range(dv):
            out[h, i, x] = 0
        if top == -np.inf:
            lse[h, i] = -np.inf
            continue
        total = q[h, i, 0] * 0
        for e in range(a, b):
            p = q.dtype.type(math.exp(score[e - a] - top))
            total += p
            if keep.shape[0]:
                p *= keep[h, e]
            j = index[e]
            for x in range(dv):
                out[h, i, x] += p * values[j, x]
        for x in range(dv):
            out[h, i, x] /= total
        lse[h, i] = top + math.log(total)


@njit(nogil=True, cache=True, fastmath=FAST)
def backward_rows(
    ptr, index, q, k, v, bias, keep, scale, lse, delta, dout, dq, p, ds, h, first, last
):
    """dq of rows first ≤ i < last of head h, and per edge the weight and the score's gradient."""
    d, dv, group = q.shape[2], v.shape[2], q.shape[0] // k.shape[0]
    keys, values = k[h // group], v[h // group]
    for i in range(first, last):
        for x in range(d):
            dq[h, i, x] = 0
        for e in range(ptr[i], ptr[i + 1]):
            j = index[e]
            s = q[h, i, 0] * 0
            for x in range(d):
                s += q[h, i, x] * keys[j, x]
            s *= scale
            if bias.shape[0]:
                s += bias[h, e]
            weight = q.dtype.type(math.exp(s - lse[h, i]))
            g = q[h, i, 0] * 0
            for x in range(dv):
                g += dout[h, i, x] * values[j, x]
            kept = weight
            if keep.shape[0]:
                kept *= keep[h, e]
            g = kept * g - weight * delta[h, i]
            p[h, e] = kept
            ds[h, e] = g
            g *= scale
            for x in range(d):
                dq[h, i, x] += g * keys[j, x]


@njit(nogil=True, cache=True, fastmath=FAST)
def backward_columns(ptr, row, edge, q, dout, p, ds, scale, dk, dv, b, first, last):
    """dk and dv of keys first ≤ j < last of key head b, summed over its query heads."""
    d, width, group = q.shape[2], dout.shape[2], q.shape[0] // dk.shape[0]
    for j in range(first, last):
        for x in range(d):
            dk[b, j, x] = 0
        for x in range(width):
            dv[b, j, x] = 0
        for h in range(b * group, (b + 1) * group):
            for c in range(ptr[j], ptr[j + 1]):
                i, e = row[c], edge[c]
                weight, g = p[h, e], ds[h, e] * scale
                for x in range(d):
                    dk[b, j, x] += g * q[h, i, x]
                for x in range(width):
                    dv[b, j, x] += weight * dout[h, i, x]
