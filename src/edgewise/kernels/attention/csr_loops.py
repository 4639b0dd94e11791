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
    up,
)


@njit(nogil=True, cache=True)
def weigh(
    graph, q, k, bias, keep, factor, edge_key, sizes, scale, again, lse, weights, first, last
):
    """The weight of each entry of pieces first ≤ p < last, and the log-sum-exp of their scores.

    Weights that are computed `again` are so by columns, q and k in each other's places: the
    log-sum-exp is given, and each entry has that of its own row.
    """
    ptr, owner, place, index = graph
    (q, q0, qi, qh), (k, k0, kj, kh), (edge_key, x0, xe, xh) = q, k, edge_key
    (bias, b0, be, bh), (keep, m0, me, mh), (factor, f0, fe, fh) = bias, keep, factor
    (lse, l0, li, lh), (weights, w0, we, wh) = lse, weights
    heads, d, _ = sizes
    low, zero, one = lse.dtype.type(-np.inf), lse.dtype.type(0), lse.dtype.type(1)
    most, end = longest(ptr, first, last), len(index) - 1
    (kw, ks), (lw, ls) = span(kh, d, heads), span(lh, 1, heads)
    score, extra = np.empty(most * heads, lse.dtype), np.empty(heads, lse.dtype)
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
            dots(score, e - a, most, scale, q, q0 + qi * i, qh, k, k0 + kj * j, kh, d, heads)
            if again:
                expect(lse, l0 + li * far, lh, lw, ls)
                for h in range(heads):
                    x = most * h + e - a
                    put(score, x, at(score, x) - at(lse, l0 + li * j + lh * h))
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
            if again:
                exps(score, most * h, count, zero)
                extra[h] = one
            else:
                top = largest(score, most * h, count)
                top = top if top > low else zero  # nothing is heard, or what is not a number
                total = exps(score, most * h, count, top)
                put(lse, l0 + li * r + lh * h, top + math.log(total) if total != 0 else low)
                extra[h] = 1 / total if total != 0 else zero
        for e in range(a, b):
            for h in range(heads):
                weight = at(score, most * h + e - a) * extra[h]
                if len(keep):
                    weight *= at(keep, m0 + me * e + mh * h)
                put(weights, w0 + we * e + wh * h, weight)


@njit(nogil=True, cache=True)
def pull(graph, turn, x, per_edge, sizes, weights, out, first, last):
    """Of pieces first ≤ p < last the sum of the rows of x, and of edges, that entries read, each
    times its weight. The weight of entry c is the one at turn[c], or at c where there is no list.

    Rows of keys, values and queries are read in passes of their own: memory that is near holds
    one of them sooner than two.
    """
    ptr, _, place, index = graph
    (x, x0, xj, xh), (per_edge, y0, ye, yh) = x, per_edge
    (weights, w0, we, wh), (out, o0, oi, oh) = weights, out
    heads, width = sizes
    end, listed = len(index) - 1, len(turn) > 0
    (xw, xs), (ww, ws) = span(xh, width, heads), span(wh, 1, heads)
    for p in range(first, last):
        o = o0 + oi * (place[p] if len(place) else p)
        fill(out, o, oh, x.dtype.type(0), width, heads)
        for c in range(ptr[p], ptr[p + 1]):
            far = min(c + AHEAD, end)
            expect(x, x0 + xj * index[far], xh, xw, xs)
            if listed:
                expect(weights, w0 + we * turn[far], wh, ww, ws)
            w = w0 + we * (turn[c] if listed else c)
            adds(out, o, oh, weights, w, wh, x, x0 + xj * index[c], xh, width, heads)
            if len(per_edge):
                adds(out, o, oh, weights, w, wh, per_edge, y0 + ye * c, yh, width, heads)


@njit(nogil=True, cache=True)
def row_dots(sizes, a, b, out, first, last):
    """a·b of rows first ≤ i < last."""
    (a, a0, ai, ah), (b, b0, bi, bh), (out, o0, oi, oh) = a, b, out
    heads, width = sizes
    one = a.dtype.type(1)
    for i in range(first, last):
        dots(out, o0 + oi * i, oh, one, a, a0 + ai * i, ah, b, b0 + bi * i, bh, width, heads)


@njit(nogil=True, cache=True)
def push(graph, v, dout, delta, sizes, scale, weights, dv, first, last):
    """dv of pieces first ≤ p < last of values; of q·k the gradient in place of each weight."""
    ptr, owner, place, row = graph
    (v, v0, vj, vh), (dout, g0, gi, gh), (delta, t0, ti, th) = v, dout, delta
    (weights, w0, we, wh), (dv, s0, sj, sh) = weights, dv
    heads, _, width = sizes
    one, zero, end = v.dtype.type(1), v.dtype.type(0), len(row) - 1
    (gw, gs), (tw, ts) = span(gh, width, heads), span(th, 1, heads)
    grad = np.empty(heads, v.dtype)
    for p in range(first, last):
        value = v0 + vj * (owner[p] if len(owner) else p)
        to = s0 + sj * (place[p] if len(place) else p)
        fill(dv, to, sh, zero, width, heads)
        for c in range(ptr[p], ptr[p + 1]):
            far, i, w = row[min(c + AHEAD, end)], row[c], w0 + we * c
            expect(dout, g0 + gi * far, gh, gw, gs)
            expect(delta, t0 + ti * far, th, tw, ts)
            dots(grad, 0, 1, one, dout, g0 + gi * i, gh, v, value, vh, width, heads)
            adds(dv, to, sh, weights, w, wh, dout, g0 + gi * i, gh, width, heads)
            for h in range(heads):
                g = at(grad, h) - at(delta, t0 + ti * i + th * h)
                put(weights, w + wh * h, at(weights, w + wh * h) * g * scale)


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
