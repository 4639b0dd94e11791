"""Flash attention over lists of blocks, in Triton. Imported only by the function that launches it.

One program is one item (`lists`) of one head: it keeps its rows (or columns) in registers
and walks through its list. What is read by tiles are descriptors of (batch, heads, tokens,
features) for the copy engine of the chip, with zeros beyond the last token, and beyond the last
feature: D and DV of them lie in tiles of WD and WV, powers of two. What is written has
its features side by side; three numbers per tensor say how many times `features` apart elements of
the batch (ob), heads (oh) and tokens (on) are, so that it can lie as the inputs do.

What bounds these loops on an H200 is latency, not the arithmetic: a small tile that needs so few
registers that four (three) programs share a multiprocessor beats every larger one. The list is
walked in one loop, because ptxas runs the products of two loops one after the other.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,import-untyped,untyped-decorator"

import triton
import triton.language as tl

from edgewise.kernels.attention.triton.parts_kernels import NUMBERS, cells, parted, strided
from edgewise.kernels.edges.triton_attention_kernels import survives

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def halves(word):
    """The low and the high 32 bits: one load instead of two."""
    return (word & 0xFFFFFFFF).to(tl.int32), (word >> 32).to(tl.int32)


@triton.jit
def placed(first, items, many):
    """The item and the head of this program: the `first` items are long, and start first."""
    at, lead = tl.program_id(0), first * many
    late = at >= lead
    width = tl.where(late, items - first, first)
    at = tl.where(late, at - lead, at)
    return at % width + tl.where(late, first, 0), at // width


@triton.jit
def between(ends, j, TURNED: tl.constexpr):
    """low ≤ j < high with the ends of each row; turned: keys down."""
    low = ends & 0xFFFF
    size = ((ends >> 16) - low).to(tl.uint32)
    if TURNED:
        found = (j[:, None] - low[None, :]).to(tl.uint32) < size[None, :]
    else:
        found = (j[None, :] - low[:, None]).to(tl.uint32) < size[:, None]
    return found


@triton.jit
def bits(word, j, TURNED: tl.constexpr):
    """Bit j of the word of each row; turned: keys down."""
    low, high = halves(word)
    if TURNED:
        half = tl.where(j[:, None] < 32, low[None, :], high[None, :]) >> (j & 31)[:, None]
    else:
        half = tl.where(j[None, :] < 32, low[:, None], high[:, None]) >> (j & 31)[None, :]
    return (half & 1) != 0


@triton.jit
def allowed(LayerPtr, Ends, kind, ends, r,
            BLOCK: tl.constexpr, TURNED: tl.constexpr, FORM: tl.constexpr):  # fmt: skip
    """Which pairs a partial block of this kind has; `ends` is its one layer, or its bits."""
    if FORM == 2:
        inside = bits(ends, r, TURNED)
    elif FORM == 1:
        inside = between(ends, r, TURNED)
    else:
        first = tl.load(LayerPtr + kind)
        inside = between(tl.load(Ends + first * BLOCK + r), r, TURNED)
        for layer in range(first + 1, tl.load(LayerPtr + kind + 1)):
            inside |= between(tl.load(Ends + layer * BLOCK + r), r, TURNED)
    return inside


@triton.jit
def scored(
    dot, i, j, h, scale, Tables, Sizes, Bias, sbh, sbn, sbm, n, m,
    VALUE: tl.constexpr, SCORE: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """Scores to base 2 from dot products, where there is more to them than a factor."""
    s = dot * scale
    if SCORE:
        s = VALUE(s, i, j, h, Tables, Sizes)
    if BIAS:
        at = h.to(tl.int64) * sbh + i.to(tl.int64) * sbn + j * sbm
        s += tl.load(Bias + at, mask=(i < n) & (j < m), other=0.0).to(tl.float32)
    return s * LOG2E


@triton.jit(do_not_specialize=NUMBERS)
def forward(
    Q, K, V, Out, Lse, PartOut, PartLse, Items, Work, LayerPtr, Ends,
    scale, n, first, items, many, heads, group, slots, ob, oh, on,
    Tables, Sizes, Bias, sbh, sbn, sbm, m, seed, least, keep,
    VALUE: tl.constexpr, SLOPE: tl.constexpr, SPREAD: tl.constexpr,
    SCORE: tl.constexpr, BIAS: tl.constexpr, DROP: tl.constexpr,
    BLOCK: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    WD: tl.constexpr, WV: tl.constexpr,
    FORM: tl.constexpr, BATCH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    item, h = placed(first, items, many)
    row, slot = tl.load(Items + 4 * item), tl.load(Items + 4 * item + 1)
    low, high = tl.load(Items + 4 * item + 2), tl.load(Items + 4 * item + 3)
    r, y = tl.arange(0, BLOCK), tl.arange(0, WV)
    b, near = parted(h, heads, BATCH)
    q = Q.load([b, near, row * BLOCK, 0]).reshape(BLOCK, WD)
    shared = near // group
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, WV], tl.float32)
    factor = 1.0 if SCORE or BIAS else scale * LOG2E
    for t in range(low, high):
        block, kind = halves(tl.load(Work + t))
        k = K.load([b, shared, block * BLOCK, 0]).reshape(BLOCK, WD)
        v = V.load([b, shared, block * BLOCK, 0]).reshape(BLOCK, WV)
        # Of full blocks too: a load that is always there is fetched while the last tile runs.
        ends = tl.load(Ends + tl.maximum(kind, 0) * BLOCK + r)
        s = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        if SCORE or BIAS or DROP:
            i, j = (row * BLOCK + r)[:, None], (block * BLOCK + r)[None, :]
        if SCORE or BIAS:
            s = scored(s, i, j, h, scale, Tables, Sizes, Bias, sbh, sbn, sbm, n, m,
                       VALUE, SCORE, BIAS)  # fmt: skip
        if kind >= 0:
            inside = allowed(LayerPtr, Ends, kind, ends, r, BLOCK, False, FORM)
            s = tl.where(inside, s, float("-inf"))
        new = tl.maximum(top, tl.max(s, 1) * factor)
        safe = tl.where(new == float("-inf"), 0.0, new)
        p = tl.exp2(s * factor - safe[:, None])
        shrink = tl.exp2(top - safe)
        total = total * shrink + tl.sum(p, 1)
        if DROP:
            p = tl.where(survives(seed, least, h.to(tl.int64), i, j), p * keep, 0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision=PRECISION)
        top = new
    some = total != 0.0  # NaN counts
    acc *= (1.0 / tl.where(some, total, 1.0))[:, None]
    lse = tl.where(some, (top + tl.log2(tl.where(some, total, 1.0))) * LN2, float("-inf"))
    own, far = row * BLOCK + r, h.to(tl.int64)
    if slot < 0:
        there = own < n
        tl.store(Lse + far * n + own, lse, mask=there)
        to = strided(h, own, heads, ob, oh, on, BATCH)[:, None] * DV + y
        tl.store(Out + to, acc.to(Out.dtype.element_ty), mask=cells(there[:, None], y, DV, WV))
    else:
        at = (far * slots + slot) * BLOCK + r
        tl.store(PartLse + at, lse)
        tl.store(PartOut + at[:, None] * WV + y, acc)


@triton.jit(do_not_specialize=NUMBERS)
def backward_rows(
    Q, K, V, G, Out, Lse, Stats, DQ, Part, Items, Work, LayerPtr, Ends,
    scale, n, first, items, many, heads, group, slots, ob, oh, on,
    DTables, DBias, Unit,
    Tables, Sizes, Bias, sbh, sbn, sbm, m, seed, least, keep,
    VALUE: tl.constexpr, SLOPE: tl.constexpr, SPREAD: tl.constexpr,
    SCORE: tl.constexpr, BIAS: tl.constexpr, DROP: tl.constexpr,
    BLOCK: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    WD: tl.constexpr, WV: tl.constexpr,
    FORM: tl.constexpr, BATCH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dq of the rows of one item.

    On the way it leaves, for the other pass, two numbers per row in one word: the log-sum-exp to
    base 2 and delta = Σ over features of dout·out. They are read once per tile, in a layout in
    which every number is an instruction.
    """
    item, h = placed(first, items, many)
    row, slot = tl.load(Items + 4 * item), tl.load(Items + 4 * item + 1)
    low, high = tl.load(Items + 4 * item + 2), tl.load(Items + 4 * item + 3)
    r, x = tl.arange(0, BLOCK), tl.arange(0, WD)
    i, far = row * BLOCK + r, h.to(tl.int64)
    b, near = parted(h, heads, BATCH)
    q = Q.load([b, near, row * BLOCK, 0]).reshape(BLOCK, WD)
    g = G.load([b, near, row * BLOCK, 0]).reshape(BLOCK, WV)
    out = Out.load([b, near, row * BLOCK, 0]).reshape(BLOCK, WV)
    delta = tl.sum(g.to(tl.float32) * out.to(tl.float32), 1)
    lse = tl.load(Lse + far * n + i, mask=i < n, other=float("inf")) * LOG2E
    lse = tl.where(lse == float("-inf"), float("inf"), lse)  # the row is empty: weights are 0
    word = lse.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
    word |= delta.to(tl.int32, bitcast=True).to(tl.int64) << 32
    tl.store(Stats + far * (tl.cdiv(n, BLOCK) * BLOCK) + i, word)
    shared = near // group
    acc = tl.zeros([BLOCK, WD], tl.float32)
    factor = 1.0 if SCORE or BIAS else scale * LOG2E
    for t in range(low, high):
        block, kind = halves(tl.load(Work + t))
        k = K.load([b, shared, block * BLOCK, 0]).reshape(BLOCK, WD)
        v = V.load([b, shared, block * BLOCK, 0]).reshape(BLOCK, WV)
        ends = tl.load(Ends + tl.maximum(kind, 0) * BLOCK + r)
        s = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        if SCORE or BIAS or DROP:
            down, across = (row * BLOCK + r)[:, None], (block * BLOCK + r)[None, :]
            before = s * scale
        if SCORE or BIAS:
            s = scored(s, down, across, h, scale, Tables, Sizes, Bias, sbh, sbn, sbm, n, m,
                       VALUE, SCORE, BIAS)  # fmt: skip
        p = tl.exp2(s * factor - lse[:, None])
        if kind >= 0:
            inside = allowed(LayerPtr, Ends, kind, ends, r, BLOCK, False, FORM)
            p = tl.where(inside, p, 0.0)
        dp = tl.dot(g, tl.trans(v), input_precision=PRECISION)
        if DROP:
            dp = tl.where(survives(seed, least, far, down, across), dp * keep, 0.0)
        ds = p * (dp - delta[:, None])
        if BIAS:  # integers, so that sums are the same in whatever order they come
            at = far * sbh + down.to(tl.int64) * sbn + across * sbm
            tl.atomic_add(DBias + at, (ds * tl.load(Unit)).to(tl.int64), mask=p > 0.0)
        if SPREAD is not None:
            SPREAD(before, down, across, h, Tables, Sizes, ds, p > 0.0, tl.load(Unit), DTables)
        if SCORE:
            ds *= SLOPE(before, down, across, h, Tables, Sizes)
        acc = tl.dot(ds.to(k.dtype), k, acc, input_precision=PRECISION)
    acc *= scale
    if slot < 0:
        to = strided(h, i, heads, ob, oh, on, BATCH)[:, None] * D + x
        tl.store(DQ + to, acc.to(DQ.dtype.element_ty), mask=cells(i[:, None] < n, x, D, WD))
    else:
        tl.store(Part + ((far * slots + slot) * BLOCK + r)[:, None] * WD + x, acc)


