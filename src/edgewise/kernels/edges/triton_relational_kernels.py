"""Attention with a vector on each edge, in Triton. Imported only by the functions that launch it.

A program is one piece of a row (or column) for H heads, E edges at a time: what heads share is read
once. Rows of q, k, v, a and b are `qn`, ... times their features apart, heads `qh`, ...; others are
contiguous, heads side by side. An edge's vector is STEP numbers from the next one's, and APART from
that of the next head, 0 where all share it. D, DV and W are features, DB, VB and WB the powers of
two that hold them. Results have a row for each segment, and behind these one for each piece of a
split segment.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,import-untyped,untyped-decorator"

import triton
import triton.language as tl

from edgewise.kernels.edges.triton_attention_kernels import piece, survives


@triton.jit
def row(X, at, h, x, far, apart, WIDTH: tl.constexpr):
    """(H, features) of one row."""
    place = (at * far + h * apart)[:, None] * WIDTH + x[None, :]
    return tl.load(X + place, mask=(x < WIDTH)[None, :], other=0.0).to(tl.float32)


@triton.jit
def rows(X, at, h, x, some, far, apart, WIDTH: tl.constexpr):
    """(E, H, features) of E rows."""
    place = (at[:, None] * far + h[None, :] * apart)[:, :, None] * WIDTH + x[None, None, :]
    mask = some[:, None, None] & (x < WIDTH)[None, None, :]
    return tl.load(X + place, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def put(X, at, h, x, value, heads, WIDTH: tl.constexpr):
    place = (at * heads + h)[:, None] * WIDTH + x[None, :]
    tl.store(X + place, value.to(X.dtype.element_ty), mask=(x < WIDTH)[None, :])


@triton.jit
def vectors(X, e, h, x, some, W: tl.constexpr, APART: tl.constexpr, STEP: tl.constexpr):
    """(E, H, W) of edges, H = 1 where heads share them."""
    place = e[:, None, None] * STEP + x[None, None, :]
    if APART:
        place += (h * APART)[None, :, None]
    mask = some[:, None, None] & (x < W)[None, None, :]
    return tl.load(X + place, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def numbers(X, e, h, some, heads):
    """(E, H) numbers of edges."""
    return tl.load(X + e[:, None] * heads + h[None, :], mask=some[:, None], other=0.0)


@triton.jit
def put_numbers(X, e, h, value, some, heads):
    tl.store(X + e[:, None] * heads + h[None, :], value, mask=some[:, None])


@triton.jit
def scores(
    q, a, k, vector, B, Bias, at_key, e, h, y, some, heads, bn, bh,
    W: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """(E, H)."""
    s = tl.sum(q[None, :, :] * k, 2)
    if QUERIES:
        s += tl.sum(a[None, :, :] * vector, 2)
    if KEYS:
        s += tl.sum(rows(B, at_key, h, y, some, bn, bh, W) * vector, 2)
    if BIAS:
        s += numbers(Bias, e, h, some, heads).to(tl.float32)
    return tl.where(some[:, None], s, float("-inf"))


@triton.jit
def forward(
    Q, K, V, X, A, B, Bias, Out, Lse, Pieces, Index, Owner, Slot,
    n, m, edges, heads, results, groups, seed, least, keep,
    qn, qh, kn, kh, vn, vh, an, ah, bn, bh,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, BIAS: tl.constexpr, VALUES: tl.constexpr,
    DROP: tl.constexpr, SPLIT: tl.constexpr, H: tl.constexpr, E: tl.constexpr, D: tl.constexpr,
    DV: tl.constexpr, W: tl.constexpr, DB: tl.constexpr, VB: tl.constexpr, WB: tl.constexpr,
    APART: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    _, i, slot, low, high, part = piece(Pieces, Owner, Slot, groups, SPLIT, H)
    c, h = tl.min(part, 0) // heads, part % heads
    x, v_, y = tl.arange(0, DB), tl.arange(0, VB), tl.arange(0, WB)
    q, a = row(Q, c * n + i, h, x, qn, qh, D), tl.zeros([H, WB], tl.float32)
    if QUERIES:
        a = row(A, c * n + i, h, y, an, ah, W)
    top, total = tl.full([H], float("-inf"), tl.float32), tl.zeros([H], tl.float32)
    acc, sums = tl.zeros([H, VB], tl.float32), tl.zeros([H, WB], tl.float32)
    for t in range(low, high, E):
        at = (t + tl.arange(0, E)).to(tl.int64)
        some = at < high
        j = tl.load(Index + at, mask=some, other=0).to(tl.int64)
        e, at_key = c * edges + at, c * m + j
        k, v = rows(K, at_key, h, x, some, kn, kh, D), rows(V, at_key, h, v_, some, vn, vh, DV)
        vector = vectors(X, e, h, y, some, W, APART, STEP)
        s = scores(
            q, a, k, vector, B, Bias, at_key, e, h, y, some, heads, bn, bh, W, QUERIES, KEYS, BIAS,
        )  # fmt: skip
        new = tl.maximum(top, tl.max(s, 0))
        base = tl.where(new == float("-inf"), 0.0, new)
        shrink, p = tl.exp(top - base), tl.exp(s - base[None, :])
        total = total * shrink + tl.sum(p, 0)
        if DROP:
            left = survives(seed, least, part[None, :], i, j[:, None])
            p = tl.where(left, p * keep, 0.0)
        acc = acc * shrink[:, None] + tl.sum(p[:, :, None] * v, 0)
        sums = sums * shrink[:, None] + tl.sum(p[:, :, None] * vector, 0)
        top = new
    share = tl.where(total == 0.0, 1.0, total)
    base = tl.where(top == float("-inf"), 0.0, top)
    r = c * results + tl.where(slot < 0, i, n + slot)
    tl.store(Lse + r * heads + h, tl.where(total == 0.0, float("-inf"), base + tl.log(share)))
    start = Out + r * heads * (DV + W * VALUES)
    put(start, 0, h, v_, acc / share[:, None], heads, DV)
    if VALUES:
        put(start + heads * DV, 0, h, y, sums / share[:, None], heads, W)


@triton.jit
def backward_rows(
    Q, K, V, X, A, B, Bias, Out, Lse, DOut, DQ, DA, Used, DS, Pieces, Index, Owner, Slot,
    n, m, edges, heads, results, groups, seed, least, keep,
    qn, qh, kn, kh, vn, vh, an, ah, bn, bh,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, BIAS: tl.constexpr, VALUES: tl.constexpr,
    DROP: tl.constexpr, SPLIT: tl.constexpr, H: tl.constexpr, E: tl.constexpr, D: tl.constexpr,
    DV: tl.constexpr, W: tl.constexpr, DB: tl.constexpr, VB: tl.constexpr, WB: tl.constexpr,
    APART: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """dq and da of a row; the weight that was used and the gradient of the score of its edges."""
    _, i, slot, low, high, part = piece(Pieces, Owner, Slot, groups, SPLIT, H)
    c, h = tl.min(part, 0) // heads, part % heads
    x, v_, y = tl.arange(0, DB), tl.arange(0, VB), tl.arange(0, WB)
    at_query = c * n + i
    start = at_query * heads * (DV + W * VALUES)
    q, a = row(Q, at_query, h, x, qn, qh, D), tl.zeros([H, WB], tl.float32)
    if QUERIES:
        a = row(A, at_query, h, y, an, ah, W)
    g, gx = row(DOut + start, 0, h, v_, 0, 1, DV), tl.zeros([H, WB], tl.float32)
    delta = tl.sum(g * row(Out + start, 0, h, v_, 0, 1, DV), 1)
    if VALUES:
        gx = row(DOut + start + heads * DV, 0, h, y, 0, 1, W)
        delta += tl.sum(gx * row(Out + start + heads * DV, 0, h, y, 0, 1, W), 1)
    lse = tl.load(Lse + at_query * heads + h)
    dq, da = tl.zeros([H, DB], tl.float32), tl.zeros([H, WB], tl.float32)
    for t in range(low, high, E):
        at = (t + tl.arange(0, E)).to(tl.int64)
        some = at < high
        j = tl.load(Index + at, mask=some, other=0).to(tl.int64)
        e, at_key = c * edges + at, c * m + j
        k, v = rows(K, at_key, h, x, some, kn, kh, D), rows(V, at_key, h, v_, some, vn, vh, DV)
        vector = vectors(X, e, h, y, some, W, APART, STEP)
        s = scores(
            q, a, k, vector, B, Bias, at_key, e, h, y, some, heads, bn, bh, W, QUERIES, KEYS, BIAS,
        )  # fmt: skip
        p = tl.where(some[:, None], tl.exp(s - lse[None, :]), 0.0)
        dp = tl.sum(g[None, :, :] * v, 2)
        if VALUES:
            dp += tl.sum(gx[None, :, :] * vector, 2)
        used = p
        if DROP:
            left = survives(seed, least, part[None, :], i, j[:, None])
            used = tl.where(left, p * keep, 0.0)
        ds = used * dp - p * delta[None, :]
        put_numbers(Used, e, h, used, some, heads)
        put_numbers(DS, e, h, ds, some, heads)
        dq += tl.sum(ds[:, :, None] * k, 0)
        if QUERIES:
            da += tl.sum(ds[:, :, None] * vector, 0)
    r = c * results + tl.where(slot < 0, i, n + slot)
    put(DQ, r, h, x, dq, heads, D)
    if QUERIES:
        put(DA, r, h, y, da, heads, W)


@triton.jit
def backward_edges(
    A, B, DOut, Used, DS, DX, Ids, Index, n, m, edges, heads, an, ah, bn, bh,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, VALUES: tl.constexpr,
    E: tl.constexpr, DV: tl.constexpr, W: tl.constexpr, WB: tl.constexpr,
    APART: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """dx of E edges: over all heads where these share a vector, else of one head each."""
    many = (edges + E - 1) // E
    block, part = tl.program_id(0) % many, (tl.program_id(0) // many).to(tl.int64)
    e = (block * E + tl.arange(0, E)).to(tl.int64)
    some, y = e < edges, tl.arange(0, WB)
    c, first, last = part, 0, heads
    if APART:
        c, first = part // heads, part % heads
        last = first + 1
    i = tl.load(Ids + e, mask=some, other=0).to(tl.int64)
    j = tl.load(Index + e, mask=some, other=0).to(tl.int64)
    mask = some[:, None] & (y < W)[None, :]
    dx = tl.zeros([E, WB], tl.float32)
    for h in range(first, last):
        place = (c * edges + e) * heads + h
        ds = tl.load(DS + place, mask=some, other=0.0)[:, None]
        if QUERIES:
            at = ((c * n + i) * an + h * ah)[:, None] * W + y[None, :]
            dx += ds * tl.load(A + at, mask=mask, other=0.0).to(tl.float32)
        if KEYS:
            at = ((c * m + j) * bn + h * bh)[:, None] * W + y[None, :]
            dx += ds * tl.load(B + at, mask=mask, other=0.0).to(tl.float32)
        if VALUES:
            used = tl.load(Used + place, mask=some, other=0.0)[:, None]
            start = (c * n + i) * heads * (DV + W) + heads * DV + h * W
            g = tl.load(DOut + start[:, None] + y[None, :], mask=mask, other=0.0)
            dx += used * g.to(tl.float32)
    to = (c * edges + e)[:, None] * STEP + first * APART + y[None, :]
    tl.store(DX + to, dx.to(DX.dtype.element_ty), mask=mask)


@triton.jit
def backward_columns(
    Q, X, DOut, Used, DS, DK, DB_, DV_, Pieces, Index, Owner, Slot, Perm,
    n, m, edges, heads, results, groups, qn, qh,
    KEYS: tl.constexpr, VALUES: tl.constexpr, SPLIT: tl.constexpr, H: tl.constexpr,
    E: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, W: tl.constexpr,
    DB: tl.constexpr, VB: tl.constexpr, WB: tl.constexpr, APART: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """dk, dv and db of one key."""
    _, j, slot, low, high, part = piece(Pieces, Owner, Slot, groups, SPLIT, H)
    c, h = tl.min(part, 0) // heads, part % heads
    x, v_, y = tl.arange(0, DB), tl.arange(0, VB), tl.arange(0, WB)
    dk, dv = tl.zeros([H, DB], tl.float32), tl.zeros([H, VB], tl.float32)
    db = tl.zeros([H, WB], tl.float32)
    for t in range(low, high, E):
        at = t + tl.arange(0, E)
        some = at < high
        i = tl.load(Index + at, mask=some, other=0).to(tl.int64)
        e = c * edges + tl.load(Perm + at, mask=some, other=0).to(tl.int64)
        ds = numbers(DS, e, h, some, heads)[:, :, None]
        used = numbers(Used, e, h, some, heads)[:, :, None]
        dk += tl.sum(ds * rows(Q, c * n + i, h, x, some, qn, qh, D), 0)
        start = ((c * n + i) * heads * (DV + W * VALUES))[:, None] + h[None, :] * DV
        mask = some[:, None, None] & (v_ < DV)[None, None, :]
        g = tl.load(DOut + start[:, :, None] + v_[None, None, :], mask=mask, other=0.0)
        dv += tl.sum(used * g.to(tl.float32), 0)
        if KEYS:
            db += tl.sum(ds * vectors(X, e, h, y, some, W, APART, STEP), 0)
    r = c * results + tl.where(slot < 0, j, m + slot)
    put(DK, r, h, x, dk, heads, D)
    put(DV_, r, h, v_, dv, heads, DV)
    if KEYS:
        put(DB_, r, h, y, db, heads, W)
