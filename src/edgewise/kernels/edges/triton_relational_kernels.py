"""Attention with a vector on each edge, in Triton. Imported only by the functions that launch it.

A program is one row (or column) of one head, E edges at a time; rows are not split. Tensors are
contiguous, heads side by side; an edge's vector is STEP numbers from the next one's, and APART
from that of the next head, 0 where all share it. D, DV and W are features, DB, VB and WB the
powers of two that hold them.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,import-untyped,untyped-decorator"

import triton
import triton.language as tl

from edgewise.kernels.edges.triton_attention_kernels import survives


@triton.jit
def row(X, at, x, WIDTH: tl.constexpr):
    """The features of one row."""
    return tl.load(X + at * WIDTH + x, mask=x < WIDTH, other=0.0).to(tl.float32)


@triton.jit
def rows(X, at, x, some, WIDTH: tl.constexpr):
    """(E, features) of E rows."""
    place = at[:, None] * WIDTH + x[None, :]
    mask = some[:, None] & (x < WIDTH)[None, :]
    return tl.load(X + place, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def put(X, at, x, value, WIDTH: tl.constexpr):
    tl.store(X + at * WIDTH + x, value.to(X.dtype.element_ty), mask=x < WIDTH)


@triton.jit
def vectors(X, c, e, h, edges, x, some, W: tl.constexpr, APART: tl.constexpr, STEP: tl.constexpr):
    """(E, W) of edges."""
    place = (c * edges + e)[:, None] * STEP + h * APART + x[None, :]
    mask = some[:, None] & (x < W)[None, :]
    return tl.load(X + place, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def scores(
    q, a, k, vector, B, Bias, c, e, j, h, m, edges, heads, y, some,
    W: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    s = tl.sum(q[None, :] * k, 1)
    if QUERIES:
        s += tl.sum(a[None, :] * vector, 1)
    if KEYS:
        s += tl.sum(rows(B, (c * m + j) * heads + h, y, some, W) * vector, 1)
    if BIAS:
        at = (c * edges + e) * heads + h
        s += tl.load(Bias + at, mask=some, other=0.0).to(tl.float32)
    return tl.where(some, s, float("-inf"))


@triton.jit
def forward(
    Q, K, V, X, A, B, Bias, Out, Lse, Ptr, Index, n, m, edges, heads, seed, least, keep,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, BIAS: tl.constexpr, VALUES: tl.constexpr,
    DROP: tl.constexpr, E: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, W: tl.constexpr,
    DB: tl.constexpr, VB: tl.constexpr, WB: tl.constexpr, APART: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    i, part = (tl.program_id(0) % n).to(tl.int64), (tl.program_id(0) // n).to(tl.int64)
    c, h = part // heads, part % heads
    x, v_, y = tl.arange(0, DB), tl.arange(0, VB), tl.arange(0, WB)
    at = (c * n + i) * heads + h
    q, a = row(Q, at, x, D), tl.zeros([WB], tl.float32)
    if QUERIES:
        a = row(A, at, y, W)
    low, high = tl.load(Ptr + i), tl.load(Ptr + i + 1)
    top, total = tl.max(tl.full([1], float("-inf"), tl.float32), 0), 0.0
    acc, sums = tl.zeros([VB], tl.float32), tl.zeros([WB], tl.float32)
    for t in range(low, high, E):
        e = (t + tl.arange(0, E)).to(tl.int64)
        some = e < high
        j = tl.load(Index + e, mask=some, other=0).to(tl.int64)
        k = rows(K, (c * m + j) * heads + h, x, some, D)
        vector = vectors(X, c, e, h, edges, y, some, W, APART, STEP)
        s = scores(
            q, a, k, vector, B, Bias, c, e, j, h, m, edges, heads, y, some, W, QUERIES, KEYS, BIAS,
        )  # fmt: skip
        new = tl.maximum(top, tl.max(s, 0))
        base = tl.where(new == float("-inf"), 0.0, new)
        shrink, p = tl.exp(top - base), tl.exp(s - base)
        total = total * shrink + tl.sum(p, 0)
        if DROP:
            p = tl.where(survives(seed, least, part, i, j), p * keep, 0.0)
        v = rows(V, (c * m + j) * heads + h, v_, some, DV)
        acc = acc * shrink + tl.sum(p[:, None] * v, 0)
        sums = sums * shrink + tl.sum(p[:, None] * vector, 0)
        top = new
    share = tl.where(total == 0.0, 1.0, total)
    base = tl.where(top == float("-inf"), 0.0, top)
    tl.store(Lse + at, tl.where(total == 0.0, float("-inf"), base + tl.log(share)))
    start = Out + (c * n + i) * heads * (DV + W * VALUES)
    put(start, h, v_, acc / share, DV)
    if VALUES:
        put(start + heads * DV, h, y, sums / share, W)


@triton.jit
def backward_rows(
    Q, K, V, X, A, B, Bias, Out, Lse, DOut, DQ, DA, Used, DS, Ptr, Index,
    n, m, edges, heads, seed, least, keep,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, BIAS: tl.constexpr, VALUES: tl.constexpr,
    DROP: tl.constexpr, E: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, W: tl.constexpr,
    DB: tl.constexpr, VB: tl.constexpr, WB: tl.constexpr, APART: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """dq and da of a row; the weight that was used and the gradient of the score of its edges."""
    i, part = (tl.program_id(0) % n).to(tl.int64), (tl.program_id(0) // n).to(tl.int64)
    c, h = part // heads, part % heads
    x, v_, y = tl.arange(0, DB), tl.arange(0, VB), tl.arange(0, WB)
    at, start = (c * n + i) * heads + h, (c * n + i) * heads * (DV + W * VALUES)
    q, a = row(Q, at, x, D), tl.zeros([WB], tl.float32)
    if QUERIES:
        a = row(A, at, y, W)
    g, gx = row(DOut + start, h, v_, DV), tl.zeros([WB], tl.float32)
    delta = tl.sum(g * row(Out + start, h, v_, DV), 0)
    if VALUES:
        gx = row(DOut + start + heads * DV, h, y, W)
        delta += tl.sum(gx * row(Out + start + heads * DV, h, y, W), 0)
    lse = tl.load(Lse + at)
    low, high = tl.load(Ptr + i), tl.load(Ptr + i + 1)
    dq, da = tl.zeros([DB], tl.float32), tl.zeros([WB], tl.float32)
    for t in range(low, high, E):
        e = (t + tl.arange(0, E)).to(tl.int64)
        some = e < high
        j = tl.load(Index + e, mask=some, other=0).to(tl.int64)
        k = rows(K, (c * m + j) * heads + h, x, some, D)
        vector = vectors(X, c, e, h, edges, y, some, W, APART, STEP)
        s = scores(
            q, a, k, vector, B, Bias, c, e, j, h, m, edges, heads, y, some, W, QUERIES, KEYS, BIAS,
        )  # fmt: skip
        p = tl.where(some, tl.exp(s - lse), 0.0)
        v = rows(V, (c * m + j) * heads + h, v_, some, DV)
        dp = tl.sum(g[None, :] * v, 1) + tl.sum(gx[None, :] * vector, 1)
        used = p
        if DROP:
            used = tl.where(survives(seed, least, part, i, j), p * keep, 0.0)
        ds = used * dp - p * delta
        place = (c * edges + e) * heads + h
        tl.store(Used + place, used, mask=some)
        tl.store(DS + place, ds, mask=some)
        dq += tl.sum(ds[:, None] * k, 0)
        da += tl.sum(ds[:, None] * vector, 0)
    put(DQ, at, x, dq, D)
    if QUERIES:
        put(DA, at, y, da, W)


@triton.jit
def backward_edges(
    A, B, DOut, Used, DS, DX, Ids, Index, n, m, edges, heads,
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
    dx = tl.zeros([E, WB], tl.float32)
    for h in range(first, last):
        place = (c * edges + e) * heads + h
        ds = tl.load(DS + place, mask=some, other=0.0)[:, None]
        if QUERIES:
            dx += ds * rows(A, (c * n + i) * heads + h, y, some, W)
        if KEYS:
            dx += ds * rows(B, (c * m + j) * heads + h, y, some, W)
        if VALUES:
            used = tl.load(Used + place, mask=some, other=0.0)[:, None]
            start = (c * n + i) * heads * (DV + W) + heads * DV + h * W
            mask = some[:, None] & (y < W)[None, :]
            g = tl.load(DOut + start[:, None] + y[None, :], mask=mask, other=0.0)
            dx += used * g.to(tl.float32)
    to = (c * edges + e)[:, None] * STEP + first * APART + y[None, :]
    tl.store(DX + to, dx.to(DX.dtype.element_ty), mask=some[:, None] & (y < W)[None, :])


@triton.jit
def backward_columns(
    Q, X, DOut, Used, DS, DK, DB_, DV_, Ptr, Index, Perm, n, m, edges, heads,
    KEYS: tl.constexpr, VALUES: tl.constexpr,
    E: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, W: tl.constexpr,
    DB: tl.constexpr, VB: tl.constexpr, WB: tl.constexpr, APART: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """dk, dv and db of one key."""
    j, part = (tl.program_id(0) % m).to(tl.int64), (tl.program_id(0) // m).to(tl.int64)
    c, h = part // heads, part % heads
    x, v_, y = tl.arange(0, DB), tl.arange(0, VB), tl.arange(0, WB)
    low, high = tl.load(Ptr + j), tl.load(Ptr + j + 1)
    dk, dv, db = tl.zeros([DB], tl.float32), tl.zeros([VB], tl.float32), tl.zeros([WB], tl.float32)
    for t in range(low, high, E):
        at = t + tl.arange(0, E)
        some = at < high
        i = tl.load(Index + at, mask=some, other=0).to(tl.int64)
        e = tl.load(Perm + at, mask=some, other=0).to(tl.int64)
        place = (c * edges + e) * heads + h
        ds = tl.load(DS + place, mask=some, other=0.0)[:, None]
        used = tl.load(Used + place, mask=some, other=0.0)[:, None]
        dk += tl.sum(ds * rows(Q, (c * n + i) * heads + h, x, some, D), 0)
        start = (c * n + i) * heads * (DV + W * VALUES) + h * DV
        mask = some[:, None] & (v_ < DV)[None, :]
        g = tl.load(DOut + start[:, None] + v_[None, :], mask=mask, other=0.0).to(tl.float32)
        dv += tl.sum(used * g, 0)
        if KEYS:
            db += tl.sum(ds * vectors(X, c, e, h, edges, y, some, W, APART, STEP), 0)
    at_key = (c * m + j) * heads + h
    put(DK, at_key, x, dk, D)
    put(DV_, at_key, v_, dv, DV)
    if KEYS:
        put(DB_, at_key, y, db, W)
