"""The loops of attention along edges on a CPU, compiled by numba when first used.

They release the lock and are run by plain threads on ranges of rows: no OpenMP, which a forked
process could not use, no atomics, and sums in one order whatever the number of threads.

All heads of a call are done together, edge by edge: where a row of keys holds several heads, it
is read once. Rows are as `kernels.flat` gives them: the numbers, where row 0 of the first head
begins, how far rows are apart and how far heads; without numbers where there are none. The graph
is as `SplitCSR.arrays` gives it: piece p has the entries ptr[p] to ptr[p+1], all of row owner[p],
and its result is row place[p]; both are p where no row is split. A list of places is empty where
they are in order.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-untyped"

import numpy as np
from numba import njit

from edgewise.kernels.edges.numba_weights import NUMBERS, is_dropped
from edgewise.kernels.edges.numba_weights import weigh as weigh
from edgewise.kernels.simd_rows import (
    AHEAD,
    FAST,
    add_leaky,
    add_slopes,
    adds,
    ahead,
    at,
    dots,
    expect,
    fill,
    put,
    span,
)


@njit(nogil=True, cache=True)
def push(graph, v, dout, delta, sizes, scale, weights, dv, dbias, first, last):
    """dv of pieces first ≤ p < last of values, and in place of each weight the gradient of q·k."""
    ptr, owner, place, row = graph
    (v, v0, vj, vh), (dout, g0, gi, gh), (delta, t0, ti, th) = v, dout, delta
    (weights, w0, we, wh), (dv, s0, sj, sh), (dbias, b0, be, bh) = weights, dv, dbias
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
                ds = at(weights, w + wh * h) * (at(grad, h) - at(delta, t0 + ti * i + th * h))
                if len(dbias):
                    put(dbias, b0 + be * c + bh * h, ds)
                put(weights, w + wh * h, ds * scale)


@njit(nogil=True, cache=True)
def push_terms(
    graph, edge, form, q, k, v, dout, delta, factor, edge_value, plain, drop, sizes, weights,
    dk, dv, dbias, dfactor, dvalue, first, last,
):  # fmt: skip
    """dv of pieces first ≤ p < last of values, and in place of each weight the gradient of what
    its score is made of: of q·k, or of q + k, whose sums are then dk. Those of the terms of edges
    go to the edges."""
    ptr, owner, place, row = graph
    kind, scale, slope, _ = form
    seed, least, keep = drop
    (q, q0, qi, qh), (k, k0, kj, kh), (v, v0, vj, vh) = q, k, v
    (dout, g0, gi, gh), (delta, t0, ti, th) = dout, delta
    (factor, f0, fe, fh), (edge_value, y0, ye, yh), (plain, p0, pe, ph) = factor, edge_value, plain
    (weights, w0, we, wh), (dk, r0, rj, rh), (dv, s0, sj, sh) = weights, dk, dv
    (dbias, b0, be, bh), (dfactor, u0, ue, uh), (dvalue, z0, ze, zh) = dbias, dfactor, dvalue
    heads, _, width = sizes
    one, zero, end = v.dtype.type(1), v.dtype.type(0), len(row) - 1
    (gw, gs), (tw, ts), (qw, qs) = span(gh, width, heads), span(th, 1, heads), span(qh, 1, heads)
    grad, used, extra = np.empty(heads, v.dtype), np.empty(heads, v.dtype), np.empty(heads, v.dtype)
    for p in range(first, last):
        j = owner[p] if len(owner) else p
        r = place[p] if len(place) else p
        value, to, key, into = v0 + vj * j, s0 + sj * r, k0 + kj * j, r0 + rj * r
        fill(dv, to, sh, zero, width, heads)
        if kind == NUMBERS:
            fill(dk, into, rh, zero, 1, heads)
        for c in range(ptr[p], ptr[p + 1]):
            far, i, w = row[min(c + AHEAD, end)], row[c], w0 + we * c
            expect(dout, g0 + gi * far, gh, gw, gs)
            expect(delta, t0 + ti * far, th, tw, ts)
            g = g0 + gi * i
            dots(grad, 0, 1, one, dout, g, gh, v, value, vh, width, heads)
            for h in range(heads):
                mine = at(weights, w + wh * h)
                if keep > zero:
                    mine = zero if is_dropped(seed, least, h, i, j) else mine * keep
                put(used, h, mine)
            adds(dv, to, sh, used, 0, 1, dout, g, gh, width, heads)
            if len(edge_value):
                e, later = edge[c], edge[min(c + AHEAD, end)]
                expect(edge_value, y0 + ye * later, yh, width, heads)
                expect(dvalue, z0 + ze * later, zh, width, heads)
                dots(extra, 0, 1, one, dout, g, gh, edge_value, y0 + ye * e, yh, width, heads)
                adds(dvalue, z0 + ze * e, zh, used, 0, 1, dout, g, gh, width, heads)
                for h in range(heads):
                    grad[h] += extra[h]
            if kind == NUMBERS:
                expect(q, q0 + qi * far, qh, qw, qs)
            for h in range(heads):
                ds = at(used, h) * at(grad, h)
                ds -= at(weights, w + wh * h) * at(delta, t0 + ti * i + th * h)
                if len(dbias):
                    put(dbias, b0 + be * c + bh * h, ds)
                if len(factor):
                    put(dfactor, u0 + ue * c + uh * h, ds * at(plain, p0 + pe * c + ph * h))
                    ds *= at(factor, f0 + fe * c + fh * h)
                if kind == NUMBERS:
                    z = at(q, q0 + qi * i + qh * h) + at(k, key + kh * h)
                    ds *= one if z > zero else slope
                    put(dk, into + rh * h, at(dk, into + rh * h) + ds)
                put(weights, w + wh * h, ds * scale)


@njit(nogil=True, cache=True)
def pull(graph, turn, edge, x, per_edge, sizes, weights, out, each, first, last):
    """Of pieces first ≤ p < last the sum of the rows of x, and of edges, that entries read, each
    times its weight, which is the one at `turn`; what goes to the sum goes to `each` edge, too.

    Rows of keys, values and queries are read in passes of their own: memory that is near holds
    one of them sooner than two.
    """
    ptr, _, place, index = graph
    (x, x0, xj, xh), (per_edge, y0, ye, yh) = x, per_edge
    (weights, w0, we, wh), (out, o0, oi, oh), (each, z0, ze, zh) = weights, out, each
    heads, width = sizes
    end, listed = len(index) - 1, len(turn) > 0
    (xw, xs), (ww, ws) = span(xh, width, heads), span(wh, 1, heads)
    for p in range(first, last):
        o = o0 + oi * (place[p] if len(place) else p)
        fill(out, o, oh, out.dtype.type(0), width, heads)
        for c in range(ptr[p], ptr[p + 1]):
            far = min(c + AHEAD, end)
            expect(x, x0 + xj * index[far], xh, xw, xs)
            if listed:
                expect(weights, w0 + we * turn[far], wh, ww, ws)
            w = w0 + we * (turn[c] if listed else c)
            adds(out, o, oh, weights, w, wh, x, x0 + xj * index[c], xh, width, heads)
        if len(per_edge):
            for c in range(ptr[p], ptr[p + 1]):
                e, w = edge[c] if len(edge) else c, w0 + we * (turn[c] if listed else c)
                adds(out, o, oh, weights, w, wh, per_edge, y0 + ye * e, yh, width, heads)
        if len(each):
            for c in range(ptr[p], ptr[p + 1]):
                w, to = w0 + we * (turn[c] if listed else c), z0 + ze * edge[c]
                expect(each, z0 + ze * edge[min(c + AHEAD, end)], zh, width, heads)
                adds(each, to, zh, weights, w, wh, x, x0 + xj * index[c], xh, width, heads)


@njit(nogil=True, cache=True)
def pull_slopes(graph, turn, slope, own, other, vector, sizes, weights, out, dvector, first, last):
    """Of pieces first ≤ p < last Σ weight · vector ⊙ f'(own + other), the gradients of additive
    scores; Σ weight · f(own + other), that of the vector, where there is memory for it."""
    ptr, owner, place, index = graph
    (own, q0, qi, qh), (other, k0, kj, kh), (vector, t0, _, th) = own, other, vector
    (weights, w0, we, wh), (out, o0, oi, oh), (dvector, u0, ui, uh) = weights, out, dvector
    heads, d = sizes
    end, listed, zero = len(index) - 1, len(turn) > 0, out.dtype.type(0)
    (kw, ks), (ww, ws) = span(kh, d, heads), span(wh, 1, heads)
    for p in range(first, last):
        i = owner[p] if len(owner) else p
        r = place[p] if len(place) else p
        q, o, u = q0 + qi * i, o0 + oi * r, u0 + ui * r
        fill(out, o, oh, zero, d, heads)
        if len(dvector):
            fill(dvector, u, uh, zero, d, heads)
        for c in range(ptr[p], ptr[p + 1]):
            far = min(c + AHEAD, end)
            expect(other, k0 + kj * index[far], kh, kw, ks)
            if listed:
                expect(weights, w0 + we * turn[far], wh, ww, ws)
            w, k = w0 + we * (turn[c] if listed else c), k0 + kj * index[c]
            rows = (own, q, qh, other, k, kh)
            add_slopes(out, o, oh, weights, w, wh, vector, t0, th, *rows, slope, d, heads)
            if len(dvector):
                add_leaky(dvector, u, uh, weights, w, wh, own, q, qh, other, k, kh, slope, d, heads)


@njit(nogil=True, cache=True)
def totals(graph, turn, heads, weights, out, first, last):
    """The sums of the weights of entries, of pieces first ≤ p < last."""
    ptr, _, place, _ = graph
    (weights, w0, we, wh), (out, o0, oi, oh) = weights, out
    end = len(turn) - 1
    ww, ws = span(wh, 1, heads)
    for p in range(first, last):
        o = o0 + oi * (place[p] if len(place) else p)
        fill(out, o, oh, out.dtype.type(0), 1, heads)
        for c in range(ptr[p], ptr[p + 1]):
            expect(weights, w0 + we * turn[min(c + AHEAD, end)], wh, ww, ws)
            for h in range(heads):
                added = at(weights, w0 + we * turn[c] + wh * h)
                put(out, o + oh * h, at(out, o + oh * h) + added)


@njit(nogil=True, cache=True)
def take(graph, order, heads, x, out, first, last):
    """The numbers x at `order`, of the entries of pieces first ≤ p < last."""
    ptr = graph[0]
    (x, x0, xe, xh), (out, o0, oe, oh) = x, out
    end = len(order) - 1
    xw, xs = span(xh, 1, heads)
    for c in range(ptr[first], ptr[last]):
        expect(x, x0 + xe * order[min(c + AHEAD, end)], xh, xw, xs)
        for h in range(heads):
            put(out, o0 + oe * c + oh * h, at(x, x0 + xe * order[c] + xh * h))


@njit(nogil=True, cache=True)
def row_dots(sizes, a, b, out, first, last):
    """a·b of rows first ≤ i < last."""
    (a, a0, ai, ah), (b, b0, bi, bh), (out, o0, oi, oh) = a, b, out
    heads, width = sizes
    one = a.dtype.type(1)
    for i in range(first, last):
        dots(out, o0 + oi * i, oh, one, a, a0 + ai * i, ah, b, b0 + bi * i, bh, width, heads)


@njit(nogil=True, cache=True)
def products(graph, q, k, edge_key, sizes, scale, out, first, last):
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
def segment_extreme(graph, x, sign, out, ties, first, last):
    """The largest of sign · x of each piece; NaN stays so."""
    ptr, _, place, rows = graph
    d, one, zero = x.shape[1], x.dtype.type(1), x.dtype.type(0)
    for p in range(first, last):
        r = place[p] if len(place) else p
        for c in range(d):
            out[r, c] = -np.inf
            ties[r, c] = 0
        for e in range(ptr[p], ptr[p + 1]):
            ahead(x, rows, e)
            read, best, count = x[rows[e]], out[r], ties[r]  # so that it vectorises
            for c in range(d):
                value, top = sign * read[c], best[c]
                more = (value > top) | (value != value)
                count[c] = one if more else count[c] + (one if value == top else zero)
                best[c] = value if more else top
        for c in range(d):
            out[r, c] *= sign


@njit(nogil=True, cache=True)
def equal_sum(graph, a, x, y, out, first, last):
    ptr, owner, place, rows = graph
    d, zero = x.shape[1], a.dtype.type(0)
    for p in range(first, last):
        s = owner[p] if len(owner) else p
        r = place[p] if len(place) else p
        for c in range(d):
            out[r, c] = 0
        for e in range(ptr[p], ptr[p + 1]):
            ahead(x, rows, e)
            ahead(a, rows, e)
            read, other, added, total = x[rows[e]], y[s], a[rows[e]], out[r]
            for c in range(d):
                total[c] += added[c] if read[c] == other[c] else zero


@njit(nogil=True, cache=True, fastmath=FAST)
def times_rows(matrix, rows, out, first, last):
    """Columns first ≤ i < last of rows · matrixᵀ: a row of the matrix is read once for all."""
    for i in range(first, last):
        for r in range(rows.shape[0]):
            total = rows.dtype.type(0)
            for x in range(rows.shape[1]):
                total += matrix[i, x] * rows[r, x]
            out[r, i] = total
