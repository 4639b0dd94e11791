"""The loops of CSR attention, compiled by numba when first used.

They release the lock and are run by plain threads on ranges of rows: no OpenMP, which a forked
process could not use, no atomics, and sums in one order whatever the number of threads.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-untyped"

import math

import numpy as np
from numba import njit

from edgewise.kernels.prefetch import AHEAD, FAST, LINE, ask_for, lost


@njit(nogil=True, cache=True, inline="always")
def ask_for_row(array, h, i):
    width = array.shape[2]
    for x in range(0, width, LINE // array.itemsize):
        ask_for(array, (h * array.shape[1] + i) * width + x)


@njit(nogil=True, cache=True, fastmath=FAST, inline="always")
def dot(q, keys, edge_key, h, kh, i, j, e):
    """q_i · (k_j + edge_key_ij); arrays of terms that are not given have no heads."""
    s = q.dtype.type(0)
    if edge_key.shape[0]:
        for x in range(q.shape[2]):
            s += q[h, i, x] * (keys[j, x] + edge_key[kh, e, x])
    else:
        for x in range(q.shape[2]):
            s += q[h, i, x] * keys[j, x]
    return s


@njit(nogil=True, cache=True, fastmath=FAST)
def dots(ptr, index, q, k, edge_key, scale, out, h, first, last):
    """The scaled dot product of each edge of rows first ≤ i < last of head h."""
    kh, end = h // (q.shape[0] // k.shape[0]), len(index) - 1
    for i in range(first, last):
        for e in range(ptr[i], ptr[i + 1]):
            ask_for_row(k, kh, index[min(e + AHEAD, end)])
            out[h, e] = scale * dot(q, k[kh], edge_key, h, kh, i, index[e], e)


@njit(nogil=True, cache=True, fastmath=FAST)
def forward(
    ptr, index, q, k, v, bias, keep, factor, edge_key, edge_value, scale, out, lse, h, first, last
):
    """Rows first ≤ i < last of head h: scores, their log-sum-exp, the weighted sum."""
    dv, group = v.shape[2], q.shape[0] // k.shape[0]
    kh = h // group
    keys, values = k[kh], v[kh]
    most, end = 0, len(index) - 1
    for i in range(first, last):
        most = max(most, ptr[i + 1] - ptr[i])
    score = np.empty(most, q.dtype)
    for i in range(first, last):
        a, b = ptr[i], ptr[i + 1]
        top = -np.inf
        for e in range(a, b):
            ask_for_row(k, kh, index[min(e + AHEAD, end)])
            ask_for_row(v, kh, index[min(e + AHEAD, end)])
            s = scale * dot(q, keys, edge_key, h, kh, i, index[e], e)
            if factor.shape[0]:
                s *= factor[h, e]
            if bias.shape[0]:
                s += bias[h, e]
            score[e - a] = s
            top = max(top, s)
        for x in range(dv):
            out[h, i, x] = 0
        if top == -np.inf and not lost(score[: b - a]):
            lse[h, i] = -np.inf
            continue
        total = q.dtype.type(0)
        for e in range(a, b):
            p = q.dtype.type(math.exp(score[e - a] - top))
            total += p
            if keep.shape[0]:
                p *= keep[h, e]
            j = index[e]
            for x in range(dv):
                out[h, i, x] += p * values[j, x]
            if edge_value.shape[0]:
                for x in range(dv):
                    out[h, i, x] += p * edge_value[kh, e, x]
        for x in range(dv):
            out[h, i, x] /= total
        lse[h, i] = top + math.log(total)


@njit(nogil=True, cache=True, fastmath=FAST)
def backward_rows(
    ptr, index, q, k, v, bias, keep, factor, edge_key, edge_value, scale, lse, delta, dout,
    dq, dscore, dfactor, pairs, h, first, last,
):  # fmt: skip
    """dq of rows first ≤ i < last of head h; per edge the weight and the dot product's gradient,
    and those of the score and of its factor where there is room for them."""
    d, dv, group = q.shape[2], v.shape[2], q.shape[0] // k.shape[0]
    kh = h // group
    keys, values = k[kh], v[kh]
    end = len(index) - 1
    for i in range(first, last):
        for x in range(d):
            dq[h, i, x] = 0
        for e in range(ptr[i], ptr[i + 1]):
            ask_for_row(k, kh, index[min(e + AHEAD, end)])
            ask_for_row(v, kh, index[min(e + AHEAD, end)])
            j = index[e]
            plain = scale * dot(q, keys, edge_key, h, kh, i, j, e)
            s = plain
            if factor.shape[0]:
                s *= factor[h, e]
            if bias.shape[0]:
                s += bias[h, e]
            weight = q.dtype.type(math.exp(s - lse[h, i]))
            g = q.dtype.type(0)
            for x in range(dv):
                g += dout[h, i, x] * values[j, x]
            if edge_value.shape[0]:
                for x in range(dv):
                    g += dout[h, i, x] * edge_value[kh, e, x]
            kept = weight
            if keep.shape[0]:
                kept *= keep[h, e]
            g = kept * g - weight * delta[h, i]
            if dscore.shape[0]:
                dscore[h, e] = g
            if factor.shape[0]:
                dfactor[h, e] = g * plain
                g *= factor[h, e]
            pairs[h, e, 0] = kept
            pairs[h, e, 1] = g
            g *= scale
            for x in range(d):
                dq[h, i, x] += g * keys[j, x]
            if edge_key.shape[0]:
                for x in range(d):
                    dq[h, i, x] += g * edge_key[kh, e, x]


@njit(nogil=True, cache=True, fastmath=FAST)
def pull_rows(ptr, index, k, edge_key, pairs, scale, dq, h, first, last):
    """dq of rows first ≤ i < last of head h, from the gradients of the dot products."""
    kh, end = h // (dq.shape[0] // k.shape[0]), len(index) - 1
    for i in range(first, last):
        for x in range(dq.shape[2]):
            dq[h, i, x] = 0
        for e in range(ptr[i], ptr[i + 1]):
            ask_for_row(k, kh, index[min(e + AHEAD, end)])
            j, g = index[e], pairs[h, e, 1] * scale
            for x in range(dq.shape[2]):
                dq[h, i, x] += g * k[kh, j, x]
            if edge_key.shape[0]:
                for x in range(dq.shape[2]):
                    dq[h, i, x] += g * edge_key[kh, e, x]


@njit(nogil=True, cache=True, fastmath=FAST)
def backward_columns(
    ptr, row, edge, q, dout, pairs, scale, dk, dv, dedge_key, dedge_value, b, first, last
):
    """dk and dv of keys first ≤ j < last of key head b, summed over its query heads; those of
    edge keys and values, which start at 0, where there is room for them."""
    d, width, group = q.shape[2], dout.shape[2], q.shape[0] // dk.shape[0]
    end = len(row) - 1
    for j in range(first, last):
        for x in range(d):
            dk[b, j, x] = 0
        for x in range(width):
            dv[b, j, x] = 0
        for h in range(b * group, (b + 1) * group):
            for c in range(ptr[j], ptr[j + 1]):
                far = min(c + AHEAD, end)
                ask_for_row(q, h, row[far])
                ask_for_row(dout, h, row[far])
                ask_for_row(pairs, h, edge[far])
                i, e = row[c], edge[c]
                weight, g = pairs[h, e, 0], pairs[h, e, 1] * scale
                for x in range(d):
                    dk[b, j, x] += g * q[h, i, x]
                for x in range(width):
                    dv[b, j, x] += weight * dout[h, i, x]
                if dedge_key.shape[0]:
                    for x in range(d):
                        dedge_key[b, e, x] += g * q[h, i, x]
                if dedge_value.shape[0]:
                    for x in range(width):
                        dedge_value[b, e, x] += weight * dout[h, i, x]
