"""The loops of attention with a vector on each edge on a CPU, compiled by numba when first used.

Arrays are flat, with the heads of a row side by side, and empty where there is nothing; the graph
is as `SplitCSR.arrays` gives it. `sizes` are the heads, the features of keys, of vectors of edges
and of values, how far the heads of an edge's vector are apart, 0 where all share it, and how far
the vectors of two edges are.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-untyped"

import math

import numpy as np
from numba import njit

from edgewise.kernels.edges.numba_loops import is_dropped
from edgewise.kernels.lanes import LANES
from edgewise.kernels.vectors import (
    AHEAD,
    adds,
    at,
    dots,
    expect,
    exps,
    fill,
    largest,
    longest,
    put,
    up,
)


@njit(nogil=True, cache=True)
def scores(index, sizes, q, k, x, a, b, bias, first, last, i, most, score, extra):
    """Those of the edges first ≤ c < last of query i, padded with -∞."""
    heads, d, w, _, apart, step = sizes
    end, one, size = len(index) - 1, q.dtype.type(1), heads * d
    if last > first:
        fill(score, up(last - first) - LANES, most, q.dtype.type(-np.inf), LANES, heads)
    for c in range(first, last):
        at_, far = c - first, index[min(c + AHEAD, end)]
        expect(k, size * far, 0, size, 1)
        dots(score, at_, most, one, q, size * i, d, k, size * index[c], d, d, heads)
        if len(a):
            dots(extra, 0, 1, one, a, heads * w * i, w, x, step * c, apart, w, heads)
            for h in range(heads):
                score[at_ + most * h] += extra[h]
        if len(b):
            expect(b, heads * w * far, 0, heads * w, 1)
            dots(extra, 0, 1, one, b, heads * w * index[c], w, x, step * c, apart, w, heads)
            for h in range(heads):
                score[at_ + most * h] += extra[h]
        if len(bias):
            for h in range(heads):
                score[at_ + most * h] += bias[c * heads + h]


@njit(nogil=True, cache=True)
def forward(graph, sizes, drop, values, q, k, v, x, a, b, bias, out, lse, first, last):
    """The output and the log-sum-exp of pieces first ≤ p < last."""
    ptr, owner, place, index = graph
    heads, _, w, dv, apart, step = sizes
    seed, least, keep = drop
    width, size = heads * (dv + w * values), heads * dv
    low, zero = lse.dtype.type(-np.inf), lse.dtype.type(0)
    most, end = longest(ptr, first, last), len(index) - 1
    score, extra = np.empty(most * heads, lse.dtype), np.empty(heads, lse.dtype)
    for p in range(first, last):
        i = owner[p] if len(owner) else p
        r = place[p] if len(place) else p
        low_, high = ptr[p], ptr[p + 1]
        scores(index, sizes, q, k, x, a, b, bias, low_, high, i, most, score, extra)
        for h in range(heads):
            top = largest(score, most * h, up(high - low_))
            top = top if top > low else zero  # there is nothing, or NaN
            total = exps(score, most * h, up(high - low_), top)
            put(lse, r * heads + h, top + math.log(total) if total != 0 else low)
            extra[h] = 1 / total if total != 0 else zero
        fill(out, width * r, 0, zero, width, 1)
        for c in range(low_, high):
            at_ = c - low_
            expect(v, size * index[min(c + AHEAD, end)], 0, size, 1)
            for h in range(heads):
                part = extra[h]
                if keep > zero:
                    part *= zero if is_dropped(seed, least, h, i, index[c]) else keep
                score[most * h + at_] *= part
            adds(out, width * r, dv, score, at_, most, v, size * index[c], dv, dv, heads)
            if values:
                adds(out, width * r + size, w, score, at_, most, x, step * c, apart, w, heads)


@njit(nogil=True, cache=True)
def backward_rows(
    graph, sizes, drop, values, q, k, v, x, a, b, bias, out, lse, dout, dq, da, dx, used, ds,
    first, last,
):  # fmt: skip
    """dq and da of pieces first ≤ p < last, dx of their edges, and of each edge the weight that was
    `used` and the gradient `ds` of its score."""
    ptr, owner, place, index = graph
    heads, d, w, dv, apart, step = sizes
    width, size, most = heads * (dv + w * values), heads * dv, longest(ptr, first, last)
    zero, one, end = lse.dtype.type(0), lse.dtype.type(1), len(index) - 1
    score, extra = np.empty(most * heads, lse.dtype), np.empty(heads, lse.dtype)
    delta, grad = np.empty(heads, lse.dtype), np.empty(heads, lse.dtype)
    for p in range(first, last):
        i = owner[p] if len(owner) else p
        r = place[p] if len(place) else p
        low, high, g, row = ptr[p], ptr[p + 1], width * i, heads * w * i
        fill(dq, heads * d * r, 0, zero, heads * d, 1)
        fill(da, heads * w * r, 0, zero, heads * w if len(da) else 0, 1)
        deltas(delta, extra, out, dout, g, heads, dv, w * values)
        scores(index, sizes, q, k, x, a, b, bias, low, high, i, most, score, extra)
        for h in range(heads):
            exps(score, most * h, up(high - low), at(lse, i * heads + h))
        for c in range(low, high):
            e, mine, j = c * heads, step * c, index[c]
            expect(v, size * index[min(c + AHEAD, end)], 0, size, 1)
            dots(grad, 0, 1, one, dout, g, dv, v, size * j, dv, dv, heads)
            fill(dx, mine, 0, zero, step, 1)
            if values:
                dots(extra, 0, 1, one, dout, g + size, w, x, mine, apart, w, heads)
                for h in range(heads):
                    grad[h] += extra[h]
            weighed(score, c - low, most, drop, i, j, grad, delta, used, ds, e, heads)
            adds(dq, heads * d * r, d, ds, e, 1, k, heads * d * j, d, d, heads)
            if len(a):
                adds(da, heads * w * r, w, ds, e, 1, x, mine, apart, w, heads)
                adds(dx, mine, apart, ds, e, 1, a, row, w, w, heads)
            if len(b):
                adds(dx, mine, apart, ds, e, 1, b, heads * w * j, w, w, heads)
            if values:
                adds(dx, mine, apart, used, e, 1, dout, g + size, w, w, heads)


@njit(nogil=True, cache=True, inline="always")
def deltas(delta, extra, out, dout, row, heads, dv, w):
    """out·dout of each head."""
    one = out.dtype.type(1)
    dots(delta, 0, 1, one, dout, row, dv, out, row, dv, dv, heads)
    if w:
        row += heads * dv
        dots(extra, 0, 1, one, dout, row, w, out, row, w, w, heads)
        for h in range(heads):
            delta[h] += extra[h]


@njit(nogil=True, cache=True, inline="always")
def weighed(score, at_, most, drop, i, j, grad, delta, used, ds, e, heads):
    """The weight of an edge after dropout, and the gradient of its score, of each head."""
    seed, least, keep = drop
    zero = score.dtype.type(0)
    for h in range(heads):
        weight = at(score, most * h + at_)
        mine = weight
        if keep > zero:
            mine = zero if is_dropped(seed, least, h, i, j) else weight * keep
        put(used, e + h, mine)
        put(ds, e + h, mine * grad[h] - weight * delta[h])


@njit(nogil=True, cache=True)
def backward_columns(graph, edge, sizes, values, q, x, dout, used, ds, dk, db, dv, first, last):
    """dk, db and dv of pieces first ≤ p < last of keys; `edge` numbers their entries by rows."""
    ptr, _, place, index = graph
    heads, d, w, width, apart, step = sizes
    far, size = heads * (width + w * values), heads * width
    zero, end = q.dtype.type(0), len(index) - 1
    for p in range(first, last):
        r = place[p] if len(place) else p
        fill(dk, heads * d * r, 0, zero, heads * d, 1)
        fill(dv, size * r, 0, zero, size, 1)
        fill(db, heads * w * r, 0, zero, heads * w if len(db) else 0, 1)
        for c in range(ptr[p], ptr[p + 1]):
            later, i, e = min(c + AHEAD, end), index[c], heads * edge[c]
            expect(q, heads * d * index[later], 0, heads * d, 1)
            expect(dout, far * index[later], 0, size, 1)
            expect(ds, heads * edge[later], 0, heads, 1)
            expect(used, heads * edge[later], 0, heads, 1)
            adds(dk, heads * d * r, d, ds, e, 1, q, heads * d * i, d, d, heads)
            adds(dv, size * r, width, used, e, 1, dout, far * i, width, width, heads)
            if len(db):
                adds(db, heads * w * r, w, ds, e, 1, x, step * edge[c], apart, w, heads)
