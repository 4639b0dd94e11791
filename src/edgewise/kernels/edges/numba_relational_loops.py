"""The loops of attention with a vector on each edge on a CPU, compiled by numba when first used.

Arrays are flat, with the heads of a row side by side, and empty where there is nothing; the graph
is as `SplitCSR.arrays` gives it. `sizes` are the heads, the features of keys, of vectors of edges
and of values. `steps` says how far two rows are apart, and two heads, in q, k, v, x, a and b; the
heads of an edge's vector are 0 apart where all share it.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-untyped"

import math

import numpy as np
from numba import njit

from edgewise.kernels.edges.numba_weights import is_dropped
from edgewise.kernels.simd_lanes import LANES
from edgewise.kernels.simd_rows import (
    AHEAD,
    adds,
    at,
    dots,
    expect,
    exps,
    fill,
    largest,
    longest,
    mix,
    put,
    two_dots,
    up,
)


@njit(nogil=True, cache=True)
def scores(index, sizes, steps, q, k, x, a, b, bias, first, last, i, most, score, extra):
    """Those of the edges first ≤ c < last of query i, padded with -∞."""
    heads, d, w, _ = sizes
    qn, qh, kn, kh, _, _, xn, xh, an, ah, bn, bh = steps
    end, one, met = len(index) - 1, q.dtype.type(1), w if len(a) else 0
    if last > first:
        fill(score, up(last - first) - LANES, most, q.dtype.type(-np.inf), LANES, heads)
    for c in range(first, last):
        at_, j, far = c - first, index[c], index[min(c + AHEAD, end)]
        ask(k, kn * far, kh, d, heads)
        two_dots(
            score, at_, most, q, qn * i, qh, k, kn * j, kh, d, a, an * i, ah, x, xn * c, xh, met,
            heads,
        )  # fmt: skip
        if len(b):
            ask(b, bn * far, bh, w, heads)
            dots(extra, 0, 1, one, b, bn * j, bh, x, xn * c, xh, w, heads)
            for h in range(heads):
                score[at_ + most * h] += extra[h]
        if len(bias):
            for h in range(heads):
                score[at_ + most * h] += bias[c * heads + h]


@njit(nogil=True, cache=True, inline="always")
def ask(array, row, apart, width, heads):
    """Have the heads of a row brought into the cache, in one go where they are side by side."""
    if apart == width:
        expect(array, row, 0, width * heads, 1)
    else:
        expect(array, row, apart, width, heads)


@njit(nogil=True, cache=True)
def forward(graph, sizes, steps, drop, values, q, k, v, x, a, b, bias, out, lse, first, last):
    """The output and the log-sum-exp of pieces first ≤ p < last."""
    ptr, owner, place, index = graph
    heads, _, w, dv = sizes
    _, _, _, _, vn, vh, xn, xh, _, _, _, _ = steps
    seed, least, keep = drop
    width, size = heads * (dv + w * values), heads * dv
    low, zero = lse.dtype.type(-np.inf), lse.dtype.type(0)
    most, end = longest(ptr, first, last), len(index) - 1
    score, extra = np.empty(most * heads, lse.dtype), np.empty(heads, lse.dtype)
    for p in range(first, last):
        i = owner[p] if len(owner) else p
        r = place[p] if len(place) else p
        low_, high = ptr[p], ptr[p + 1]
        scores(index, sizes, steps, q, k, x, a, b, bias, low_, high, i, most, score, extra)
        for h in range(heads):
            top = largest(score, most * h, up(high - low_))
            top = top if top > low else zero  # there is nothing, or NaN
            total = exps(score, most * h, up(high - low_), top)
            put(lse, r * heads + h, top + math.log(total) if total != 0 else low)
            extra[h] = 1 / total if total != 0 else zero
        fill(out, width * r, 0, zero, width, 1)
        for c in range(low_, high):
            at_ = c - low_
            ask(v, vn * index[min(c + AHEAD, end)], vh, dv, heads)
            for h in range(heads):
                part = extra[h]
                if keep > zero:
                    part *= zero if is_dropped(seed, least, h, i, index[c]) else keep
                score[most * h + at_] *= part
            adds(out, width * r, dv, score, at_, most, v, vn * index[c], vh, dv, heads)
            if values:
                adds(out, width * r + size, w, score, at_, most, x, xn * c, xh, w, heads)


@njit(nogil=True, cache=True)
def backward_rows(
    graph, sizes, steps, drop, values, q, k, v, x, a, b, bias, out, lse, dout, dq, da, dx, used,
    ds, first, last,
):  # fmt: skip
    """dq and da of pieces first ≤ p < last, dx of their edges, and of each edge the weight that was
    `used` and the gradient `ds` of its score."""
    ptr, owner, place, index = graph
    heads, d, w, dv = sizes
    _, _, kn, kh, vn, vh, xn, xh, an, ah, bn, bh = steps
    width, size, most = heads * (dv + w * values), heads * dv, longest(ptr, first, last)
    zero, end = lse.dtype.type(0), len(index) - 1
    met, summed, own = w if len(a) else 0, w if values else 0, 1 if xh else heads
    score, extra = np.empty(most * heads, lse.dtype), np.empty(heads, lse.dtype)
    delta, grad = np.empty(heads, lse.dtype), np.empty(heads, lse.dtype)
    for p in range(first, last):
        i = owner[p] if len(owner) else p
        r = place[p] if len(place) else p
        low, high, g = ptr[p], ptr[p + 1], width * i
        gx = g + size
        fill(dq, heads * d * r, 0, zero, heads * d, 1)
        fill(da, heads * w * r, 0, zero, heads * met, 1)
        two_dots(delta, 0, 1, dout, g, dv, out, g, dv, dv, dout, gx, w, out, gx, w, summed, heads)
        scores(index, sizes, steps, q, k, x, a, b, bias, low, high, i, most, score, extra)
        for h in range(heads):
            exps(score, most * h, up(high - low), at(lse, i * heads + h))
        for c in range(low, high):
            e, mine, j = c * heads, xn * c, index[c]
            ask(v, vn * index[min(c + AHEAD, end)], vh, dv, heads)
            two_dots(
                grad, 0, 1, dout, g, dv, v, vn * j, vh, dv, dout, gx, w, x, mine, xh, summed, heads
            )
            weighed(score, c - low, most, drop, i, j, grad, delta, used, ds, e, heads)
            adds(dq, heads * d * r, d, ds, e, 1, k, kn * j, kh, d, heads)
            if met:
                adds(da, heads * w * r, w, ds, e, 1, x, mine, xh, w, heads)
            for h in range(0, heads, own):  # over all heads where these share a vector
                mix(
                    dx, mine + xh * h, ds, e + h, a, an * i + ah * h, ah, own if met else 0,
                    used, e + h, dout, gx + w * h, w, own if values else 0, w,
                )  # fmt: skip
            if len(b):
                adds(dx, mine, xh, ds, e, 1, b, bn * j, bh, w, heads)


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
def backward_columns(
    graph, edge, sizes, steps, values, q, x, dout, used, ds, dk, db, dv, first, last
):
    """dk, db and dv of pieces first ≤ p < last of keys; `edge` numbers their entries by rows."""
    ptr, _, place, index = graph
    heads, d, w, width = sizes
    qn, qh, _, _, _, _, xn, xh, _, _, _, _ = steps
    far, size = heads * (width + w * values), heads * width
    zero, end = q.dtype.type(0), len(index) - 1
    for p in range(first, last):
        r = place[p] if len(place) else p
        fill(dk, heads * d * r, 0, zero, heads * d, 1)
        fill(dv, size * r, 0, zero, size, 1)
        fill(db, heads * w * r, 0, zero, heads * w if len(db) else 0, 1)
        for c in range(ptr[p], ptr[p + 1]):
            later, i, e = min(c + AHEAD, end), index[c], heads * edge[c]
            ask(q, qn * index[later], qh, d, heads)
            expect(dout, far * index[later], 0, size, 1)
            expect(ds, heads * edge[later], 0, heads, 1)
            expect(used, heads * edge[later], 0, heads, 1)
            adds(dk, heads * d * r, d, ds, e, 1, q, qn * i, qh, d, heads)
            adds(dv, size * r, width, used, e, 1, dout, far * i, width, width, heads)
            if len(db):
                adds(db, heads * w * r, w, ds, e, 1, x, xn * edge[c], xh, w, heads)
