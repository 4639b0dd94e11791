"""Flash attention over lists of blocks, in Triton. Imported only by the function that launches it.

One program is one item (triton_tiles) of one head: it keeps its rows (or columns) in registers
and walks through its list, full blocks first, then partial ones with their intervals.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,import-untyped,untyped-decorator"

import triton
import triton.language as tl


@triton.jit
def between(Low, High, layer, i, j, BLOCK: tl.constexpr, TURNED: tl.constexpr):
    """low ≤ j < high with the ends of each row i; turned: keys down."""
    low, high = tl.load(Low + layer * BLOCK + i), tl.load(High + layer * BLOCK + i)
    if TURNED:
        found = (j[:, None] >= low[None, :]) & (j[:, None] < high[None, :])
    else:
        found = (j[None, :] >= low[:, None]) & (j[None, :] < high[:, None])
    return found


@triton.jit
def allowed(KindPtr, Low, High, kind, i, j,
            BLOCK: tl.constexpr, TURNED: tl.constexpr, ONE: tl.constexpr):  # fmt: skip
    """Which pairs of rows i and keys j (counted inside the block) a kind of block has.

    Where every kind is ONE layer there is no loop, so that loads of the next block can overlap.
    """
    if ONE:
        inside = between(Low, High, kind, i, j, BLOCK, TURNED)
    else:
        first = tl.load(KindPtr + kind)
        inside = between(Low, High, first, i, j, BLOCK, TURNED)
        for layer in range(first + 1, tl.load(KindPtr + kind + 1)):
            inside |= between(Low, High, layer, i, j, BLOCK, TURNED)
    return inside


@triton.jit
def softmax_step(q, k, v, top, total, acc, inside, factor,
                 MASKED: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """One more tile of keys: the running maximum, the sum of weights and the weighted values."""
    s = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    if MASKED:
        s = tl.where(inside, s, float("-inf"))
    new = tl.maximum(top, tl.max(s, 1) * factor)
    safe = tl.where(new == float("-inf"), 0.0, new) if MASKED else new
    p = tl.exp2(s * factor - safe[:, None])
    shrink = tl.exp2(top - safe)
    total = total * shrink + tl.sum(p, 1)
    acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision=PRECISION)
    return new, total, acc


@triton.jit(do_not_specialize=["n", "m", "slots"])
def forward(
    Q, K, V, Out, Lse, PartOut, PartLse,
    Row, LowItem, Middle, HighItem, Slot, Index, Kind, KindPtr, Low, High,
    scale, n, m, group, slots,
    sqh, sqn, skh, skm, svh, svm,
    BLOCK: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    ONE: tl.constexpr, PRECISION: tl.constexpr,
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
        at = tl.load(Index + t).to(tl.int64) * BLOCK
        k = tl.load(K + at * skm + (r[:, None] * skm + x[None, :]))
        v = tl.load(V + at * svm + (r[:, None] * svm + y[None, :]))
        top, total, acc = softmax_step(q, k, v, top, total, acc, 0, factor, False, PRECISION)
    for t in range(middle, high):
        at = tl.load(Index + t).to(tl.int64) * BLOCK
        there = (at + r)[:, None] < m
        k = tl.load(K + at * skm + (r[:, None] * skm + x[None, :]), mask=there, other=0.0)
        v = tl.load(V + at * svm + (r[:, None] * svm + y[None, :]), mask=there, other=0.0)
        inside = allowed(KindPtr, Low, High, tl.load(Kind + t), r, r, BLOCK, False, ONE)
        top, total, acc = softmax_step(q, k, v, top, total, acc, inside, factor, True, PRECISION)
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


@triton.jit
def score_gradient(q, g, k, v, lse, delta, inside, factor,
                   MASKED: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """Weights and gradients of the scores of one tile, rows down."""
    p = tl.exp2(tl.dot(q, tl.trans(k), input_precision=PRECISION) * factor - lse[:, None])
    if MASKED:
        p = tl.where(inside, p, 0.0)
    dp = tl.dot(g, tl.trans(v), input_precision=PRECISION)
    return (p * (dp - delta[:, None])).to(k.dtype)


@triton.jit(do_not_specialize=["n", "m", "slots"])
def backward_rows(
    Q, K, V, DOut, Lse, Delta, DQ, Part,
    Row, LowItem, Middle, HighItem, Slot, Index, Kind, KindPtr, Low, High,
    scale, n, m, group, slots,
    sqh, sqn, skh, skm, svh, svm, soh, son,
    BLOCK: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    ONE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dq of the rows of one item."""
    item, h = tl.program_id(0), tl.program_id(1).to(tl.int64)
    row, slot = tl.load(Row + item), tl.load(Slot + item)
    low, middle, high = tl.load(LowItem + item), tl.load(Middle + item), tl.load(HighItem + item)
    r, x, y = tl.arange(0, BLOCK), tl.arange(0, D), tl.arange(0, DV)
    i = row * BLOCK + r
    far = i.to(tl.int64)[:, None]
    q = tl.load(Q + h * sqh + far * sqn + x, mask=i[:, None] < n, other=0.0)
    g = tl.load(DOut + h * soh + far * son + y, mask=i[:, None] < n, other=0.0)
    lse = tl.load(Lse + h * n + i, mask=i < n, other=float("inf")) * 1.4426950408889634
    delta = tl.load(Delta + h * n + i, mask=i < n, other=0.0)
    K += (h // group) * skh
    V += (h // group) * svh
    acc = tl.zeros([BLOCK, D], tl.float32)
    factor = scale * 1.4426950408889634
    for t in range(low, middle):
        at = tl.load(Index + t).to(tl.int64) * BLOCK
        k = tl.load(K + at * skm + (r[:, None] * skm + x[None, :]))
        v = tl.load(V + at * svm + (r[:, None] * svm + y[None, :]))
        ds = score_gradient(q, g, k, v, lse, delta, 0, factor, False, PRECISION)
        acc = tl.dot(ds, k, acc, input_precision=PRECISION)
    for t in range(middle, high):
        at = tl.load(Index + t).to(tl.int64) * BLOCK
        there = (at + r)[:, None] < m
        k = tl.load(K + at * skm + (r[:, None] * skm + x[None, :]), mask=there, other=0.0)
        v = tl.load(V + at * svm + (r[:, None] * svm + y[None, :]), mask=there, other=0.0)
        inside = allowed(KindPtr, Low, High, tl.load(Kind + t), r, r, BLOCK, False, ONE)
        ds = score_gradient(q, g, k, v, lse, delta, inside, factor, True, PRECISION)
        acc = tl.dot(ds, k, acc, input_precision=PRECISION)
    acc *= scale
    if slot < 0:
        at = (h * n + i)[:, None] * D + x
        tl.store(DQ + at, acc.to(DQ.dtype.element_ty), mask=i[:, None] < n)
    else:
        tl.store(Part + ((h * slots + slot) * BLOCK + r)[:, None] * D + x, acc)


@triton.jit
def key_gradients(q, g, k, v, lse, delta, dk, dv, inside, factor,
                  MASKED: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """dk and dv with one more tile of queries; scores are held keys down."""
    p = tl.exp2(tl.dot(k, tl.trans(q), input_precision=PRECISION) * factor - lse[None, :])
    if MASKED:
        p = tl.where(inside, p, 0.0)
    dv = tl.dot(p.to(g.dtype), g, dv, input_precision=PRECISION)
    dp = tl.dot(v, tl.trans(g), input_precision=PRECISION)
    ds = (p * (dp - delta[None, :])).to(q.dtype)
    return tl.dot(ds, q, dk, input_precision=PRECISION), dv


@triton.jit(do_not_specialize=["n", "m", "slots"])
def backward_columns(
    Q, K, V, DOut, Lse, Delta, DK, DV_, PartK, PartV,
    Row, LowItem, Middle, HighItem, Slot, Index, Kind, KindPtr, Low, High,
    scale, n, m, group, slots,
    sqh, sqn, skh, skm, svh, svm, soh, son,
    BLOCK: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    ONE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dk and dv of the keys of one item, over the query heads that share them."""
    item, b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    column, slot = tl.load(Row + item), tl.load(Slot + item)
    low, middle, high = tl.load(LowItem + item), tl.load(Middle + item), tl.load(HighItem + item)
    r, x, y = tl.arange(0, BLOCK), tl.arange(0, D), tl.arange(0, DV)
    j = column * BLOCK + r
    far = j.to(tl.int64)[:, None]
    k = tl.load(K + b * skh + far * skm + x, mask=j[:, None] < m, other=0.0)
    v = tl.load(V + b * svh + far * svm + y, mask=j[:, None] < m, other=0.0)
    dk, dv = tl.zeros([BLOCK, D], tl.float32), tl.zeros([BLOCK, DV], tl.float32)
    factor = scale * 1.4426950408889634
    for h in range(b * group, (b + 1) * group):
        for t in range(low, middle):
            at = tl.load(Index + t).to(tl.int64) * BLOCK
            q = tl.load(Q + h * sqh + at * sqn + (r[:, None] * sqn + x[None, :]))
            g = tl.load(DOut + h * soh + at * son + (r[:, None] * son + y[None, :]))
            lse = tl.load(Lse + h * n + at + r) * 1.4426950408889634
            delta = tl.load(Delta + h * n + at + r)
            dk, dv = key_gradients(q, g, k, v, lse, delta, dk, dv, 0, factor, False, PRECISION)
        for t in range(middle, high):
            at = tl.load(Index + t).to(tl.int64) * BLOCK
            here = at + r < n
            there = here[:, None]
            q = tl.load(
                Q + h * sqh + at * sqn + (r[:, None] * sqn + x[None, :]), mask=there, other=0.0
            )
            g = tl.load(
                DOut + h * soh + at * son + (r[:, None] * son + y[None, :]), mask=there, other=0.0
            )
            lse = tl.load(Lse + h * n + at + r, mask=here, other=float("inf")) * 1.4426950408889634
            delta = tl.load(Delta + h * n + at + r, mask=here, other=0.0)
            inside = allowed(KindPtr, Low, High, tl.load(Kind + t), r, r, BLOCK, True, ONE)
            dk, dv = key_gradients(q, g, k, v, lse, delta, dk, dv, inside, factor, True, PRECISION)
    dk *= scale
    if slot < 0:
        at = (b * m + j)[:, None]
        tl.store(DK + at * D + x, dk.to(DK.dtype.element_ty), mask=j[:, None] < m)
        tl.store(DV_ + at * DV + y, dv.to(DV_.dtype.element_ty), mask=j[:, None] < m)
    else:
        at = ((b * slots + slot) * BLOCK + r)[:, None]
        tl.store(PartK + at * D + x, dk)
        tl.store(PartV + at * DV + y, dv)
