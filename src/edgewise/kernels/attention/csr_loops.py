"""The loops of CSR attention, compiled by numba when first used.

They release the lock and are run by plain threads on ranges of rows: no OpenMP, which a forked
process could not use, no atomics, and sums in one order whatever the number of threads.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-untyped"

import math

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.extending import intrinsic

# Sums may be reordered so that they vectorise; infinities keep their meaning.
FAST = {"reassoc", "contract", "arcp", "nsz"}
AHEAD = 8  # edges between asking for a row and using it
LINE = 64  # bytes that memory sends together


@intrinsic
def ask_for(typing, array, place):
    """Have element `place` of a contiguous array, counted flat, brought into the cache.

    Keys are read in random order, so most of the time of these loops was waiting for memory.
    """

    def generate(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
        i32 = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, i32, i32, i32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [pointer, i32(0), i32(3), i32(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@njit(nogil=True, cache=True, inline="always")
def ask_for_row(array, h, i):
    width = array.shape[2]
    for x in range(0, width, LINE // array.itemsize):
        ask_for(array, (h * array.shape[1] + i) * width + x)


@njit(nogil=True, cache=True, fastmath=FAST)
def forward(ptr, index, q, k, v, bias, keep, scale, out, lse, h, first, last):
    """Rows first ≤ i < last of head h: scores, their log-sum-exp, the weighted sum."""
    d, dv, group = q.shape[2], v.shape[2], q.shape[0] // k.shape[0]
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
    ptr, index, q, k, v, bias, keep, scale, lse, delta, dout, dq, pairs, h, first, last
):
    """dq of rows first ≤ i < last of head h, and per edge the weight and the score's gradient."""
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
            pairs[h, e, 0] = kept
            pairs[h, e, 1] = g
            g *= scale
            for x in range(d):
                dq[h, i, x] += g * keys[j, x]


@njit(nogil=True, cache=True, fastmath=FAST)
def backward_columns(ptr, row, edge, q, dout, pairs, scale, dk, dv, b, first, last):
    """dk and dv of keys first ≤ j < last of key head b, summed over its query heads."""
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
