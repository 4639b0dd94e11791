"""Flash attention over lists of blocks, in Triton. Imported only by the function that launches it.

One program is one item (triton_tiles) of one head: it keeps its rows (or columns) in registers
and walks through its list, full blocks first, then partial ones with their intervals.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,import-untyped,untyped-decorator"

import triton
import triton.language as tl


@triton.jit
def allowed(KindPtr, Low, High, kind, i, j, BLOCK: tl.constexpr, TURNED: tl.constexpr):
    """Which pairs of rows i and keys j (counted inside the block) a kind of block has."""
    none = (i[:, None] < 0) & (j[None, :] < 0)
    inside = tl.trans(none) if TURNED else none
    for layer in range(tl.load(KindPtr + kind), tl.load(KindPtr + kind + 1)):
        low, high = tl.load(Low + layer * BLOCK + i), tl.load(High + layer * BLOCK + i)
        if TURNED:
            inside |= (j[:, None] >= low[None, :]) & (j[:, None] < high[None, :])
        else:
            inside |= (j[None, :] >= low[:, None]) & (j[None, :] < high[:, None])
    return inside


@triton.jit(do_not_specialize=["n", "m", "slots"])
def forward(
    Q, K, V, Out, Lse, PartOut, PartLse,
    Row, LowItem, Middle, HighItem, Slot, Index, Kind, KindPtr, Low, High,
    scale, n, m, group, slots,
    sqh, sqn, skh, skm, svh, svm,
    BLOCK: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    item, h = tl.program_id(0), tl.program_id(1).to(tl.int64)
    row, slot = tl.load(Row + item), tl.load(Slot + item)
    low, middle, high = tl.load(LowItem + item), tl.load(Middle + item), tl.load(HighItem + item)
    r, x, y = tl.arange(0, BLOCK), tl.arange(0, D), tl.arange(0, DV)
    i = row * BLOCK + r
    q = tl.load(Q + h * sqh + i.to(tl.int64)[:, None] * sqn + x, mask=i[:, None] < n, other=0.0)
    K += (h // group) * skh
    V += (h // group) * svh
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, DV], tl.float32)
    factor = scale * 1.4426950408889634
    for t in range(low, middle):
        j = (tl.load(Index + t) * BLOCK + r).to(tl.int64)
        k = tl.load(K + j[None, :] * skm + x[:, None])
        s = tl.dot(q, k, input_precision=PRECISION) * factor
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        shrink = tl.exp2(top - new)
        total = total * shrink + tl.sum(p, 1)
        v = tl.load(V + j[:, None] * svm + y[None, :])
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision=PRECISION)
        top = new
    for t in range(middle, high):
        j = (tl.load(Index + t) * BLOCK + r).to(tl.int64)
        k = tl.load(K + j[None, :] * skm + x[:, None], mask=j[None, :] < m, other=0.0)
        s = tl.dot(q, k, input_precision=PRECISION) * factor
        inside = allowed(KindPtr, Low, High, tl.load(Kind + t), r, r, BLOCK, False)
        s = tl.where(inside, s, float("-inf"))
        new = tl.maximum(top, tl.max(s, 1))
        safe = tl.where(new == float("-inf"), 0.0, new)
        p = tl.exp2(s - safe[:, None])
        shrink = tl.exp2(top - safe)
        total = total * shrink + tl.sum(p, 1)
        v = tl.load(V + j[:, None] * svm + y[None, :], mask=j[:, None] < m, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision=PRECISION)
        top = new
    some = total > 0.0
    acc = acc / tl.where(some, total, 1.0)[:, None]
    lse = tl.where(some, (top + tl.log2(tl.where(some, total, 1.0))) * 0.6931471805599453,
                   float("-inf"))  # fmt: skip
    if slot < 0:
        at = h * n + i
        tl.store(Lse + at, lse, mask=i < n)
        tl.store(Out + at[:, None] * DV + y, acc.to(Out.dtype.element_ty), mask=i[:, None] < n)
    else:
        at = (h * slots + slot) * BLOCK + r
        tl.store(PartLse + at, lse)
        tl.store(PartOut + at[:, None] * DV + y, acc)


@triton.jit(do_not_specialize=["n", "slots"])
def merge(
    Out, Lse, PartOut, PartLse, Split, SplitPtr, n, slots,
    BLOCK: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    """The parts of a split row, weighted by their shares of its log-sum-exp."""
    s, h = tl.program_id(0), tl.program_id(1).to(tl.int64)
    r, y = tl.arange(0, BLOCK), tl.arange(0, DV)
    first, last = tl.load(SplitPtr + s), tl.load(SplitPtr + s + 1)
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    for t in range(first, last):
        top = tl.maximum(top, tl.load(PartLse + (h * slots + t) * BLOCK + r))
    safe = tl.where(top == float("-inf"), 0.0, top)
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, DV], tl.float32)
    for t in range(first, last):
        at = (h * slots + t) * BLOCK + r
        share = tl.exp(tl.load(PartLse + at) - safe)
        total += share
        acc += share[:, None] * tl.load(PartOut + at[:, None] * DV + y)
    some = total > 0.0
    total = tl.where(some, total, 1.0)
    i = tl.load(Split + s) * BLOCK + r
    at = h * n + i
    tl.store(Lse + at, tl.where(some, safe + tl.log(total), float("-inf")), mask=i < n)
    out = (acc / total[:, None]).to(Out.dtype.element_ty)
    tl.store(Out + at[:, None] * DV + y, out, mask=i[:, None] < n)


@triton.jit(do_not_specialize=["n", "slots"])
def add_up(Sum, Part, Split, SplitPtr, n, slots, BLOCK: tl.constexpr, D: tl.constexpr):
    """The parts of a split row (or column), added."""
    s, h = tl.program_id(0), tl.program_id(1).to(tl.int64)
    r, x = tl.arange(0, BLOCK), tl.arange(0, D)
    acc = tl.zeros([BLOCK, D], tl.float32)
    for t in range(tl.load(SplitPtr + s), tl.load(SplitPtr + s + 1)):
        acc += tl.load(Part + ((h * slots + t) * BLOCK + r)[:, None] * D + x)
    i = tl.load(Split + s) * BLOCK + r
    at = (h * n + i)[:, None] * D + x
    tl.store(Sum + at, acc.to(Sum.dtype.element_ty), mask=i[:, None] < n)


@triton.jit(do_not_specialize=["n", "rows"])
def row_dots(A, B, Out, rows, sah, san, sbh, sbn, n, ROWS: tl.constexpr, D: tl.constexpr):
    """Σ over features of a·b, for each row of (heads, n, D)."""
    at = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    x = tl.arange(0, D)
    h, i = (at // n).to(tl.int64), (at % n).to(tl.int64)
    inside = (at < rows)[:, None]
    a = tl.load(A + h[:, None] * sah + i[:, None] * san + x, mask=inside, other=0.0)
    b = tl.load(B + h[:, None] * sbh + i[:, None] * sbn + x, mask=inside, other=0.0)
    tl.store(Out + at, tl.sum(a.to(tl.float32) * b.to(tl.float32), 1), mask=at < rows)


@triton.jit(do_not_specialize=["n", "m", "slots"])
def backward_rows(
    Q, K, V, DOut, Lse, Delta, DQ, Part,
    Row, LowItem, Middle, HighItem, Slot, Index, Kind, KindPtr, Low, High,
    scale, n, m, group, slots,
    sqh, sqn, skh, skm, svh, svm, soh, son,
    BLOCK: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dq of the rows of one item."""
    item, h = tl.program_id(0), tl.program_id(1).to(tl.int64)
    row, slot = tl.load(Row + item), tl.load(Slot + item)
    low, middle, high = tl.load(LowItem + item), tl.load(Middle + item), tl.load(HighItem + item)
    r, x, y = tl.arange(0, BLOCK), tl.arange(0, D), tl.arange(0, DV)
    i = row * BLOCK + r
    wide = i.to(tl.int64)[:, None]
    q = tl.load(Q + h * sqh + wide * sqn + x, mask=i[:, None] < n, other=0.0)
    g = tl.load(DOut + h * soh + wide * son + y, mask=i[:, None] < n, other=0.0)
    lse = tl.load(Lse + h * n + i, mask=i < n, other=float("inf")) * 1.4426950408889634
    delta = tl.load(Delta + h * n + i, mask=i < n, other=0.0)
    K += (h // group) * skh
    V += (h // group) * svh
    acc = tl.zeros([BLOCK, D], tl.float32)
    factor = scale * 1.4426950408889634
    for t in range(low, middle):
        j = (tl.load(Index + t) * BLOCK + r).to(tl.int64)
        k = tl.load(K + j[:, None] * skm + x[None, :])
        v = tl.load(V + j[:, None] * svm + y[None, :])
        p = tl.exp2(tl.dot(q, tl.trans(k), input_precision=PRECISION) * factor - lse[:, None])
        dp = tl.dot(g, tl.trans(v), input_precision=PRECISION)
        ds = (p * (dp - delta[:, None])).to(k.dtype)
        acc = tl.dot(ds, k, acc, input_precision=PRECISION)
    for t in range(middle, high):
        j = (tl.load(Index + t) * BLOCK + r).to(tl.int64)
        k = tl.load(K + j[:, None] * skm + x[None, :], mask=j[:, None] < m, other=0.0)
        v = tl.load(V + j[:, None] * svm + y[None, :], mask=j[:, None] < m, other=0.0)
        p = tl.exp2(tl.dot(q, tl.trans(k), input_precision=PRECISION) * factor - lse[:, None])
        inside = allowed(KindPtr, Low, High, tl.load(Kind + t), r, r, BLOCK, False)
        p = tl.where(inside, p, 0.0)
        dp = tl.dot(g, tl.trans(v), input_precision=PRECISION)
        ds = (p * (dp - delta[:, None])).to(k.dtype)
        acc = tl.dot(ds, k, acc, input_precision=PRECISION)
    acc *= scale
    if slot < 0:
        at = (h * n + i)[:, None] * D + x
        tl.store(DQ + at, acc.to(DQ.dtype.element_ty), mask=i[:, None] < n)
    else:
        tl.store(Part + ((h * slots + slot) * BLOCK + r)[:, None] * D + x, acc)


@triton.jit(do_not_specialize=["n", "m", "slots"])
def backward_columns(
    Q, K, V, DOut, Lse, Delta, DK, DV_, PartK, PartV,
    Row, LowItem, Middle, HighItem, Slot, Index, Kind, KindPtr, Low, High,
    scale, n, m, group, slots,
    sqh, sqn, skh, skm, svh, svm, soh, son,
    BLOCK: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dk and dv of the keys of one item, over the query heads that share them."""
    item, b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    column, slot = tl.load(Row + item), tl.load(Slot + item)
    low, middle, high = tl.load(LowItem + item), tl.load(Middle + item), tl.load(HighItem + item)
    r, x, y = tl.arange(0, BLOCK), tl.arange(0, D), tl.arange(0, DV)
    j = column * BLOCK + r
    wide = j.to(tl.int64)[:, None]
    k = tl.load(K + b * skh + wide * skm + x, mask=j[:, None] < m, other=0.0)
    v = tl.load(V + b * svh + wide * svm + y, mask=j[:, None] < m, other=0.0)
    dk, dv = tl.zeros([BLOCK, D], tl.float32), tl.zeros([BLOCK, DV], tl.float32)
    factor = scale * 1.4426950408889634
    for h in range(b * group, (b + 1) * group):
        for t in range(low, middle):
            i = (tl.load(Index + t) * BLOCK + r).to(tl.int64)
            q = tl.load(Q + h * sqh + i[:, None] * sqn + x[None, :])
            g = tl.load(DOut + h * soh + i[:, None] * son + y[None, :])
            lse = tl.load(Lse + h * n + i) * 1.4426950408889634
            delta = tl.load(Delta + h * n + i)
            p = tl.exp2(tl.dot(k, tl.trans(q), input_precision=PRECISION) * factor - lse[None, :])
            dv = tl.dot(p.to(g.dtype), g, dv, input_precision=PRECISION)
            dp = tl.dot(v, tl.trans(g), input_precision=PRECISION)
            ds = (p * (dp - delta[None, :])).to(q.dtype)
            dk = tl.dot(ds, q, dk, input_precision=PRECISION)
        for t in range(middle, high):
            i = (tl.load(Index + t) * BLOCK + r).to(tl.int64)
            q = tl.load(Q + h * sqh + i[:, None] * sqn + x[None, :], mask=i[:, None] < n, other=0.0)
            g = tl.load(
                DOut + h * soh + i[:, None] * son + y[None, :], mask=i[:, None] < n, other=0.0
            )
            lse = tl.load(Lse + h * n + i, mask=i < n, other=float("inf")) * 1.4426950408889634
            delta = tl.load(Delta + h * n + i, mask=i < n, other=0.0)
            p = tl.exp2(tl.dot(k, tl.trans(q), input_precision=PRECISION) * factor - lse[None, :])
            inside = allowed(KindPtr, Low, High, tl.load(Kind + t), r, r, BLOCK, True)
            p = tl.where(inside, p, 0.0)
            dv = tl.dot(p.to(g.dtype), g, dv, input_precision=PRECISION)
            dp = tl.dot(v, tl.trans(g), input_precision=PRECISION)
            ds = (p * (dp - delta[None, :])).to(q.dtype)
            dk = tl.dot(ds, q, dk, input_precision=PRECISION)
    dk *= scale
    if slot < 0:
        at = (b * m + j)[:, None]
        tl.store(DK + at * D + x, dk.to(DK.dtype.element_ty), mask=j[:, None] < m)
        tl.store(DV_ + at * DV + y, dv.to(DV_.dtype.element_ty), mask=j[:, None] < m)
    else:
        at = ((b * slots + slot) * BLOCK + r)[:, None]
        tl.store(PartK + at * D + x, dk)
        tl.store(PartV + at * DV + y, dv)
