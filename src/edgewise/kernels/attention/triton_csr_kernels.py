"""Attention over arbitrary edges, in Triton. Imported only by the function that launches it.

One program is one row (or column, or a part of a long one) of one head. Terms of edges are read
where they are given; a score is a function of Triton (triton_score).
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,import-untyped,untyped-decorator"

import triton
import triton.language as tl

from edgewise.kernels.attention.triton_dropout import kept
from edgewise.kernels.attention.triton_parts_kernels import NUMBERS


@triton.jit
def rows_of(X, at, width, x, some, Extra, extra_at, EXTRA: tl.constexpr):
    """Keys (or values) at some places, with what edges add to them."""
    rows = tl.load(X + at[:, None] * width + x, mask=some[:, None], other=0.0).to(tl.float32)
    if EXTRA:
        far = extra_at[:, None] * x.shape[0] + x
        rows += tl.load(Extra + far, mask=some[:, None], other=0.0).to(tl.float32)
    return rows


@triton.jit
def per_edge(X, at, some):
    return tl.load(X + at, mask=some, other=0.0).to(tl.float32)


@triton.jit(do_not_specialize=NUMBERS)
def forward(
    Q, K, V, Bias, Factor, EdgeKey, EdgeValue, Tables, Sizes, Out, Lse, PartOut, PartLse,
    Row, LowItem, HighItem, Slot, Index,
    scale, n, edges, heads, group, slots, seed, least, keep,
    sqh, sqn, skh, skm, svh, svm,
    VALUE: tl.constexpr, SLOPE: tl.constexpr, SPREAD: tl.constexpr,
    SCORE: tl.constexpr, BIAS: tl.constexpr, FACTOR: tl.constexpr, DROP: tl.constexpr,
    EDGE_KEY: tl.constexpr, EDGE_VALUE: tl.constexpr,
    E: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    item, h = tl.program_id(0) // heads, (tl.program_id(0) % heads).to(tl.int64)
    row, slot = tl.load(Row + item).to(tl.int64), tl.load(Slot + item)
    low, high = tl.load(LowItem + item), tl.load(HighItem + item)
    x, y = tl.arange(0, D), tl.arange(0, DV)
    q = tl.load(Q + h * sqh + row * sqn + x).to(tl.float32) * scale
    kh = h // group
    top = tl.full([1], float("-inf"), tl.float32)
    total = tl.zeros([1], tl.float32)
    acc = tl.zeros([DV], tl.float32)
    for t in range(low, high, E):
        e = t + tl.arange(0, E)
        some = e < high
        j = tl.load(Index + e, mask=some, other=0).to(tl.int64)
        k = rows_of(K + kh * skh, j, skm, x, some, EdgeKey, kh * edges + e, EDGE_KEY)
        v = rows_of(V + kh * svh, j, svm, y, some, EdgeValue, kh * edges + e, EDGE_VALUE)
        s = tl.sum(q[None, :] * k, 1)
        if FACTOR:
            s *= per_edge(Factor, h * edges + e, some)
        if SCORE:
            s = VALUE(s, row, j, h, Tables, Sizes)
        if BIAS:
            s += per_edge(Bias, h * edges + e, some)
        s = tl.where(some, s * 1.4426950408889634, float("-inf"))
        new = tl.maximum(top, tl.max(s, 0))
        safe = tl.where(new == float("-inf"), 0.0, new)
        p = tl.exp2(s - safe)
        shrink = tl.exp2(top - safe)
        total = total * shrink + tl.sum(p, 0)
        if DROP:
            p = tl.where(kept(seed, least, h, row, j), p * keep, 0.0)
        acc = acc * shrink + tl.sum(p[:, None] * v, 0)
        top = new
    heard = total != 0.0  # NaN is heard
    total = tl.where(heard, total, 1.0)
    acc = acc / total
    lse = tl.where(heard, (top + tl.log2(total)) * 0.6931471805599453, float("-inf"))
    one = tl.arange(0, 1)
    if slot < 0:
        tl.store(Lse + h * n + row + one, lse)
        tl.store(Out + (h * n + row) * DV + y, acc.to(Out.dtype.element_ty))
    else:
        tl.store(PartLse + h * slots + slot + one, lse)
        tl.store(PartOut + (h * slots + slot) * DV + y, acc)


@triton.jit(do_not_specialize=NUMBERS)
def backward_rows(
    Q, K, V, Bias, Factor, EdgeKey, EdgeValue, Tables, Sizes, DOut, Lse, Delta,
    DQ, DBias, DFactor, DTables, Unit, Part,
    Row, LowItem, HighItem, Slot, Index,
    scale, n, edges, heads, group, slots, seed, least, keep,
    sqh, sqn, skh, skm, svh, svm, soh, son,
    VALUE: tl.constexpr, SLOPE: tl.constexpr, SPREAD: tl.constexpr,
    SCORE: tl.constexpr, BIAS: tl.constexpr, FACTOR: tl.constexpr, DROP: tl.constexpr,
    EDGE_KEY: tl.constexpr, EDGE_VALUE: tl.constexpr,
    E: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    """dq of one row, and the gradients of its edges' biases and factors, and of tables."""
    item, h = tl.program_id(0) // heads, (tl.program_id(0) % heads).to(tl.int64)
    row, slot = tl.load(Row + item).to(tl.int64), tl.load(Slot + item)
    low, high = tl.load(LowItem + item), tl.load(HighItem + item)
    x, y = tl.arange(0, D), tl.arange(0, DV)
    q = tl.load(Q + h * sqh + row * sqn + x).to(tl.float32) * scale
    g = tl.load(DOut + h * soh + row * son + y).to(tl.float32)
    lse, delta = tl.load(Lse + h * n + row), tl.load(Delta + h * n + row)
    kh = h // group
    acc = tl.zeros([D], tl.float32)
    for t in range(low, high, E):
        e = t + tl.arange(0, E)
        some = e < high
        j = tl.load(Index + e, mask=some, other=0).to(tl.int64)
        k = rows_of(K + kh * skh, j, skm, x, some, EdgeKey, kh * edges + e, EDGE_KEY)
        v = rows_of(V + kh * svh, j, svm, y, some, EdgeValue, kh * edges + e, EDGE_VALUE)
        plain = tl.sum(q[None, :] * k, 1)
        s = plain
        if FACTOR:
            factor = per_edge(Factor, h * edges + e, some)
            s *= factor
        before = s
        if SCORE:
            s = VALUE(s, row, j, h, Tables, Sizes)
        if BIAS:
            s += per_edge(Bias, h * edges + e, some)
        p = tl.where(some, tl.exp(s - lse), 0.0)
        dp = tl.sum(g[None, :] * v, 1)
        if DROP:
            dp = tl.where(kept(seed, least, h, row, j), dp * keep, 0.0)
        ds = p * (dp - delta)
        if BIAS:
            tl.store(DBias + h * edges + e, ds.to(DBias.dtype.element_ty), mask=some)
        if SCORE:
            SPREAD(before, row, j, h, Tables, Sizes, ds, some, tl.load(Unit), DTables)
            ds = ds * SLOPE(before, row, j, h, Tables, Sizes)
        if FACTOR:
            each = (ds * plain).to(DFactor.dtype.element_ty)
            tl.store(DFactor + h * edges + e, each, mask=some)
            ds *= factor
        acc += tl.sum(ds[:, None] * k, 0)
    acc *= scale
    if slot < 0:
        tl.store(DQ + (h * n + row) * D + x, acc.to(DQ.dtype.element_ty))
    else:
        tl.store(Part + (h * slots + slot) * D + x, acc)


