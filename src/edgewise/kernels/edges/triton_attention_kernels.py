"""Attention along edges, in Triton. Imported only by the functions that launch it.

One program is one piece of a row (or column) for H heads, which lie side by side in memory where
rows come first: a key is then read in one go. Terms of edges are read where they exist. KIND
is that of the score: a dot product, of which a function of Triton may be taken, or an additive
one, of numbers or with a vector.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,import-untyped,untyped-decorator"

import triton
import triton.language as tl

from edgewise.kernels.attention.triton.parts_kernels import NUMBERS as COUNTS

DOT, NUMBERS, VECTOR = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
LOG2E, LN2 = tl.constexpr(1.4426950408889634), tl.constexpr(0.6931471805599453)


@triton.jit
def mixed(x):
    """A hash of 32 bits."""
    x = x ^ (x >> 16)
    x = x * 0x7FEB352D
    x = x ^ (x >> 15)
    x = x * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def survives(seed, least, h, i, j):
    """Which weights dropout leaves."""
    row = mixed(mixed((h + seed).to(tl.uint32)) ^ i.to(tl.uint32))
    return mixed(row ^ j.to(tl.uint32)).to(tl.int64) >= least


@triton.jit
def piece(Pieces, Owner, Slot, many, SPLIT: tl.constexpr, H: tl.constexpr):
    """Of this program: its place, segment, slot or -1, its edges, and its heads."""
    p, part = tl.program_id(0) // many, tl.program_id(0) % many
    segment, slot = p, -1
    if SPLIT:
        segment, slot = tl.load(Owner + p), tl.load(Slot + p)
    h = (part * H + tl.arange(0, H)).to(tl.int64)
    return p, segment.to(tl.int64), slot, tl.load(Pieces + p), tl.load(Pieces + p + 1), h


@triton.jit
def one(X, row, h, sh, sn, x):
    """(H, features) of one row."""
    return tl.load(X + h[:, None] * sh + row * sn + x[None, :]).to(tl.float32)


@triton.jit
def vectors(X, at, h, sh, sn, x, some):
    """(E, H, features) of E rows."""
    place = at[:, None, None] * sn + h[None, :, None] * sh + x[None, None, :]
    return tl.load(X + place, mask=some[:, None, None], other=0.0).to(tl.float32)


@triton.jit
def of_edges(e, h, edges, x):
    """Where the vectors of edges are, as (E, H, features)."""
    return (h[None, :] * edges + e[:, None])[:, :, None] * x.shape[0] + x[None, None, :]


@triton.jit
def gathered(X, Extra, at, e, h, sh, sn, x, some, edges, EXTRA: tl.constexpr):
    """Keys (or values) of E edges, with what the edges add to them."""
    rows = vectors(X, at, h, sh, sn, x, some)
    if EXTRA:
        rows += tl.load(Extra + of_edges(e, h, edges, x), some[:, None, None], 0.0)
    return rows


@triton.jit
def per_edge(X, e, h, edges, some):
    """(E, H) numbers of edges."""
    at = h[None, :] * edges + e[:, None]
    return tl.load(X + at, mask=some[:, None], other=0.0).to(tl.float32)


@triton.jit
def slopes(z, slope):
    return tl.where(z > 0, 1.0, slope)


@triton.jit
def weighted(Vector, h, x, z):
    """What is multiplied with the vector of each head, (E, H, features)."""
    return tl.load(Vector + h[:, None] * x.shape[0] + x[None, :]).to(tl.float32)[None, :, :] * z


@triton.jit
def products(q, k, Vector, h, x, slope, KIND: tl.constexpr):
    """(E, H) of queries and keys; those of one side are of one row."""
    if KIND == DOT:
        s = tl.sum(q * k, 2)
    elif KIND == NUMBERS:
        s = (q + k) * slopes(q + k, slope)
    else:
        s = tl.sum(weighted(Vector, h, x, (q + k) * slopes(q + k, slope)), 2)
    return s


@triton.jit
def scored(
    s, i, j, h, e, some, edges, Factor, Bias, Tables, Sizes,
    VALUE: tl.constexpr, SCORE: tl.constexpr, FACTOR: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """Scores of products, what the function of a score is taken of, and the factors of edges."""
    factor = s
    if FACTOR:
        factor = per_edge(Factor, e, h, edges, some)
        s *= factor
    before = s
    if SCORE:
        s = VALUE(before, i, j, h[None, :], Tables, Sizes)
    if BIAS:
        s += per_edge(Bias, e, h, edges, some)
    return s, before, factor


@triton.jit
def add_to_edges(Grad, each, e, h, edges, x, some, first):
    """The gradients of the vectors of edges, summed over the queries that share a key."""
    at = Grad + of_edges(e, h, edges, x)
    if not first:
        each += tl.load(at, some[:, None, None], 0.0)
    tl.store(at, each, mask=some[:, None, None])


@triton.jit
def put(Out, Part, found, h, row, slot, slots, oh, on, D: tl.constexpr):
    """(H, D) of a row, or of a part of one."""
    x = tl.arange(0, D)[None, :]
    if slot < 0:
        tl.store(Out + (h * oh + row * on)[:, None] * D + x, found.to(Out.dtype.element_ty))
    else:
        tl.store(Part + (h * slots + slot)[:, None] * D + x, found)


@triton.jit
def put_number(Out, Part, found, h, row, slot, slots, oh, on):
    """(H,) of a row, or of a part of one."""
    if slot < 0:
        tl.store(Out + h * oh + row * on, found.to(Out.dtype.element_ty))
    else:
        tl.store(Part + h * slots + slot, found)


@triton.jit(do_not_specialize=COUNTS)
def forward(
    Q, K, V, Vector, Bias, Factor, EdgeKey, EdgeValue, Tables, Sizes,
    Out, Lse, Plus, Share, PartOut, PartLse, PartPlus, PartShare,
    Pieces, Index, Owner, Slot,
    scale, slope, n, edges, heads, group, slots, seed, least, keep, oh, on,
    sqh, sqn, skh, skm, svh, svm,
    KIND: tl.constexpr, SPLIT: tl.constexpr,
    VALUE: tl.constexpr, SLOPE: tl.constexpr, SPREAD: tl.constexpr,
    SCORE: tl.constexpr, BIAS: tl.constexpr, FACTOR: tl.constexpr, DROP: tl.constexpr,
    EDGE_KEY: tl.constexpr, EDGE_VALUE: tl.constexpr,
    E: tl.constexpr, H: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    _, row, slot, low, high, h = piece(Pieces, Owner, Slot, heads // H, SPLIT, H)
    x, y, kh = tl.arange(0, D), tl.arange(0, DV), h // group
    if KIND == NUMBERS:
        q = tl.load(Q + h * sqh + row * sqn).to(tl.float32)[None, :]
    else:
        q = one(Q, row, h, sqh, sqn, x)[None, :, :] * scale
    top = tl.full([H], float("-inf"), tl.float32)
    total = tl.zeros([H], tl.float32)
    acc = tl.zeros([H, DV], tl.float32)
    plus, share = tl.zeros([H, DV], tl.float32), tl.zeros([H], tl.float32)  # over scores above 0
    for t in range(low, high, E):
        e = t + tl.arange(0, E)
        some = e < high
        j = tl.load(Index + e, mask=some, other=0).to(tl.int64)
        if KIND == NUMBERS:
            at = j[:, None] * skm + kh[None, :] * skh
            k = tl.load(K + at, mask=some[:, None], other=0.0).to(tl.float32)
        else:
            k = gathered(K, EdgeKey, j, e, kh, skh, skm, x, some, edges, EDGE_KEY)
        v = gathered(V, EdgeValue, j, e, kh, svh, svm, y, some, edges, EDGE_VALUE)
        s, _before, _factor = scored(
            products(q, k, Vector, h, x, slope, KIND), row, j[:, None], h, e, some, edges,
            Factor, Bias, Tables, Sizes, VALUE, SCORE, FACTOR, BIAS,
        )  # fmt: skip
        s = tl.where(some[:, None], s * LOG2E, float("-inf"))
        new = tl.maximum(top, tl.max(s, 0))
        safe = tl.where(new == float("-inf"), 0.0, new)
        p = tl.exp2(s - safe[None, :])
        shrink = tl.exp2(top - safe)
        total = total * shrink + tl.sum(p, 0)
        if KIND == NUMBERS:
            share = share * shrink + tl.sum(tl.where(s > 0, p, 0.0), 0)
        if DROP:
            p = tl.where(survives(seed, least, h[None, :], row, j[:, None]), p * keep, 0.0)
        weighed = p[:, :, None] * v
        acc = acc * shrink[:, None] + tl.sum(weighed, 0)
        if KIND == NUMBERS:
            above = tl.where((s > 0)[:, :, None], weighed, 0.0)
            plus = plus * shrink[:, None] + tl.sum(above, 0)
        top = new
    some = total != 0.0  # also NaN
    total = tl.where(some, total, 1.0)
    lse = tl.where(some, (top + tl.log2(total)) * LN2, float("-inf"))
    put_number(Lse, PartLse, lse, h, row, slot, slots, n, 1)
    put(Out, PartOut, acc / total[:, None], h, row, slot, slots, oh, on, DV)
    if KIND == NUMBERS:
        put_number(Share, PartShare, share / total, h, row, slot, slots, n, 1)
        put(Plus, PartPlus, plus / total[:, None], h, row, slot, slots, oh, on, DV)


@triton.jit(do_not_specialize=COUNTS)
def backward_numbers(
    DOut, Out, Plus, Lse, Share, Stats, DQ,
    slope, n, heads, sgh, sgn, soh, son, sph, spn, sdh, sdn,
    R: tl.constexpr, H: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    """The gradients of additive queries that are numbers, which need no edges; and of rows the
    log-sum-exp and dout·out in `Stats`, where columns read both at once."""
    many, y = heads // H, tl.arange(0, DV)
    i = ((tl.program_id(0) // many) * R + tl.arange(0, R)).to(tl.int64)
    h = ((tl.program_id(0) % many) * H + tl.arange(0, H)).to(tl.int64)
    some = i < n
    g = vectors(DOut, i, h, sgh, sgn, y, some)
    delta = tl.sum(g * vectors(Out, i, h, soh, son, y, some), 2)
    at = h[None, :] * n + i[:, None]
    lse = tl.load(Lse + at, mask=some[:, None], other=0.0)
    stats = Stats + (i[:, None] * heads + h[None, :]) * 2
    tl.store(stats, lse, mask=some[:, None])
    tl.store(stats + 1, delta, mask=some[:, None])
    share = tl.load(Share + at, mask=some[:, None], other=0.0)
    plus = tl.sum(g * vectors(Plus, i, h, sph, spn, y, some), 2)
    dq = (1 - slope) * (plus - share * delta)
    into = DQ + h[None, :] * sdh + i[:, None] * sdn
    tl.store(into, dq.to(DQ.dtype.element_ty), mask=some[:, None])


@triton.jit(do_not_specialize=COUNTS)
def backward_rows(
    Q, K, V, Vector, Bias, Factor, EdgeKey, EdgeValue, Tables, Sizes, DOut, Out, Lse, Stats,
    DQ, DVector, DBias, DFactor, DTables, Unit, Part,
    Pieces, Index, Owner, Slot,
    scale, slope, n, edges, heads, group, slots, pieces, seed, least, keep, oh, on,
    sqh, sqn, skh, skm, svh, svm, sgh, sgn, soh, son,
    KIND: tl.constexpr, SPLIT: tl.constexpr,
    VALUE: tl.constexpr, SLOPE: tl.constexpr, SPREAD: tl.constexpr,
    SCORE: tl.constexpr, BIAS: tl.constexpr, FACTOR: tl.constexpr, DROP: tl.constexpr,
    EDGE_KEY: tl.constexpr, EDGE_VALUE: tl.constexpr,
    E: tl.constexpr, H: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    """dq of one row, and the gradients of its edges' biases and factors, of tables and vectors.

    It leaves its log-sum-exp and dout·out in `Stats`, where the columns read both at once.
    """
    p, row, slot, low, high, h = piece(Pieces, Owner, Slot, heads // H, SPLIT, H)
    x, y, kh = tl.arange(0, D), tl.arange(0, DV), h // group
    q = one(Q, row, h, sqh, sqn, x)[None, :, :] * scale
    g = one(DOut, row, h, sgh, sgn, y)
    delta = tl.sum(g * one(Out, row, h, soh, son, y), 1)
    lse = tl.load(Lse + h * n + row)
    stats = Stats + (row * heads + h) * 2
    tl.store(stats, lse)
    tl.store(stats + 1, delta)
    acc, dvector = tl.zeros([H, D], tl.float32), tl.zeros([H, D], tl.float32)
    for t in range(low, high, E):
        e = t + tl.arange(0, E)
        some = e < high
        j = tl.load(Index + e, mask=some, other=0).to(tl.int64)
        k = gathered(K, EdgeKey, j, e, kh, skh, skm, x, some, edges, EDGE_KEY)
        v = gathered(V, EdgeValue, j, e, kh, svh, svm, y, some, edges, EDGE_VALUE)
        plain = products(q, k, Vector, h, x, slope, KIND)
        s, before, factor = scored(
            plain, row, j[:, None], h, e, some, edges,
            Factor, Bias, Tables, Sizes, VALUE, SCORE, FACTOR, BIAS,
        )  # fmt: skip
        weight = tl.where(some[:, None], tl.exp(s - lse[None, :]), 0.0)
        dp = tl.sum(g[None, :, :] * v, 2)
        if DROP:
            dp = tl.where(survives(seed, least, h[None, :], row, j[:, None]), dp * keep, 0.0)
        ds = weight * (dp - delta[None, :])
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
        if KIND == VECTOR:
            dz = slopes(q + k, slope) * ds[:, :, None]
            acc += tl.sum(weighted(Vector, h, x, dz), 0)
            dvector += tl.sum((q + k) * dz, 0)
        else:
            acc += tl.sum(ds[:, :, None] * k, 0)
    put(DQ, Part, acc * scale, h, row, slot, slots, oh, on, D)
    if KIND == VECTOR:
        tl.store(DVector + (h * pieces + p)[:, None] * D + x[None, :], dvector)


@triton.jit(do_not_specialize=COUNTS)
def backward_columns(
    Q, K, V, Vector, Bias, Factor, EdgeKey, EdgeValue, Tables, Sizes, DOut, Stats,
    DK, DVal, DEdgeKey, DEdgeValue, PartK, PartV,
    Pieces, Index, Owner, Slot, Perm,
    scale, slope, edges, keys, group, slots, seed, least, keep, kh, kn, vh, vn,
    sqh, sqn, skh, skm, svh, svm, sgh, sgn,
    KIND: tl.constexpr, SPLIT: tl.constexpr,
    VALUE: tl.constexpr, SLOPE: tl.constexpr, SPREAD: tl.constexpr,
    SCORE: tl.constexpr, BIAS: tl.constexpr, FACTOR: tl.constexpr, DROP: tl.constexpr,
    EDGE_KEY: tl.constexpr, EDGE_VALUE: tl.constexpr,
    E: tl.constexpr, H: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    """dk and dv of one key and of its edges, over the query heads that share it."""
    _, j, slot, low, high, b = piece(Pieces, Owner, Slot, keys // H, SPLIT, H)
    x, y = tl.arange(0, D), tl.arange(0, DV)
    v = one(V, j, b, svh, svm, y)
    if KIND == NUMBERS:
        k = tl.load(K + b * skh + j * skm).to(tl.float32)[None, :]
        dk = tl.zeros([H], tl.float32)
    else:
        k = one(K, j, b, skh, skm, x)[None, :, :] * scale
        dk = tl.zeros([H, D], tl.float32)
    dv = tl.zeros([H, DV], tl.float32)
    for near in range(0, group):
        h = b * group + near
        for t in range(low, high, E):
            c = t + tl.arange(0, E)
            some = c < high
            i = tl.load(Index + c, mask=some, other=0).to(tl.int64)
            if KIND == NUMBERS:
                at = i[:, None] * sqn + h[None, :] * sqh
                q = tl.load(Q + at, mask=some[:, None], other=0.0).to(tl.float32)
            else:
                q = vectors(Q, i, h, sqh, sqn, x, some)
            g = vectors(DOut, i, h, sgh, sgn, y, some)
            stats = Stats + (i[:, None] * (keys * group) + h[None, :]) * 2
            lse = tl.load(stats, mask=some[:, None], other=float("inf"))
            delta = tl.load(stats + 1, mask=some[:, None], other=0.0)
            e = i
            if BIAS or FACTOR or EDGE_KEY or EDGE_VALUE:
                e = tl.load(Perm + c, mask=some, other=0).to(tl.int64)
            s = products(q, k, Vector, h, x, slope, KIND)
            dp = tl.sum(v[None, :, :] * g, 2)
            if EDGE_KEY:
                each = tl.load(EdgeKey + of_edges(e, b, edges, x), some[:, None, None], 0.0)
                s += scale * tl.sum(each * q, 2)
            if EDGE_VALUE:
                each = tl.load(EdgeValue + of_edges(e, b, edges, y), some[:, None, None], 0.0)
                dp += tl.sum(each * g, 2)
            s, before, factor = scored(
                s, i[:, None], j, h, e, some, edges,
                Factor, Bias, Tables, Sizes, VALUE, SCORE, FACTOR, BIAS,
            )  # fmt: skip
            p = tl.exp(s - lse)
            weight = p
            if DROP:
                weight = tl.where(survives(seed, least, h[None, :], i[:, None], j), p * keep, 0.0)
            ds = weight * dp - p * delta
            if SCORE:
                ds = ds * SLOPE(before, i[:, None], j, h[None, :], Tables, Sizes)
            if FACTOR:
                ds *= factor
            dv += tl.sum(weight[:, :, None] * g, 0)
            if KIND == DOT:
                dk += tl.sum(ds[:, :, None] * q, 0)
            elif KIND == NUMBERS:
                ds = tl.where(some[:, None], ds, 0.0)
                dk += tl.sum(ds * slopes(q + k, slope), 0)
            else:
                ds = tl.where(some[:, None], ds, 0.0)
                dk += tl.sum(weighted(Vector, h, x, slopes(q + k, slope) * ds[:, :, None]), 0)
            if EDGE_KEY:
                each = ds[:, :, None] * q * scale
                add_to_edges(DEdgeKey, each, e, b, edges, x, some, near == 0)
            if EDGE_VALUE:
                each = weight[:, :, None] * g
                add_to_edges(DEdgeValue, each, e, b, edges, y, some, near == 0)
    put(DVal, PartV, dv, b, j, slot, slots, vh, vn, DV)
    if KIND == NUMBERS:
        put_number(DK, PartK, dk, b, j, slot, slots, kh, kn)
    else:
        put(DK, PartK, dk * scale, b, j, slot, slots, kh, kn, D)
