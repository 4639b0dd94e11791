"""Flash attention over lists of blocks, in Triton. Imported only by the function that launches it.

One program is one item (triton_tiles) of one head: it keeps its rows (or columns) in registers
and walks through its list. What is read by tiles are descriptors of (heads, tokens, features) for
the copy engine of the chip, with zeros beyond the last token; what is written is contiguous.

What bounds these loops on an H200 is latency, not the arithmetic: a small tile and few registers,
so that four (three) programs share a processor, beat every larger tile. The list is walked in one
loop, because ptxas runs the products of two loops one after the other.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,import-untyped,untyped-decorator"

import triton
import triton.language as tl

from edgewise.kernels.attention.triton_dropout import kept

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def halves(word):
    """The low and the high 32 bits: one load instead of two."""
    return (word & 0xFFFFFFFF).to(tl.int32), (word >> 32).to(tl.int32)


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
def allowed(LayerPtr, Ends, kind, ends, r,
            BLOCK: tl.constexpr, TURNED: tl.constexpr, ONE: tl.constexpr):  # fmt: skip
    """Which pairs a partial block of this kind has; `ends` is its layer if every kind is ONE."""
    if ONE:
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


@triton.jit(do_not_specialize=["n", "slots", "m", "sbh", "sbn", "sbm", "seed", "least"])
def forward(
    Q, K, V, Out, Lse, PartOut, PartLse, Items, Work, LayerPtr, Ends,
    scale, n, group, slots,
    Tables, Sizes, Bias, sbh, sbn, sbm, m, seed, least, keep,
    VALUE: tl.constexpr, SLOPE: tl.constexpr, SPREAD: tl.constexpr,
    SCORE: tl.constexpr, BIAS: tl.constexpr, DROP: tl.constexpr,
    BLOCK: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    ONE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    item, h = tl.program_id(0), tl.program_id(1)
    row, slot = tl.load(Items + 4 * item), tl.load(Items + 4 * item + 1)
    low, high = tl.load(Items + 4 * item + 2), tl.load(Items + 4 * item + 3)
    r, y = tl.arange(0, BLOCK), tl.arange(0, DV)
    q = Q.load([h, row * BLOCK, 0]).reshape(BLOCK, D)
    b = h // group
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, DV], tl.float32)
    factor = 1.0 if SCORE or BIAS else scale * LOG2E
    for t in range(low, high):
        block, kind = halves(tl.load(Work + t))
        k = K.load([b, block * BLOCK, 0]).reshape(BLOCK, D)
        v = V.load([b, block * BLOCK, 0]).reshape(BLOCK, DV)
        # Of full blocks too: a load that is always there is fetched while the last tile runs.
        ends = tl.load(Ends + tl.maximum(kind, 0) * BLOCK + r)
        s = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        if SCORE or BIAS or DROP:
            i, j = (row * BLOCK + r)[:, None], (block * BLOCK + r)[None, :]
        if SCORE or BIAS:
            s = scored(s, i, j, h, scale, Tables, Sizes, Bias, sbh, sbn, sbm, n, m,
                       VALUE, SCORE, BIAS)  # fmt: skip
        if kind >= 0:
            inside = allowed(LayerPtr, Ends, kind, ends, r, BLOCK, False, ONE)
            s = tl.where(inside, s, float("-inf"))
        new = tl.maximum(top, tl.max(s, 1) * factor)
        safe = tl.where(new == float("-inf"), 0.0, new)
        p = tl.exp2(s * factor - safe[:, None])
        shrink = tl.exp2(top - safe)
        total = total * shrink + tl.sum(p, 1)
        if DROP:
            p = tl.where(kept(seed, least, h.to(tl.int64), i, j), p * keep, 0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision=PRECISION)
        top = new
    some = total != 0.0  # NaN is heard
    acc *= (1.0 / tl.where(some, total, 1.0))[:, None]
    lse = tl.where(some, (top + tl.log2(tl.where(some, total, 1.0))) * LN2, float("-inf"))
    own, far = row * BLOCK + r, h.to(tl.int64)
    if slot < 0:
        at, there = far * n + own, own < n
        tl.store(Lse + at, lse, mask=there)
        tl.store(Out + at[:, None] * DV + y, acc.to(Out.dtype.element_ty), mask=there[:, None])
    else:
        at = (far * slots + slot) * BLOCK + r
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
    some = total != 0.0  # NaN is heard
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


@triton.jit(do_not_specialize=["n", "slots", "m", "sbh", "sbn", "sbm", "seed", "least"])
def backward_rows(
    Q, K, V, G, Out, Lse, Stats, DQ, Part, Items, Work, LayerPtr, Ends,
    scale, n, group, slots,
    DTables, DBias, Unit,
    Tables, Sizes, Bias, sbh, sbn, sbm, m, seed, least, keep,
    VALUE: tl.constexpr, SLOPE: tl.constexpr, SPREAD: tl.constexpr,
    SCORE: tl.constexpr, BIAS: tl.constexpr, DROP: tl.constexpr,
    BLOCK: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    ONE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dq of the rows of one item.

    On the way it leaves, for the other pass, two numbers per row in one word: the log-sum-exp to
    base 2 and delta = Σ over features of dout·out. They are read once per tile, in a layout in
    which every number is an instruction.
    """
    item, h = tl.program_id(0), tl.program_id(1)
    row, slot = tl.load(Items + 4 * item), tl.load(Items + 4 * item + 1)
    low, high = tl.load(Items + 4 * item + 2), tl.load(Items + 4 * item + 3)
    r, x = tl.arange(0, BLOCK), tl.arange(0, D)
    i, far = row * BLOCK + r, h.to(tl.int64)
    q = Q.load([h, row * BLOCK, 0]).reshape(BLOCK, D)
    g = G.load([h, row * BLOCK, 0]).reshape(BLOCK, DV)
    out = Out.load([h, row * BLOCK, 0]).reshape(BLOCK, DV)
    delta = tl.sum(g.to(tl.float32) * out.to(tl.float32), 1)
    lse = tl.load(Lse + far * n + i, mask=i < n, other=float("inf")) * LOG2E
    word = lse.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
    word |= delta.to(tl.int32, bitcast=True).to(tl.int64) << 32
    tl.store(Stats + far * (tl.cdiv(n, BLOCK) * BLOCK) + i, word)
    b = h // group
    acc = tl.zeros([BLOCK, D], tl.float32)
    factor = 1.0 if SCORE or BIAS else scale * LOG2E
    for t in range(low, high):
        block, kind = halves(tl.load(Work + t))
        k = K.load([b, block * BLOCK, 0]).reshape(BLOCK, D)
        v = V.load([b, block * BLOCK, 0]).reshape(BLOCK, DV)
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
            inside = allowed(LayerPtr, Ends, kind, ends, r, BLOCK, False, ONE)
            p = tl.where(inside, p, 0.0)
        dp = tl.dot(g, tl.trans(v), input_precision=PRECISION)
        if DROP:
            dp = tl.where(kept(seed, least, far, down, across), dp * keep, 0.0)
        ds = p * (dp - delta[:, None])
        if BIAS:  # whole numbers, so that sums are the same in whatever order they come
            at = far * sbh + down.to(tl.int64) * sbn + across * sbm
            tl.atomic_add(DBias + at, (ds * tl.load(Unit)).to(tl.int64), mask=p > 0.0)
        if SCORE:
            SPREAD(before, down, across, h, Tables, Sizes, ds, p > 0.0, tl.load(Unit), DTables)
            ds *= SLOPE(before, down, across, h, Tables, Sizes)
        acc = tl.dot(ds.to(k.dtype), k, acc, input_precision=PRECISION)
    acc *= scale
    if slot < 0:
        at = (far * n + i)[:, None] * D + x
        tl.store(DQ + at, acc.to(DQ.dtype.element_ty), mask=i[:, None] < n)
    else:
        tl.store(Part + ((far * slots + slot) * BLOCK + r)[:, None] * D + x, acc)