@triton.jit(do_not_specialize=NUMBERS)
def backward_columns(
    Q, K, V, Bias, Factor, EdgeKey, EdgeValue, Tables, Sizes, DOut, Lse, Delta,
    DK, DVal, DEdgeKey, DEdgeValue, PartK, PartV,
    Column, LowItem, HighItem, Slot, Row, Edge,
    scale, n, m, edges, keys, group, slots, seed, least, keep,
    sqh, sqn, skh, skm, svh, svm, soh, son,
    VALUE: tl.constexpr, SLOPE: tl.constexpr, SPREAD: tl.constexpr,
    SCORE: tl.constexpr, BIAS: tl.constexpr, FACTOR: tl.constexpr, DROP: tl.constexpr,
    EDGE_KEY: tl.constexpr, EDGE_VALUE: tl.constexpr,
    E: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    """dk and dv of one key and of its edges, over the query heads that share it."""
    item, b = tl.program_id(0) // keys, (tl.program_id(0) % keys).to(tl.int64)
    j, slot = tl.load(Column + item).to(tl.int64), tl.load(Slot + item)
    low, high = tl.load(LowItem + item), tl.load(HighItem + item)
    x, y = tl.arange(0, D), tl.arange(0, DV)
    k = tl.load(K + b * skh + j * skm + x).to(tl.float32) * scale
    v = tl.load(V + b * svh + j * svm + y).to(tl.float32)
    dk, dv = tl.zeros([D], tl.float32), tl.zeros([DV], tl.float32)
    for h in range(b * group, (b + 1) * group):
        for t in range(low, high, E):
            c = t + tl.arange(0, E)
            some = c < high
            i = tl.load(Row + c, mask=some, other=0).to(tl.int64)
            q = tl.load(Q + h * sqh + i[:, None] * sqn + x, mask=some[:, None], other=0.0)
            g = tl.load(DOut + h * soh + i[:, None] * son + y, mask=some[:, None], other=0.0)
            q, g = q.to(tl.float32), g.to(tl.float32)
            node = i * (keys * group) + h  # heads of a node lie together, as they are read
            lse = tl.load(Lse + node, mask=some, other=float("inf"))
            delta = tl.load(Delta + node, mask=some, other=0.0)
            if BIAS or FACTOR or EDGE_KEY or EDGE_VALUE:
                e = tl.load(Edge + c, mask=some, other=0).to(tl.int64)
            s = tl.sum(k[None, :] * q, 1)
            dp = tl.sum(v[None, :] * g, 1)
            if EDGE_KEY:
                at = (b * edges + e)[:, None] * D + x
                each = tl.load(EdgeKey + at, mask=some[:, None], other=0.0).to(tl.float32)
                s += scale * tl.sum(each * q, 1)
            if EDGE_VALUE:
                at = (b * edges + e)[:, None] * DV + y
                each = tl.load(EdgeValue + at, mask=some[:, None], other=0.0).to(tl.float32)
                dp += tl.sum(each * g, 1)
            if FACTOR:
                factor = per_edge(Factor, h * edges + e, some)
                s *= factor
            before = s
            if SCORE:
                s = VALUE(s, i, j, h, Tables, Sizes)
            if BIAS:
                s += per_edge(Bias, h * edges + e, some)
            p = tl.exp(s - lse)
            weight = p
            if DROP:
                weight = tl.where(kept(seed, least, h, i, j), p * keep, 0.0)
            ds = weight * dp - p * delta
            if SCORE:
                ds = ds * SLOPE(before, i, j, h, Tables, Sizes)
            if FACTOR:
                ds *= factor
            dv += tl.sum(weight[:, None] * g, 0)
            dk += tl.sum(ds[:, None] * q, 0)
            if EDGE_KEY:
                at = (b * edges + e)[:, None] * D + x
                each = ds[:, None] * q * scale
                if h > b * group:
                    each += tl.load(DEdgeKey + at, mask=some[:, None], other=0.0)
                tl.store(DEdgeKey + at, each, mask=some[:, None])
            if EDGE_VALUE:
                at = (b * edges + e)[:, None] * DV + y
                each = weight[:, None] * g
                if h > b * group:
                    each += tl.load(DEdgeValue + at, mask=some[:, None], other=0.0)
                tl.store(DEdgeValue + at, each, mask=some[:, None])
    dk *= scale
    if slot < 0:
        tl.store(DK + (b * m + j) * D + x, dk.to(DK.dtype.element_ty))
        tl.store(DVal + (b * m + j) * DV + y, dv.to(DVal.dtype.element_ty))
    else:
        tl.store(PartK + (b * slots + slot) * D + x, dk)
        tl.store(PartV + (b * slots + slot) * DV + y, dv)
