"""The loops of CSR attention, compiled by numba when first used.

They release the lock and are run by plain threads on ranges of rows: no OpenMP, which a forked
process could not use, no atomics, and sums in one order whatever the number of threads.

All heads of a call are done together, edge by edge: where a row of keys holds several heads, it
is read once. Rows are as `kernels.flat` gives them: the numbers, where row 0 of the first head
begins, how far rows are apart and how far heads; without numbers if they are not given. The graph
is its pieces: piece p has the entries ptr[p] to ptr[p+1], all of row owner[p], and its result is
row place[p]; both are p where no row is cut.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-untyped"

import math

import numpy as np
from numba import njit

from edgewise.kernels.lanes import LANES
from edgewise.kernels.prefetch import AHEAD
from edgewise.kernels.vectors import (
    adds,
    at,
    dots,
    expect,
    exps,
    fill,
    largest,
    longest,
    put,
    span,
    times,
    up,
)


@njit(nogil=True, cache=True)
def forward(
    graph, q, k, v, bias, keep, factor, edge_key, edge_value, sizes, scale, out, lse, first, last
):
    """Pieces first ≤ p < last: scores, their log-sum-exp, the weighted sum."""
    ptr, owner, place, index = graph
    (q, q0, qi, qh), (k, k0, kj, kh), (v, v0, vj, vh) = q, k, v
    (bias, b0, be, bh), (keep, m0, me, mh), (factor, f0, fe, fh) = bias, keep, factor
    (edge_key, x0, xe, xh), (edge_value, y0, ye, yh) = edge_key, edge_value
    (out, o0, oi, oh), (lse, l0, li, lh) = out, lse
    heads, d, dv = sizes
    low, zero = q.dtype.type(-np.inf), q.dtype.type(0)
    most, end = longest(ptr, first, last), len(index) - 1
    (kw, ks), (vw, vs) = span(kh, d, heads), span(vh, dv, heads)
    score, extra = np.empty(most * heads, q.dtype), np.empty(heads, q.dtype)
    for p in range(first, last):
        i = owner[p] if len(owner) else p
        r = place[p] if len(place) else p
        a, b = ptr[p], ptr[p + 1]
        count = up(b - a)
        if count:
            fill(score, count - LANES, most, low, LANES, heads)
        for e in range(a, b):
            far, j = index[min(e + AHEAD, end)], index[e]
            expect(k, k0 + kj * far, kh, kw, ks)
            expect(v, v0 + vj * far, vh, vw, vs)
            dots(score, e - a, most, scale, q, q0 + qi * i, qh, k, k0 + kj * j, kh, d, heads)
            if len(edge_key):
                x = x0 + xe * e
                dots(extra, 0, 1, scale, q, q0 + qi * i, qh, edge_key, x, xh, d, heads)
                for h in range(heads):
                    score[most * h + e - a] += extra[h]
            if len(factor):
                for h in range(heads):
                    score[most * h + e - a] *= at(factor, f0 + fe * e + fh * h)
            if len(bias):
                for h in range(heads):
                    score[most * h + e - a] += at(bias, b0 + be * e + bh * h)
        for h in range(heads):
            top = largest(score, most * h, count)
            top = top if top > low else zero  # nothing is heard, or what is not a number
            total = exps(score, most * h, count, top)
            put(lse, l0 + li * r + lh * h, top + math.log(total) if total != 0 else low)
            extra[h] = 1 / total if total != 0 else zero
        if len(keep):
            for e in range(a, b):
                for h in range(heads):
                    score[most * h + e - a] *= at(keep, m0 + me * e + mh * h)
        o = o0 + oi * r
        fill(out, o, oh, zero, dv, heads)
        for e in range(a, b):
            adds(out, o, oh, score, e - a, most, v, v0 + vj * index[e], vh, dv, heads)
            if len(edge_value):
                adds(out, o, oh, score, e - a, most, edge_value, y0 + ye * e, yh, dv, heads)
        times(out, o, oh, extra, 0, 1, dv, heads)


@njit(nogil=True, cache=True)
def scores(graph, q, k, edge_key, sizes, scale, out, first, last):
    """The scaled dot product of each edge of pieces first ≤ p < last."""
    ptr, owner, _, index = graph
    (q, q0, qi, qh), (k, k0, kj, kh) = q, k
    (edge_key, x0, xe, xh), (out, o0, oe, oh) = edge_key, out
    heads, d, _ = sizes
    end, extra = len(index) - 1, np.empty(heads, q.dtype)
    for p in range(first, last):
        i = owner[p] if len(owner) else p
        for e in range(ptr[p], ptr[p + 1]):
            expect(k, k0 + kj * index[min(e + AHEAD, end)], kh, d, heads)
            o, j = o0 + oe * e, index[e]
            dots(out, o, oh, scale, q, q0 + qi * i, qh, k, k0 + kj * j, kh, d, heads)
            if len(edge_key):
                x = x0 + xe * e
                dots(extra, 0, 1, scale, q, q0 + qi * i, qh, edge_key, x, xh, d, heads)
                for h in range(heads):
                    put(out, o + oh * h, at(out, o + oh * h) + extra[h])


@njit(nogil=True, cache=True)
def backward_rows(
    graph, q, k, v, bias, keep, factor, edge_key, edge_value, sizes, scale, lse, out, dout,
    dq, dscore, dfactor, pairs, first, last,
):  # fmt: skip
    """dq of pieces first ≤ p < last; per edge the weight and the gradient of q·k, and those of the
    score and of its factor where there is room for them."""
    ptr, owner, place, index = graph
    (q, q0, qi, qh), (k, k0, kj, kh), (v, v0, vj, vh) = q, k, v
    (bias, b0, be, bh), (keep, m0, me, mh), (factor, f0, fe, fh) = bias, keep, factor
    (edge_key, x0, xe, xh), (edge_value, y0, ye, yh) = edge_key, edge_value
    (lse, l0, li, lh), (out, o0, oi, oh), (dout, g0, gi, gh) = lse, out, dout
    (dq, r0, ri, rh), (pairs, p0, pe, ph) = dq, pairs
    (dscore, s0, se, sh), (dfactor, u0, ue, uh) = dscore, dfactor
    heads, d, dv = sizes
    one, zero = q.dtype.type(1), q.dtype.type(0)
    most, end = longest(ptr, first, last), len(index) - 1
    (kw, ks), (vw, vs) = span(kh, d, heads), span(vh, dv, heads)
    score, plain = np.empty(most * heads, q.dtype), np.empty(most * heads, q.dtype)
    grad, extra = np.empty(most * heads, q.dtype), np.empty(heads, q.dtype)
    delta = np.empty(heads, q.dtype)
    for p in range(first, last):
        i = owner[p] if len(owner) else p
        r = place[p] if len(place) else p
        a, b = ptr[p], ptr[p + 1]
        count = up(b - a)
        if count:
            fill(score, count - LANES, most, zero, LANES, heads)
        for e in range(a, b):
            far, j = index[min(e + AHEAD, end)], index[e]
            expect(k, k0 + kj * far, kh, kw, ks)
            expect(v, v0 + vj * far, vh, vw, vs)
            dots(score, e - a, most, scale, q, q0 + qi * i, qh, k, k0 + kj * j, kh, d, heads)
            dots(grad, e - a, most, one, dout, g0 + gi * i, gh, v, v0 + vj * j, vh, dv, heads)
            if len(edge_key):
                x = x0 + xe * e
                dots(extra, 0, 1, scale, q, q0 + qi * i, qh, edge_key, x, xh, d, heads)
                for h in range(heads):
                    score[most * h + e - a] += extra[h]
            if len(edge_value):
                y = y0 + ye * e
                dots(extra, 0, 1, one, dout, g0 + gi * i, gh, edge_value, y, yh, dv, heads)
                for h in range(heads):
                    grad[most * h + e - a] += extra[h]
            if len(factor):
                for h in range(heads):
                    c = most * h + e - a
                    plain[c] = score[c]
                    score[c] *= at(factor, f0 + fe * e + fh * h)
            if len(bias):
                for h in range(heads):
                    score[most * h + e - a] += at(bias, b0 + be * e + bh * h)
        for h in range(heads):
            exps(score, most * h, count, at(lse, l0 + li * i + lh * h))
        fill(dq, r0 + ri * r, rh, zero, d, heads)
        dots(delta, 0, 1, one, dout, g0 + gi * i, gh, out, o0 + oi * i, oh, dv, heads)
        for e in range(a, b):
            for h in range(heads):
                c, to = most * h + e - a, p0 + pe * e + ph * h
                weight, g = at(score, c), at(grad, c)
                kept = weight
                if len(keep):
                    kept *= at(keep, m0 + me * e + mh * h)
                g = kept * g - weight * delta[h]
                if len(dscore):
                    put(dscore, s0 + se * e + sh * h, g)
                if len(factor):
                    put(dfactor, u0 + ue * e + uh * h, g * plain[c])
                    g *= at(factor, f0 + fe * e + fh * h)
                put(pairs, to, kept)
                put(pairs, to + 1, g * scale)
            to = p0 + pe * e + 1
            adds(dq, r0 + ri * r, rh, pairs, to, ph, k, k0 + kj * index[e], kh, d, heads)
            if len(edge_key):
                adds(dq, r0 + ri * r, rh, pairs, to, ph, edge_key, x0 + xe * e, xh, d, heads)


@njit(nogil=True, cache=True)
def pull_rows(graph, k, edge_key, sizes, pairs, dq, first, last):
    """dq of pieces first ≤ p < last, from the gradients of the products q·k."""
    ptr, _, place, index = graph
    (k, k0, kj, kh), (edge_key, x0, xe, xh) = k, edge_key
    (dq, r0, ri, rh), (pairs, p0, pe, ph) = dq, pairs
    heads, d, _ = sizes
    end = len(index) - 1
    for p in range(first, last):
        row = r0 + ri * (place[p] if len(place) else p)
        fill(dq, row, rh, k.dtype.type(0), d, heads)
        for e in range(ptr[p], ptr[p + 1]):
            expect(k, k0 + kj * index[min(e + AHEAD, end)], kh, d, heads)
            to = p0 + pe * e + 1
            adds(dq, row, rh, pairs, to, ph, k, k0 + kj * index[e], kh, d, heads)
            if len(edge_key):
                adds(dq, row, rh, pairs, to, ph, edge_key, x0 + xe * e, xh, d, heads)


@njit(nogil=True, cache=True)
def backward_columns(
    graph, edge, q, dout, sizes, pairs, dk, dv, dedge_key, dedge_value, first, last
):
    """dk and dv of pieces first ≤ p < last of keys, summed over the heads that share them; those
    of edge keys and values, which start at 0, where there is room for them."""
    ptr, _, place, row = graph
    (q, q0, qi, qh), (dout, g0, gi, gh), (pairs, p0, pe, ph) = q, dout, pairs
    (dk, k0, kj, kh), (dv, v0, vj, vh) = dk, dv
    (dedge_key, x0, xe, xh), (dedge_value, y0, ye, yh) = dedge_key, dedge_value
    heads, d, width = sizes
    end, zero = len(row) - 1, q.dtype.type(0)
    (qw, qs), (gw, gs) = span(qh, d, heads), span(gh, width, heads)
    for p in range(first, last):
        r = place[p] if len(place) else p
        keys, values = k0 + kj * r, v0 + vj * r
        fill(dk, keys, kh, zero, d, heads)
        fill(dv, values, vh, zero, width, heads)
        for c in range(ptr[p], ptr[p + 1]):
            far = min(c + AHEAD, end)
            expect(q, q0 + qi * row[far], qh, qw, qs)
            expect(dout, g0 + gi * row[far], gh, gw, gs)
            expect(pairs, p0 + pe * edge[far], 0, 2 * heads, 1)
            i, e = row[c], edge[c]
            to = p0 + pe * e
            adds(dk, keys, kh, pairs, to + 1, ph, q, q0 + qi * i, qh, d, heads)
            adds(dv, values, vh, pairs, to, ph, dout, g0 + gi * i, gh, width, heads)
            if len(dedge_key):
                to = x0 + xe * e
                adds(dedge_key, to, xh, pairs, p0 + pe * e + 1, ph, q, q0 + qi * i, qh, d, heads)
            if len(dedge_value):
                to = y0 + ye * e
                adds(
                    dedge_value, to, yh, pairs, p0 + pe * e, ph, dout, g0 + gi * i, gh, width, heads
                )
