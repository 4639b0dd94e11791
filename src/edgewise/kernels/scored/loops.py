"""The loops of scored attention on a CPU, compiled by numba when first used.

`kind` is the place in `contract.KINDS`. Heads go together, rows are flat and the graph is in
pieces, as in `attention/csr_loops`. Sums are in one order whatever the number of threads.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-untyped"

import math

import numpy as np
from numba import njit

from edgewise.kernels.lanes import LANES
from edgewise.kernels.prefetch import AHEAD
from edgewise.kernels.vectors import (
    add_bends,
    add_bent,
    add_products,
    adds,
    at,
    bent_sums,
    dots,
    expect,
    exps,
    fill,
    largest,
    longest,
    products,
    put,
    span,
    times,
    up,
)


@njit(nogil=True, cache=True)
def forward(graph, kind, slope, q, k, v, t, keep, sizes, out, lse, first, last):
    """Pieces first ≤ p < last: scores, their log-sum-exp, the weighted sum."""
    ptr, owner, place, index = graph
    (q, q0, qi, qh), (k, k0, kj, kh), (v, v0, vj, vh) = q, k, v
    (t, t0, te, th), (keep, m0, me, mh) = t, keep
    (out, o0, oi, oh), (lse, l0, li, lh) = out, lse
    heads, d, dv = sizes
    low, zero, one = v.dtype.type(-np.inf), v.dtype.type(0), v.dtype.type(1)
    most, end = longest(ptr, first, last), len(index) - 1
    (kw, ks), (vw, vs) = span(kh, d, heads), span(vh, dv, heads)
    score, norm = np.empty(most * heads, v.dtype), np.empty(heads, v.dtype)
    for p in range(first, last):
        i = owner[p] if len(owner) else p
        r = place[p] if len(place) else p
        a, b = ptr[p], ptr[p + 1]
        count = up(b - a)
        if count:
            fill(score, count - LANES, most, low, LANES, heads)
        row = q0 + qi * i
        for e in range(a, b):
            far, j, c = index[min(e + AHEAD, end)], index[e], e - a
            expect(v, v0 + vj * far, vh, vw, vs)
            key = k0 + kj * j
            if kind == 0:
                for h in range(heads):
                    put(score, c + most * h, at(t, t0 + te * e + th * h))
                continue
            expect(k, k0 + kj * far, kh, kw, ks)
            if kind == 1:
                for h in range(heads):
                    z = at(q, row + qh * h) + at(k, key + kh * h)
                    put(score, c + most * h, z if z > zero else slope * z)
            elif kind == 2:
                bent_sums(score, c, most, slope, t, t0, th, q, row, qh, k, key, kh, d, heads)
            else:
                x = t0 + te * e
                products(score, c, most, one, t, x, th, q, row, qh, k, key, kh, d, heads)
        for h in range(heads):
            top = largest(score, most * h, count)
            top = top if top > low else zero  # nothing is heard, or what is not a number
            total = exps(score, most * h, count, top)
            put(lse, l0 + li * r + lh * h, top + math.log(total) if total != zero else low)
            norm[h] = one / total if total != zero else zero
        if len(keep):
            for e in range(a, b):
                for h in range(heads):
                    score[e - a + most * h] *= at(keep, m0 + me * e + mh * h)
        o = o0 + oi * r
        fill(out, o, oh, zero, dv, heads)
        for e in range(a, b):
            adds(out, o, oh, score, e - a, most, v, v0 + vj * index[e], vh, dv, heads)
        times(out, o, oh, norm, 0, 1, dv, heads)


@njit(nogil=True, cache=True)
def backward_rows(
    graph, kind, slope, q, k, v, t, keep, sizes, lse, out, dout, dq, dt, pairs, first, last
):
    """dq of pieces first ≤ p < last, dt, and of each edge the weight and the score's gradient.

    Of "of sums", dt is one row for each piece, to be summed.
    """
    ptr, owner, place, index = graph
    (q, q0, qi, qh), (k, k0, kj, kh), (v, v0, vj, vh) = q, k, v
    (t, t0, te, th), (keep, m0, me, mh) = t, keep
    (lse, l0, li, lh), (out, o0, oi, oh), (dout, g0, gi, gh) = lse, out, dout
    (dq, r0, ri, rh), (dt, u0, ue, uh), (pairs, p0, pe, ph) = dq, dt, pairs
    heads, d, dv = sizes
    zero, one = v.dtype.type(0), v.dtype.type(1)
    most, end = longest(ptr, first, last), len(index) - 1
    (kw, ks), (vw, vs) = span(kh, d, heads), span(vh, dv, heads)
    score, grad = np.empty(most * heads, v.dtype), np.empty(most * heads, v.dtype)
    delta = np.empty(heads, v.dtype)
    for p in range(first, last):
        i = owner[p] if len(owner) else p
        r = place[p] if len(place) else p
        a, b = ptr[p], ptr[p + 1]
        count = up(b - a)
        if count:
            fill(score, count - LANES, most, zero, LANES, heads)
        row, g = q0 + qi * i, g0 + gi * i
        for e in range(a, b):
            far, c = index[min(e + AHEAD, end)], e - a
            key, value = k0 + kj * index[e], v0 + vj * index[e]
            expect(v, v0 + vj * far, vh, vw, vs)
            dots(grad, c, most, one, dout, g, gh, v, value, vh, dv, heads)
            if kind == 0:
                for h in range(heads):
                    put(score, c + most * h, at(t, t0 + te * e + th * h))
                continue
            expect(k, k0 + kj * far, kh, kw, ks)
            if kind == 2:
                bent_sums(score, c, most, slope, t, t0, th, q, row, qh, k, key, kh, d, heads)
            else:
                x = t0 + te * e
                products(score, c, most, one, t, x, th, q, row, qh, k, key, kh, d, heads)
        for h in range(heads):
            exps(score, most * h, count, at(lse, l0 + li * i + lh * h))
        dots(delta, 0, 1, one, dout, g, gh, out, o0 + oi * i, oh, dv, heads)
        to = r0 + ri * r
        fill(dq, to, rh, zero, d, heads)
        if kind == 2:
            fill(dt, u0 + ue * r, uh, zero, d, heads)
        for e in range(a, b):
            key, x = k0 + kj * index[e], t0 + te * e
            pair = p0 + pe * e
            for h in range(heads):
                weight = at(score, e - a + most * h)
                kept = weight
                if len(keep):
                    kept *= at(keep, m0 + me * e + mh * h)
                ds = kept * at(grad, e - a + most * h) - weight * delta[h]
                put(pairs, pair + ph * h, kept)
                put(pairs, pair + ph * h + 1, ds)
                if kind == 0:
                    put(dt, u0 + ue * e + uh * h, ds)
            pair += 1
            if kind == 2:
                add_bends(
                    dq, to, rh, pairs, pair, ph, t, t0, th, q, row, qh, k, key, kh, slope, d, heads
                )
                of = u0 + ue * r
                add_bent(dt, of, uh, pairs, pair, ph, q, row, qh, k, key, kh, slope, d, heads)
            elif kind == 3:
                add_products(dq, to, rh, pairs, pair, ph, k, key, kh, t, x, th, d, heads)
                of = u0 + ue * e
                fill(dt, of, uh, zero, d, heads)
                add_products(dt, of, uh, pairs, pair, ph, q, row, qh, k, key, kh, d, heads)


@njit(nogil=True, cache=True)
def backward_columns(graph, edge, kind, slope, q, k, t, sizes, dout, pairs, dk, dv, first, last):
    """dk and dv of pieces first ≤ p < last of keys."""
    ptr, owner, place, row = graph
    (q, q0, qi, qh), (k, k0, kj, kh), (t, t0, te, th) = q, k, t
    (dout, g0, gi, gh), (pairs, p0, pe, ph) = dout, pairs
    (dk, r0, rj, rh), (dv, s0, sj, sh) = dk, dv
    heads, d, width = sizes
    end, zero = len(row) - 1, dout.dtype.type(0)
    (qw, qs), (gw, gs) = span(qh, d, heads), span(gh, width, heads)
    for p in range(first, last):
        j = owner[p] if len(owner) else p
        r = place[p] if len(place) else p
        key, to, values = k0 + kj * j, r0 + rj * r, s0 + sj * r
        fill(dk, to, rh, zero, d, heads)
        fill(dv, values, sh, zero, width, heads)
        for c in range(ptr[p], ptr[p + 1]):
            far = min(c + AHEAD, end)
            expect(dout, g0 + gi * row[far], gh, gw, gs)
            expect(pairs, p0 + pe * edge[far], 0, 2 * heads, 1)
            i, pair = row[c], p0 + pe * edge[c]
            adds(dv, values, sh, pairs, pair, ph, dout, g0 + gi * i, gh, width, heads)
            if kind == 0:
                continue
            expect(q, q0 + qi * row[far], qh, qw, qs)
            here, pair = q0 + qi * i, pair + 1
            if kind == 2:
                add_bends(
                    dk, to, rh, pairs, pair, ph, t, t0, th, q, here, qh, k, key, kh, slope, d, heads
                )
            else:
                x = t0 + te * edge[c]
                add_products(dk, to, rh, pairs, pair, ph, q, here, qh, t, x, th, d, heads)


@njit(nogil=True, cache=True)
def backward_additive(graph, edge, slope, known, k, v, keep, sizes, dout, dz, dk, dv, first, last):
    """dk and dv of pieces first ≤ p < last of keys, and of each edge the gradient of q_i + k_j;
    `known` are q, the log-sum-exp and dout·out of each row."""
    ptr, owner, place, row = graph
    (known, q0, qi, qh), (k, k0, kj, kh), (v, v0, vj, vh) = known, k, v
    (keep, m0, me, mh), (dout, g0, gi, gh) = keep, dout
    (dz, z0, ze, zh), (dk, r0, rj, rh), (dv, s0, sj, sh) = dz, dk, dv
    heads, _, width = sizes
    one, zero = v.dtype.type(1), v.dtype.type(0)
    most, end = longest(ptr, first, last), len(row) - 1
    (qw, qs), (gw, gs) = span(qh, 3, heads), span(gh, width, heads)
    zw, zs = span(zh, 1, heads)
    score, grad = np.empty(most * heads, v.dtype), np.empty(most * heads, v.dtype)
    for p in range(first, last):
        j = owner[p] if len(owner) else p
        r = place[p] if len(place) else p
        a, b = ptr[p], ptr[p + 1]
        count = up(b - a)
        if count:
            fill(score, count - LANES, most, zero, LANES, heads)
        key, value = k0 + kj * j, v0 + vj * j
        for c in range(a, b):
            later = min(c + AHEAD, end)
            far, i = row[later], row[c]
            expect(dz, z0 + ze * edge[later], zh, zw, zs)
            expect(dout, g0 + gi * far, gh, gw, gs)
            expect(known, q0 + qi * far, qh, qw, qs)
            dots(grad, c - a, most, one, dout, g0 + gi * i, gh, v, value, vh, width, heads)
            for h in range(heads):
                of = q0 + qi * i + qh * h
                z = at(known, of) + at(k, key + kh * h)
                z = z if z > zero else slope * z
                put(score, c - a + most * h, z - at(known, of + 1))
        for h in range(heads):
            exps(score, most * h, count, zero)
            found = zero
            for c in range(a, b):
                of, x = q0 + qi * row[c] + qh * h, c - a + most * h
                weight, z = at(score, x), at(known, of) + at(k, key + kh * h)
                kept = weight
                if len(keep):
                    kept *= at(keep, m0 + me * edge[c] + mh * h)
                bend = one if z > zero else slope
                of_sum = (kept * at(grad, x) - weight * at(known, of + 2)) * bend
                found += of_sum
                put(dz, z0 + ze * edge[c] + zh * h, of_sum)
                put(score, x, kept)
            put(dk, r0 + rj * r + rh * h, found)
        values = s0 + sj * r
        fill(dv, values, sh, zero, width, heads)
        for c in range(a, b):
            adds(dv, values, sh, score, c - a, most, dout, g0 + gi * row[c], gh, width, heads)


@njit(nogil=True, cache=True)
def totals(graph, sizes, x, out, first, last):
    """The sums of a number of each entry, of pieces first ≤ p < last."""
    ptr, _, place, _ = graph
    (x, x0, xe, xh), (out, o0, oi, oh) = x, out
    heads, _, _ = sizes
    for p in range(first, last):
        o = o0 + oi * (place[p] if len(place) else p)
        for h in range(heads):
            total = x.dtype.type(0)
            for e in range(ptr[p], ptr[p + 1]):
                total += at(x, x0 + xe * e + xh * h)
            put(out, o + oh * h, total)