@triton.jit(do_not_specialize=NUMBERS)
def backward_columns(
    Q, K, V, G, Stats, DK, DV_, PartK, PartV, Items, Work, LayerPtr, Ends,
    scale, n, first, items, many, heads, group, slots, kb, kh, kn, vb, vh, vn,
    Tables, Sizes, Bias, sbh, sbn, sbm, m, seed, least, keep,
    VALUE: tl.constexpr, SLOPE: tl.constexpr, SPREAD: tl.constexpr,
    SCORE: tl.constexpr, BIAS: tl.constexpr, DROP: tl.constexpr,
    BLOCK: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    WD: tl.constexpr, WV: tl.constexpr,
    FORM: tl.constexpr, BATCH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dk and dv of the keys of one item, over the query heads that share them; keys down."""
    item, own = placed(first, items, many)
    column, slot = tl.load(Items + 4 * item), tl.load(Items + 4 * item + 1)
    low, high = tl.load(Items + 4 * item + 2), tl.load(Items + 4 * item + 3)
    r, x, y = tl.arange(0, BLOCK), tl.arange(0, WD), tl.arange(0, WV)
    b, shared = parted(own, heads // group, BATCH)
    k = K.load([b, shared, column * BLOCK, 0]).reshape(BLOCK, WD)
    v = V.load([b, shared, column * BLOCK, 0]).reshape(BLOCK, WV)
    dk, dv = tl.zeros([BLOCK, WD], tl.float32), tl.zeros([BLOCK, WV], tl.float32)
    factor = 1.0 if SCORE or BIAS else scale * LOG2E
    each = tl.cdiv(n.to(tl.int64), BLOCK) * BLOCK
    for near in range(shared * group, (shared + 1) * group):
        head = own * 0 + near  # a number of Triton's, in its interpreter too
        if BATCH:
            head += b * heads
        for t in range(low, high):
            block, kind = halves(tl.load(Work + t))
            q = Q.load([b, near, block * BLOCK, 0]).reshape(BLOCK, WD)
            g = G.load([b, near, block * BLOCK, 0]).reshape(BLOCK, WV)
            a, c = halves(tl.load(Stats + head * each + block * BLOCK + r))
            lse, delta = a.to(tl.float32, bitcast=True), c.to(tl.float32, bitcast=True)
            s = tl.dot(k, tl.trans(q), input_precision=PRECISION)
            if SCORE or BIAS or DROP:
                down, across = (column * BLOCK + r)[:, None], (block * BLOCK + r)[None, :]
                before = s * scale
            if SCORE or BIAS:
                s = scored(s, across, down, head, scale, Tables, Sizes, Bias, sbh, sbn, sbm, n, m,
                           VALUE, SCORE, BIAS)  # fmt: skip
            p = tl.exp2(s * factor - lse[None, :])
            if kind >= 0:
                ends = tl.load(Ends + kind * BLOCK + r) if FORM > 0 else r
                inside = allowed(LayerPtr, Ends, kind, ends, r, BLOCK, True, FORM)
                p = tl.where(inside, p, 0.0)
            dp = tl.dot(v, tl.trans(g), input_precision=PRECISION)
            weight = p
            if DROP:
                keeps = survives(seed, least, head.to(tl.int64), across, down)
                weight, dp = tl.where(keeps, p * keep, 0.0), tl.where(keeps, dp * keep, 0.0)
            dv = tl.dot(weight.to(g.dtype), g, dv, input_precision=PRECISION)
            ds = p * (dp - delta[None, :])
            if SCORE:
                ds *= SLOPE(before, across, down, head, Tables, Sizes)
            dk = tl.dot(ds.to(q.dtype), q, dk, input_precision=PRECISION)
    dk *= scale
    j = column * BLOCK + r
    if slot < 0:
        to = strided(own, j, heads // group, kb, kh, kn, BATCH)[:, None] * D + x
        tl.store(DK + to, dk.to(DK.dtype.element_ty), mask=cells(j[:, None] < m, x, D, WD))
        to_v = strided(own, j, heads // group, vb, vh, vn, BATCH)[:, None] * DV + y
        tl.store(DV_ + to_v, dv.to(DV_.dtype.element_ty), mask=cells(j[:, None] < m, y, DV, WV))
    else:
        at = ((own.to(tl.int64) * slots + slot) * BLOCK + r)[:, None]
        tl.store(PartK + at * WD + x, dk)
        tl.store(PartV + at * WV + y, dv)