@triton.jit(do_not_specialize=["n", "slots", "m", "sbh", "sbn", "sbm", "seed", "least"])
def backward_columns(
    Q, K, V, G, Stats, DK, DV_, PartK, PartV, Items, Work, LayerPtr, Ends,
    scale, n, group, slots,
    Tables, Sizes, Bias, sbh, sbn, sbm, m, seed, least, keep,
    VALUE: tl.constexpr, SLOPE: tl.constexpr, SPREAD: tl.constexpr,
    SCORE: tl.constexpr, BIAS: tl.constexpr, DROP: tl.constexpr,
    BLOCK: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    ONE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dk and dv of the keys of one item, over the query heads that share them; keys down."""
    item, b = tl.program_id(0), tl.program_id(1)
    column, slot = tl.load(Items + 4 * item), tl.load(Items + 4 * item + 1)
    low, high = tl.load(Items + 4 * item + 2), tl.load(Items + 4 * item + 3)
    r, x, y = tl.arange(0, BLOCK), tl.arange(0, D), tl.arange(0, DV)
    k = K.load([b, column * BLOCK, 0]).reshape(BLOCK, D)
    v = V.load([b, column * BLOCK, 0]).reshape(BLOCK, DV)
    dk, dv = tl.zeros([BLOCK, D], tl.float32), tl.zeros([BLOCK, DV], tl.float32)
    factor = 1.0 if SCORE or BIAS else scale * LOG2E
    each = tl.cdiv(n.to(tl.int64), BLOCK) * BLOCK
    for h in range(b * group, (b + 1) * group):
        head = b * 0 + h  # a number of Triton's, in its interpreter too
        for t in range(low, high):
            block, kind = halves(tl.load(Work + t))
            q = Q.load([h, block * BLOCK, 0]).reshape(BLOCK, D)
            g = G.load([h, block * BLOCK, 0]).reshape(BLOCK, DV)
            a, c = halves(tl.load(Stats + h * each + block * BLOCK + r))
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
                ends = tl.load(Ends + kind * BLOCK + r) if ONE else r
                inside = allowed(LayerPtr, Ends, kind, ends, r, BLOCK, True, ONE)
                p = tl.where(inside, p, 0.0)
            dp = tl.dot(v, tl.trans(g), input_precision=PRECISION)
            weight = p
            if DROP:
                keeps = kept(seed, least, head.to(tl.int64), across, down)
                weight, dp = tl.where(keeps, p * keep, 0.0), tl.where(keeps, dp * keep, 0.0)
            dv = tl.dot(weight.to(g.dtype), g, dv, input_precision=PRECISION)
            ds = p * (dp - delta[None, :])
            if SCORE:
                ds *= SLOPE(before, across, down, head, Tables, Sizes)
            dk = tl.dot(ds.to(q.dtype), q, dk, input_precision=PRECISION)
    dk *= scale
    j, b = column * BLOCK + r, b.to(tl.int64)
    if slot < 0:
        at = (b * m + j)[:, None]
        tl.store(DK + at * D + x, dk.to(DK.dtype.element_ty), mask=j[:, None] < m)
        tl.store(DV_ + at * DV + y, dv.to(DV_.dtype.element_ty), mask=j[:, None] < m)
    else:
        at = ((b * slots + slot) * BLOCK + r)[:, None]
        tl.store(PartK + at * D + x, dk)
        tl.store(PartV + at * DV + y, dv)
