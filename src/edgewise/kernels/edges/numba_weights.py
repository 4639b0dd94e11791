"""The weights of attention along edges on a CPU: scores, their softmax and dropout, by numba.

The loops and what they take are as in `numba_loops`.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-untyped"

import math

import numpy as np
from numba import njit

from edgewise.kernels.simd_lanes import LANES
from edgewise.kernels.simd_rows import (
    AHEAD,
    at,
    dots,
    expect,
    exps,
    fill,
    largest,
    leaky_dots,
    longest,
    put,
    span,
    up,
)

DOT, NUMBERS, VECTOR = 0, 1, 2  # kinds of scores: dot products, and additive ones
WORD = np.uint64(0xFFFFFFFF)
HALF, LESS = np.uint64(16), np.uint64(15)
FIRST, SECOND = np.uint64(0x7FEB352D), np.uint64(0x846CA68B)


@njit(nogil=True, cache=True, inline="always")
def mixed(x):
    x = x ^ (x >> HALF)
    x = (x * FIRST) & WORD
    x = x ^ (x >> LESS)
    x = (x * SECOND) & WORD
    return x ^ (x >> HALF)


@njit(nogil=True, cache=True, inline="always")
def is_dropped(seed, least, h, i, j):
    """As `Dropout.keep` decides it."""
    row = mixed(mixed(np.uint64(seed + h) & WORD) ^ np.uint64(i))
    return mixed(row ^ np.uint64(j)) < np.uint64(least)


@njit(nogil=True, cache=True)
def weigh(
    graph, edge, form, q, k, vector, bias, factor, edge_key, drop, sizes, lse, weights, plain,
    first, last,
):  # fmt: skip
    """The weight of each entry of pieces first ≤ p < last, and the log-sum-exp of their scores.

    Weights that are computed `again` are so by columns, q and k in each other's places, `edge`
    the number of each entry: the log-sum-exp is known, and each entry has that of its own row.
    `plain` are the scores before they are multiplied by factors, where there is memory for them.
    """
    ptr, owner, place, index = graph
    again, heads, most = form[3], sizes[0], longest(ptr, first, last)
    kind = lse[0].dtype
    score, extra = np.empty(most * heads, kind), np.empty(heads, kind)
    for p in range(first, last):
        i = owner[p] if len(owner) else p
        r = place[p] if len(place) else p
        a, b = ptr[p], ptr[p + 1]
        if b > a:  # lanes behind the last entry
            fill(score, up(b - a) - LANES, most, kind.type(-np.inf), LANES, heads)
        score_row(score, most, index, form, sizes, q, i, k, vector, lse, a, b)
        if len(edge_key[0]):
            add_edge_keys(score, extra, most, index, edge, form, sizes, q, i, k, edge_key, a, b)
        add_terms(score, most, bias, factor, plain, heads, a, b)
        if again:
            recomputed(score, extra, most, index, lse, heads, a, b)
        else:
            normalise(score, extra, most, lse, r, heads, up(b - a))
        write_weights(score, extra, most, index, weights, drop, again, heads, i, a, b)


@njit(nogil=True, cache=True, inline="always")
def score_row(score, most, index, form, sizes, q, i, k, vector, lse, a, b):
    """The scores of entries a ≤ c < b, of query i with its keys."""
    kind, scale, slope, again = form
    (q, q0, qi, qh), (k, k0, kj, kh), (vector, t0, _, th), (lse, l0, li, lh) = q, k, vector, lse
    heads, d, _ = sizes
    own, end, zero = q0 + qi * i, len(index) - 1, lse.dtype.type(0)
    (kw, ks), (lw, ls) = span(kh, d, heads), span(lh, 1, heads)
    if kind == DOT:
        for c in range(a, b):
            far, other = index[min(c + AHEAD, end)], k0 + kj * index[c]
            expect(k, k0 + kj * far, kh, kw, ks)
            if again:
                expect(lse, l0 + li * far, lh, lw, ls)
            dots(score, c - a, most, scale, q, own, qh, k, other, kh, d, heads)
    elif kind == NUMBERS:
        for c in range(a, b):
            far, other = index[min(c + AHEAD, end)], k0 + kj * index[c]
            expect(k, k0 + kj * far, kh, kw, ks)
            if again:
                expect(lse, l0 + li * far, lh, lw, ls)
            for h in range(heads):
                z = at(q, own + qh * h) + at(k, other + kh * h)
                put(score, c - a + most * h, z if z > zero else slope * z)
    else:
        for c in range(a, b):
            far, other = index[min(c + AHEAD, end)], k0 + kj * index[c]
            expect(k, k0 + kj * far, kh, kw, ks)
            if again:
                expect(lse, l0 + li * far, lh, lw, ls)
            rows = (q, own, qh, k, other, kh)
            leaky_dots(score, c - a, most, slope, vector, t0, th, *rows, d, heads)


@njit(nogil=True, cache=True, inline="always")
def add_edge_keys(score, extra, most, index, edge, form, sizes, q, i, k, edge_key, a, b):
    """The products of queries with the keys of edges, added to scores."""
    (q, q0, qi, qh), (k, k0, kj, kh), (edge_key, x0, xe, xh) = q, k, edge_key
    scale, again, end = form[1], form[3], len(index) - 1
    heads, d, _ = sizes
    for c in range(a, b):
        e, later = c, c
        if len(edge):
            e, later = edge[c], edge[min(c + AHEAD, end)]
        expect(edge_key, x0 + xe * later, xh, d, heads)
        x = x0 + xe * e
        if again:
            other = k0 + kj * index[c]
            dots(extra, 0, 1, scale, k, other, kh, edge_key, x, xh, d, heads)
        else:
            dots(extra, 0, 1, scale, q, q0 + qi * i, qh, edge_key, x, xh, d, heads)
        for h in range(heads):
            score[c - a + most * h] += extra[h]


@njit(nogil=True, cache=True, inline="always")
def add_terms(score, most, bias, factor, plain, heads, a, b):
    """Scores times the factors of edges, plus their biases."""
    (bias, b0, be, bh), (factor, f0, fe, fh), (plain, p0, pe, ph) = bias, factor, plain
    if len(factor):
        for c in range(a, b):
            for h in range(heads):
                x = c - a + most * h
                if len(plain):
                    put(plain, p0 + pe * c + ph * h, at(score, x))
                put(score, x, at(score, x) * at(factor, f0 + fe * c + fh * h))
    if len(bias):
        for c in range(a, b):
            for h in range(heads):
                x = c - a + most * h
                put(score, x, at(score, x) + at(bias, b0 + be * c + bh * h))


@njit(nogil=True, cache=True, inline="always")
def recomputed(score, extra, most, index, lse, heads, a, b):
    """Weights in place of scores, by the log-sum-exp of the row of each entry."""
    lse, l0, li, lh = lse
    for c in range(a, b):
        for h in range(heads):
            x = c - a + most * h
            put(score, x, at(score, x) - at(lse, l0 + li * index[c] + lh * h))
    for h in range(heads):
        exps(score, most * h, up(b - a), lse.dtype.type(0))
        extra[h] = lse.dtype.type(1)


@njit(nogil=True, cache=True, inline="always")
def normalise(score, extra, most, lse, r, heads, count):
    """Exponentials in place of scores, the log-sum-exp of row r, and what makes weights of them."""
    lse, l0, li, lh = lse
    low, zero = lse.dtype.type(-np.inf), lse.dtype.type(0)
    for h in range(heads):
        top = largest(score, most * h, count)
        top = top if top > low else zero  # there is nothing, or NaN
        total = exps(score, most * h, count, top)
        put(lse, l0 + li * r + lh * h, top + math.log(total) if total != 0 else low)
        extra[h] = 1 / total if total != 0 else zero


@njit(nogil=True, cache=True, inline="always")
def write_weights(score, extra, most, index, weights, drop, again, heads, i, a, b):
    """The weights of entries, without those that dropout leaves out."""
    (weights, w0, we, wh), (seed, least, keep) = weights, drop
    zero = weights.dtype.type(0)
    for c in range(a, b):
        for h in range(heads):
            put(weights, w0 + we * c + wh * h, at(score, most * h + c - a) * extra[h])
    if keep > zero and not again:
        for c in range(a, b):
            for h in range(heads):
                to = w0 + we * c + wh * h
                dropped = is_dropped(seed, least, h, i, index[c])
                put(weights, to, zero if dropped else at(weights, to) * keep)
