"""Attention over arbitrary edges, in Triton. Imported only by the function that launches it.

One program is one row (or column, or a part of a long one) for H heads, which lie side by side in
memory where tokens come first: a key is then read in one go. Terms of edges are read where they
are given; a score is a function of Triton (triton_score).
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,import-untyped,untyped-decorator"

import triton
import triton.language as tl

from edgewise.kernels.attention.triton_dropout import kept
from edgewise.kernels.attention.triton_parts_kernels import NUMBERS


@triton.jit
def piece(Row, LowItem, HighItem, Slot, many, H: tl.constexpr):
    """Of this program: its row, slot or -1, its elements, and its heads."""
    item, part = tl.program_id(0) // many, tl.program_id(0) % many
    row, slot = tl.load(Row + item).to(tl.int64), tl.load(Slot + item)
    h = (part * H + tl.arange(0, H)).to(tl.int64)
    return row, slot, tl.load(LowItem + item), tl.load(HighItem + item), h


@triton.jit
def one(X, row, h, sh, sn, x):
    """(H, features) of one row."""
    return tl.load(X + h[:, None] * sh + row * sn + x[None, :]).to(tl.float32)


@triton.jit
def rows_of(X, at, h, sh, sn, x, some):
    """(E, H, features) of E rows."""
    place = at[:, None, None] * sn + h[None, :, None] * sh + x[None, None, :]
    return tl.load(X + place, mask=some[:, None, None], other=0.0).to(tl.float32)


@triton.jit
def of_edges(e, h, edges, x):
    """Where the vectors of edges are, as (E, H, features)."""
    return (h[None, :] * edges + e[:, None])[:, :, None] * x.shape[0] + x[None, None, :]


@triton.jit
def heard(X, Extra, at, e, h, sh, sn, x, some, edges, EXTRA: tl.constexpr):
    """Keys (or values) of E edges, with what the edges add to them."""
    rows = rows_of(X, at, h, sh, sn, x, some)
    if EXTRA:
        rows += tl.load(Extra + of_edges(e, h, edges, x), some[:, None, None], 0.0)
    return rows


@triton.jit
def per_edge(X, e, h, edges, some):
    """(E, H) numbers of edges."""
    return tl.load(X + h[None, :] * edges + e[:, None], mask=some[:, None], other=0.0).to(
        tl.float32
    )


@triton.jit(do_not_specialize=NUMBERS)
def forward(
    Q, K, V, Bias, Factor, EdgeKey, EdgeValue, Tables, Sizes, Out, Lse, PartOut, PartLse,
    Row, LowItem, HighItem, Slot, Index,
    scale, n, edges, heads, group, slots, seed, least, keep, oh, on,
    sqh, sqn, skh, skm, svh, svm,
    VALUE: tl.constexpr, SLOPE: tl.constexpr, SPREAD: tl.constexpr,
    SCORE: tl.constexpr, BIAS: tl.constexpr, FACTOR: tl.constexpr, DROP: tl.constexpr,
    EDGE_KEY: tl.constexpr, EDGE_VALUE: tl.constexpr,
    E: tl.constexpr, H: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    row, slot, low, high, h = piece(Row, LowItem, HighItem, Slot, heads // H, H)
    x, y, kh = tl.arange(0, D), tl.arange(0, DV), h // group
    q = one(Q, row, h, sqh, sqn, x) * scale
    top = tl.full([H], float("-inf"), tl.float32)
    total = tl.zeros([H], tl.float32)
    acc = tl.zeros([H, DV], tl.float32)
    for t in range(low, high, E):
        e = t + tl.arange(0, E)
        some = e < high
        j = tl.load(Index + e, mask=some, other=0).to(tl.int64)
        k = heard(K, EdgeKey, j, e, kh, skh, skm, x, some, edges, EDGE_KEY)
        v = heard(V, EdgeValue, j, e, kh, svh, svm, y, some, edges, EDGE_VALUE)
        s = tl.sum(q[None, :, :] * k, 2)
        if FACTOR:
            s *= per_edge(Factor, e, h, edges, some)
        if SCORE:
            s = VALUE(s, row, j[:, None], h[None, :], Tables, Sizes)
        if BIAS:
            s += per_edge(Bias, e, h, edges, some)
        s = tl.where(some[:, None], s * 1.4426950408889634, float("-inf"))
        new = tl.maximum(top, tl.max(s, 0))
        safe = tl.where(new == float("-inf"), 0.0, new)
        p = tl.exp2(s - safe[None, :])
        shrink = tl.exp2(top - safe)
        total = total * shrink + tl.sum(p, 0)
        if DROP:
            p = tl.where(kept(seed, least, h[None, :], row, j[:, None]), p * keep, 0.0)
        acc = acc * shrink[:, None] + tl.sum(p[:, :, None] * v, 0)
        top = new
    some = total != 0.0  # NaN is heard
    total = tl.where(some, total, 1.0)
    acc = acc / total[:, None]
    lse = tl.where(some, (top + tl.log2(total)) * 0.6931471805599453, float("-inf"))
    if slot < 0:
        tl.store(Lse + h * n + row, lse)
        at = (h * oh + row * on)[:, None] * DV + y[None, :]
        tl.store(Out + at, acc.to(Out.dtype.element_ty))
    else:
        tl.store(PartLse + h * slots + slot, lse)
        tl.store(PartOut + (h * slots + slot)[:, None] * DV + y[None, :], acc)


@triton.jit(do_not_specialize=NUMBERS)
def backward_rows(
    Q, K, V, Bias, Factor, EdgeKey, EdgeValue, Tables, Sizes, DOut, Out, Lse, Stats,
    DQ, DBias, DFactor, DTables, Unit, Part,
    Row, LowItem, HighItem, Slot, Index,
    scale, n, edges, heads, group, slots, seed, least, keep, oh, on,
    sqh, sqn, skh, skm, svh, svm, sgh, sgn, soh, son,
    VALUE: tl.constexpr, SLOPE: tl.constexpr, SPREAD: tl.constexpr,
    SCORE: tl.constexpr, BIAS: tl.constexpr, FACTOR: tl.constexpr, DROP: tl.constexpr,
    EDGE_KEY: tl.constexpr, EDGE_VALUE: tl.constexpr,
    E: tl.constexpr, H: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    """dq of one row, and the gradients of its edges' biases and factors, and of tables.

    It leaves its log-sum-exp and dout·out in `Stats`, where the columns read both at once.
    """
    row, slot, low, high, h = piece(Row, LowItem, HighItem, Slot, heads // H, H)
    x, y, kh = tl.arange(0, D), tl.arange(0, DV), h // group
    q = one(Q, row, h, sqh, sqn, x) * scale
    g = one(DOut, row, h, sgh, sgn, y)
    delta = tl.sum(g * one(Out, row, h, soh, son, y), 1)
    lse = tl.load(Lse + h * n + row)
    stats = Stats + (row * heads + h) * 2
    tl.store(stats, lse)
    tl.store(stats + 1, delta)
    acc = tl.zeros([H, D], tl.float32)
    for t in range(low, high, E):
        e = t + tl.arange(0, E)
        some = e < high
        j = tl.load(Index + e, mask=some, other=0).to(tl.int64)
        k = heard(K, EdgeKey, j, e, kh, skh, skm, x, some, edges, EDGE_KEY)
        v = heard(V, EdgeValue, j, e, kh, svh, svm, y, some, edges, EDGE_VALUE)
        plain = tl.sum(q[None, :, :] * k, 2)
        s = plain
        if FACTOR:
            factor = per_edge(Factor, e, h, edges, some)
            s *= factor
        before = s
        if SCORE:
            s = VALUE(s, row, j[:, None], h[None, :], Tables, Sizes)
        if BIAS:
            s += per_edge(Bias, e, h, edges, some)
        p = tl.where(some[:, None], tl.exp(s - lse[None, :]), 0.0)
        dp = tl.sum(g[None, :, :] * v, 2)
        if DROP:
            dp = tl.where(kept(seed, least, h[None, :], row, j[:, None]), dp * keep, 0.0)
        ds = p * (dp - delta[None, :])
        place = h[None, :] * edges + e[:, None]
        if BIAS:
            tl.store(DBias + place, ds.to(DBias.dtype.element_ty), mask=some[:, None])
        if SPREAD is not None:
            unit, inside = tl.load(Unit), some[:, None]
            SPREAD(before, row, j[:, None], h[None, :], Tables, Sizes, ds, inside, unit, DTables)
        if SCORE:
            ds = ds * SLOPE(before, row, j[:, None], h[None, :], Tables, Sizes)
        if FACTOR:
            each = (ds * plain).to(DFactor.dtype.element_ty)
            tl.store(DFactor + place, each, mask=some[:, None])
            ds *= factor
        acc += tl.sum(ds[:, :, None] * k, 0)
    acc *= scale
    if slot < 0:
        at = (h * oh + row * on)[:, None] * D + x[None, :]
        tl.store(DQ + at, acc.to(DQ.dtype.element_ty))
    else:
        tl.store(Part + (h * slots + slot)[:, None] * D + x[None, :], acc)


@triton.jit(do_not_specialize=NUMBERS)
def backward_columns(
    Q, K, V, Bias, Factor, EdgeKey, EdgeValue, Tables, Sizes, DOut, Stats,
    DK, DVal, DEdgeKey, DEdgeValue, PartK, PartV,
    Column, LowItem, HighItem, Slot, Row, Edge,
    scale, m, edges, keys, group, slots, seed, least, keep, kh, kn, vh, vn,
    sqh, sqn, skh, skm, svh, svm, sgh, sgn,
    VALUE: tl.constexpr, SLOPE: tl.constexpr, SPREAD: tl.constexpr,
    SCORE: tl.constexpr, BIAS: tl.constexpr, FACTOR: tl.constexpr, DROP: tl.constexpr,
    EDGE_KEY: tl.constexpr, EDGE_VALUE: tl.constexpr,
    E: tl.constexpr, H: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    """dk and dv of one key and of its edges, over the query heads that share it."""
    j, slot, low, high, b = piece(Column, LowItem, HighItem, Slot, keys // H, H)
    x, y = tl.arange(0, D), tl.arange(0, DV)
    k = one(K, j, b, skh, skm, x) * scale
    v = one(V, j, b, svh, svm, y)
    dk, dv = tl.zeros([H, D], tl.float32), tl.zeros([H, DV], tl.float32)
    for near in range(0, group):
        h = b * group + near
        for t in range(low, high, E):
            c = t + tl.arange(0, E)
            some = c < high
            i = tl.load(Row + c, mask=some, other=0).to(tl.int64)
            q = rows_of(Q, i, h, sqh, sqn, x, some)
            g = rows_of(DOut, i, h, sgh, sgn, y, some)
            stats = Stats + (i[:, None] * (keys * group) + h[None, :]) * 2
            lse = tl.load(stats, mask=some[:, None], other=float("inf"))
            delta = tl.load(stats + 1, mask=some[:, None], other=0.0)
            if BIAS or FACTOR or EDGE_KEY or EDGE_VALUE:
                e = tl.load(Edge + c, mask=some, other=0).to(tl.int64)
            s = tl.sum(k[None, :, :] * q, 2)
            dp = tl.sum(v[None, :, :] * g, 2)
            if EDGE_KEY:
                each = tl.load(EdgeKey + of_edges(e, b, edges, x), some[:, None, None], 0.0)
                s += scale * tl.sum(each * q, 2)
            if EDGE_VALUE:
                each = tl.load(EdgeValue + of_edges(e, b, edges, y), some[:, None, None], 0.0)
                dp += tl.sum(each * g, 2)
            if FACTOR:
                factor = per_edge(Factor, e, h, edges, some)
                s *= factor
            before = s
            if SCORE:
                s = VALUE(s, i[:, None], j, h[None, :], Tables, Sizes)
            if BIAS:
                s += per_edge(Bias, e, h, edges, some)
            p = tl.exp(s - lse)
            weight = p
            if DROP:
                weight = tl.where(kept(seed, least, h[None, :], i[:, None], j), p * keep, 0.0)
            ds = weight * dp - p * delta
            if SCORE:
                ds = ds * SLOPE(before, i[:, None], j, h[None, :], Tables, Sizes)
            if FACTOR:
                ds *= factor
            dv += tl.sum(weight[:, :, None] * g, 0)
            dk += tl.sum(ds[:, :, None] * q, 0)
            if EDGE_KEY:
                at = DEdgeKey + of_edges(e, b, edges, x)
                each = ds[:, :, None] * q * scale
                if near > 0:
                    each += tl.load(at, some[:, None, None], 0.0)
                tl.store(at, each, mask=some[:, None, None])
            if EDGE_VALUE:
                at = DEdgeValue + of_edges(e, b, edges, y)
                each = weight[:, :, None] * g
                if near > 0:
                    each += tl.load(at, some[:, None, None], 0.0)
                tl.store(at, each, mask=some[:, None, None])
    dk *= scale
    if slot < 0:
        tl.store(DK + (b * kh + j * kn)[:, None] * D + x[None, :], dk.to(DK.dtype.element_ty))
        tl.store(DVal + (b * vh + j * vn)[:, None] * DV + y[None, :], dv.to(DVal.dtype.element_ty))
    else:
        tl.store(PartK + (b * slots + slot)[:, None] * D + x[None, :], dk)
        tl.store(PartV + (b * slots + slot)[:, None] * DV + y[None, :], dv)
