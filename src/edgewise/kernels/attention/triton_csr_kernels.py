"""Attention over arbitrary edges, in Triton. Imported only by the function that launches it.

One program is one row (or column, or a part of a long one) of one head. A bias and a dropout
factor per edge are read where they are given.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,import-untyped,untyped-decorator"

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["n", "slots", "edges"])
def forward(
    Q, K, V, Bias, Keep, Out, Lse, PartOut, PartLse,
    Row, LowItem, HighItem, Slot, Index,
    scale, n, edges, heads, group, slots,
    sqh, sqn, skh, skm, svh, svm,
    BIAS: tl.constexpr, KEEP: tl.constexpr,
    E: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    item, h = tl.program_id(0) // heads, (tl.program_id(0) % heads).to(tl.int64)
    row, slot = tl.load(Row + item).to(tl.int64), tl.load(Slot + item)
    low, high = tl.load(LowItem + item), tl.load(HighItem + item)
    x, y = tl.arange(0, D), tl.arange(0, DV)
    q = tl.load(Q + h * sqh + row * sqn + x).to(tl.float32) * (scale * 1.4426950408889634)
    K += (h // group) * skh
    V += (h // group) * svh
    top = tl.full([1], float("-inf"), tl.float32)
    total = tl.zeros([1], tl.float32)
    acc = tl.zeros([DV], tl.float32)
    for t in range(low, high, E):
        e = t + tl.arange(0, E)
        some = e < high
        j = tl.load(Index + e, mask=some, other=0).to(tl.int64)
        k = tl.load(K + j[:, None] * skm + x, mask=some[:, None], other=0.0).to(tl.float32)
        v = tl.load(V + j[:, None] * svm + y, mask=some[:, None], other=0.0).to(tl.float32)
        s = tl.sum(q[None, :] * k, 1)
        if BIAS:
            bias = tl.load(Bias + h * edges + e, mask=some, other=0.0).to(tl.float32)
            s += bias * 1.4426950408889634
        s = tl.where(some, s, float("-inf"))
        new = tl.maximum(top, tl.max(s, 0))
        safe = tl.where(new == float("-inf"), 0.0, new)
        p = tl.exp2(s - safe)
        shrink = tl.exp2(top - safe)
        total = total * shrink + tl.sum(p, 0)
        if KEEP:
            p *= tl.load(Keep + h * edges + e, mask=some, other=0.0).to(tl.float32)
        acc = acc * shrink + tl.sum(p[:, None] * v, 0)
        top = new
    heard = total > 0.0
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


@triton.jit(do_not_specialize=["n", "slots", "edges"])
def backward_rows(
    Q, K, V, Bias, Keep, DOut, Lse, Delta, DQ, DBias, Part,
    Row, LowItem, HighItem, Slot, Index,
    scale, n, edges, heads, group, slots,
    sqh, sqn, skh, skm, svh, svm, soh, son,
    BIAS: tl.constexpr, KEEP: tl.constexpr,
    E: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    """dq of one row, and the gradient of each of its edges' bias."""
    item, h = tl.program_id(0) // heads, (tl.program_id(0) % heads).to(tl.int64)
    row, slot = tl.load(Row + item).to(tl.int64), tl.load(Slot + item)
    low, high = tl.load(LowItem + item), tl.load(HighItem + item)
    x, y = tl.arange(0, D), tl.arange(0, DV)
    q = tl.load(Q + h * sqh + row * sqn + x).to(tl.float32) * scale
    g = tl.load(DOut + h * soh + row * son + y).to(tl.float32)
    lse, delta = tl.load(Lse + h * n + row), tl.load(Delta + h * n + row)
    K += (h // group) * skh
    V += (h // group) * svh
    acc = tl.zeros([D], tl.float32)
    for t in range(low, high, E):
        e = t + tl.arange(0, E)
        some = e < high
        j = tl.load(Index + e, mask=some, other=0).to(tl.int64)
        k = tl.load(K + j[:, None] * skm + x, mask=some[:, None], other=0.0).to(tl.float32)
        v = tl.load(V + j[:, None] * svm + y, mask=some[:, None], other=0.0).to(tl.float32)
        s = tl.sum(q[None, :] * k, 1)
        if BIAS:
            s += tl.load(Bias + h * edges + e, mask=some, other=0.0).to(tl.float32)
        p = tl.where(some, tl.exp(s - lse), 0.0)
        dp = tl.sum(g[None, :] * v, 1)
        if KEEP:
            dp *= tl.load(Keep + h * edges + e, mask=some, other=0.0).to(tl.float32)
        ds = p * (dp - delta)
        if BIAS:
            tl.store(DBias + h * edges + e, ds.to(DBias.dtype.element_ty), mask=some)
        acc += tl.sum(ds[:, None] * k, 0)
    acc *= scale
    if slot < 0:
        tl.store(DQ + (h * n + row) * D + x, acc.to(DQ.dtype.element_ty))
    else:
        tl.store(Part + (h * slots + slot) * D + x, acc)


@triton.jit(do_not_specialize=["n", "m", "slots", "edges"])
def backward_columns(
    Q, K, V, Bias, Keep, DOut, Lse, Delta, DK, DVal, PartK, PartV,
    Column, LowItem, HighItem, Slot, Row, Edge,
    scale, n, m, edges, keys, group, slots,
    sqh, sqn, skh, skm, svh, svm, soh, son,
    BIAS: tl.constexpr, KEEP: tl.constexpr,
    E: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    """dk and dv of one key, over the query heads that share it."""
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
            lse = tl.load(Lse + h * n + i, mask=some, other=float("inf"))
            delta = tl.load(Delta + h * n + i, mask=some, other=0.0)
            s = tl.sum(k[None, :] * q, 1)
            if BIAS or KEEP:
                e = tl.load(Edge + c, mask=some, other=0).to(tl.int64)
            if BIAS:
                s += tl.load(Bias + h * edges + e, mask=some, other=0.0).to(tl.float32)
            p = tl.exp(s - lse)
            dp = tl.sum(v[None, :] * g, 1)
            kept = p
            if KEEP:
                kept = p * tl.load(Keep + h * edges + e, mask=some, other=0.0).to(tl.float32)
            ds = kept * dp - p * delta
            dv += tl.sum(kept[:, None] * g, 0)
            dk += tl.sum(ds[:, None] * q, 0)
    dk *= scale
    if slot < 0:
        tl.store(DK + (b * m + j) * D + x, dk.to(DK.dtype.element_ty))
        tl.store(DVal + (b * m + j) * DV + y, dv.to(DVal.dtype.element_ty))
    else:
        tl.store(PartK + (b * slots + slot) * D + x, dk)
        tl.store(PartV + (b * slots + slot) * DV + y, dv)
