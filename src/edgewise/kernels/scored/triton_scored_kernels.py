"""Scored attention in Triton. Imported only by the function that launches it.

One program is one piece of a row (or column) for H heads, which lie side by side in memory where
rows come first. KIND is the place in `contract.KINDS`; scores and what they read are as there.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,import-untyped,untyped-decorator"

import triton
import triton.language as tl

# of which no kernel is compiled for a value of its own
NUMBERS = ["n", "m", "slots", "edges", "pieces", "heads", "oh", "on", "kh", "kn", "vh", "vn"]


@triton.jit
def piece(Pieces, Owner, Slot, many, CUT: tl.constexpr, H: tl.constexpr):
    """Of this program: its place, heads, segment, slot or -1, and its entries."""
    p, part = tl.program_id(0) // many, tl.program_id(0) % many
    segment, slot = p, -1
    if CUT:
        segment, slot = tl.load(Owner + p), tl.load(Slot + p)
    h = (part * H + tl.arange(0, H)).to(tl.int64)
    return p, h, segment.to(tl.int64), slot, tl.load(Pieces + p), tl.load(Pieces + p + 1)


@triton.jit
def bent(z, slope):
    return tl.where(z > 0, z, slope * z)


@triton.jit
def of_edges(X, e, h, some, edges):
    """(E, H) numbers of edges."""
    at = h[None, :] * edges + e[:, None]
    return tl.load(X + at, mask=some[:, None], other=0.0).to(tl.float32)


@triton.jit
def vectors(X, rows, h, some, sh, sn, D: tl.constexpr):
    """(E, H, D) of E rows."""
    at = rows[:, None, None] * sn + h[None, :, None] * sh + tl.arange(0, D)[None, None, :]
    return tl.load(X + at, mask=some[:, None, None], other=0.0).to(tl.float32)


@triton.jit
def places(e, h, edges, D: tl.constexpr):
    """Where the vectors of edges are, as (E, H, D)."""
    return (h[None, :] * edges + e[:, None])[:, :, None] * D + tl.arange(0, D)[None, None, :]


@triton.jit
def of_heads(T, h, D: tl.constexpr):
    """(1, H, D): a vector for each head."""
    return tl.load(T + h[:, None] * D + tl.arange(0, D)[None, :]).to(tl.float32)[None, :, :]


@triton.jit
def scores(q, k, T, h, e, some, slope, edges, KIND: tl.constexpr, D: tl.constexpr):
    """s (E, H) of E edges; q and k are numbers or rows, one of them of all edges."""
    if KIND == 0:
        s = of_edges(T, e, h, some, edges)
    elif KIND == 1:
        s = bent(q + k, slope)
    elif KIND == 2:
        s = tl.sum(of_heads(T, h, D) * bent(q + k, slope), 2)
    else:
        t = tl.load(T + places(e, h, edges, D), some[:, None, None], 0.0).to(tl.float32)
        s = tl.sum(q * k * t, 2)
    return s


@triton.jit
def one(X, h, row, sh, sn, KIND: tl.constexpr, D: tl.constexpr):
    """The query (key) of one row: nothing, (1, H) numbers, or (1, H, D)."""
    if KIND == 0:
        x = 0.0
    elif KIND == 1:
        x = tl.load(X + h * sh + row * sn).to(tl.float32)[None, :]
    else:
        at = h[:, None] * sh + row * sn + tl.arange(0, D)[None, :]
        x = tl.load(X + at).to(tl.float32)[None, :, :]
    return x


@triton.jit
def many(X, h, rows, some, sh, sn, KIND: tl.constexpr, D: tl.constexpr):
    """Those of E rows."""
    if KIND == 0:
        x = 0.0
    elif KIND == 1:
        at = rows[:, None] * sn + h[None, :] * sh
        x = tl.load(X + at, mask=some[:, None], other=0.0).to(tl.float32)
    else:
        x = vectors(X, rows, h, some, sh, sn, D)
    return x


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


@triton.jit(do_not_specialize=NUMBERS)
def forward(
    Q, K, V, T, Keep, Out, Lse, Plus, Share, PartOut, PartLse, PartPlus, PartShare,
    Pieces, Rows, Owner, Slot,
    slope, n, edges, heads, slots, oh, on, sqh, sqn, skh, skm, svh, svm,
    KIND: tl.constexpr, KEEP: tl.constexpr, CUT: tl.constexpr,
    E: tl.constexpr, H: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    _, h, row, slot, low, high = piece(Pieces, Owner, Slot, heads // H, CUT, H)
    q = one(Q, h, row, sqh, sqn, KIND, D)
    top = tl.full([H], float("-inf"), tl.float32)
    total = tl.zeros([H], tl.float32)
    acc = tl.zeros([H, DV], tl.float32)
    plus, share = tl.zeros([H, DV], tl.float32), tl.zeros([H], tl.float32)  # over scores above 0
    for at in range(low, high, E):
        e = at + tl.arange(0, E)
        some = e < high
        j = tl.load(Rows + e, mask=some, other=0).to(tl.int64)
        k = many(K, h, j, some, skh, skm, KIND, D)
        v = vectors(V, j, h, some, svh, svm, DV)
        s = scores(q, k, T, h, e, some, slope, edges, KIND, D)
        s = tl.where(some[:, None], s, float("-inf"))
        new = tl.maximum(top, tl.max(s, 0))
        safe = tl.where(new == float("-inf"), 0.0, new)
        p, shrink = tl.exp(s - safe[None, :]), tl.exp(top - safe)
        total = total * shrink + tl.sum(p, 0)
        if KIND == 1:
            share = share * shrink + tl.sum(tl.where(s > 0, p, 0.0), 0)
        if KEEP:
            p *= of_edges(Keep, e, h, some, edges)
        weighed = p[:, :, None] * v
        acc = acc * shrink[:, None] + tl.sum(weighed, 0)
        if KIND == 1:
            above = tl.where((s > 0)[:, :, None], weighed, 0.0)
            plus = plus * shrink[:, None] + tl.sum(above, 0)
        top = new
    heard = total != 0.0  # NaN is heard
    total = tl.where(heard, total, 1.0)
    lse = tl.where(heard, top + tl.log(total), float("-inf"))
    put_number(Lse, PartLse, lse, h, row, slot, slots, n, 1)
    put(Out, PartOut, acc / total[:, None], h, row, slot, slots, oh, on, DV)
    if KIND == 1:
        put_number(Share, PartShare, share / total, h, row, slot, slots, n, 1)
        put(Plus, PartPlus, plus / total[:, None], h, row, slot, slots, oh, on, DV)


@triton.jit(do_not_specialize=NUMBERS)
def nodes(
    DOut, Out, Plus, Lse, Share, Stats, DQ,
    slope, n, heads, oh, on, sgh, sgn, sdh, sdn,
    ADDITIVE: tl.constexpr, R: tl.constexpr, H: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    """The log-sum-exp and dout·out of rows, where columns read both at once; and the gradient of
    additive queries, which needs no edges."""
    many = heads // H
    i = ((tl.program_id(0) // many) * R + tl.arange(0, R)).to(tl.int64)
    h = ((tl.program_id(0) % many) * H + tl.arange(0, H)).to(tl.int64)
    some = i < n
    g = vectors(DOut, i, h, some, sgh, sgn, DV)
    delta = tl.sum(g * vectors(Out, i, h, some, oh * DV, on * DV, DV), 2)
    at = h[None, :] * n + i[:, None]
    lse = tl.load(Lse + at, mask=some[:, None], other=0.0)
    lse = tl.where(lse == float("-inf"), float("inf"), lse)
    stats = Stats + (i[:, None] * heads + h[None, :]) * 2
    tl.store(stats, lse, mask=some[:, None])
    tl.store(stats + 1, delta, mask=some[:, None])
    if ADDITIVE:
        share = tl.load(Share + at, mask=some[:, None], other=0.0)
        plus = tl.sum(g * vectors(Plus, i, h, some, oh * DV, on * DV, DV), 2)
        dq = (1 - slope) * (plus - share * delta)
        into = DQ + h[None, :] * sdh + i[:, None] * sdn
        tl.store(into, dq.to(DQ.dtype.element_ty), mask=some[:, None])


@triton.jit(do_not_specialize=NUMBERS)
def backward_columns(
    Q, K, V, T, Keep, DOut, Stats, DK, DVal, DS, PartK, PartV,
    Pieces, Rows, Owner, Slot, Turn,
    slope, m, edges, heads, slots, kh, kn, vh, vn, sqh, sqn, skh, skm, svh, svm, sgh, sgn,
    KIND: tl.constexpr, KEEP: tl.constexpr, CUT: tl.constexpr,
    E: tl.constexpr, H: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    """dk and dv of one key, and the gradient of each of its scores."""
    _, h, j, slot, low, high = piece(Pieces, Owner, Slot, heads // H, CUT, H)
    k = one(K, h, j, skh, skm, KIND, D)
    v = tl.load(V + h[:, None] * svh + j * svm + tl.arange(0, DV)[None, :]).to(tl.float32)
    dv = tl.zeros([H, DV], tl.float32)
    dk = tl.zeros([H, D], tl.float32) if KIND > 1 else tl.zeros([H], tl.float32)
    for at in range(low, high, E):
        c = at + tl.arange(0, E)
        some = c < high
        i = tl.load(Rows + c, mask=some, other=0).to(tl.int64)
        e = c
        if KIND != 1 or KEEP:
            e = tl.load(Turn + c, mask=some, other=0)
        e = e.to(tl.int64)
        g = vectors(DOut, i, h, some, sgh, sgn, DV)
        stats = Stats + (i[:, None] * heads + h[None, :]) * 2
        lse = tl.load(stats, mask=some[:, None], other=float("inf"))
        delta = tl.load(stats + 1, mask=some[:, None], other=0.0)
        q = many(Q, h, i, some, sqh, sqn, KIND, D)
        p = tl.exp(scores(q, k, T, h, e, some, slope, edges, KIND, D) - lse)
        kept = p
        if KEEP:
            kept = p * of_edges(Keep, e, h, some, edges)
        ds = kept * tl.sum(v[None, :, :] * g, 2) - p * delta
        ds = tl.where(some[:, None], ds, 0.0)
        dv += tl.sum(kept[:, :, None] * g, 0)
        if KIND == 1:
            ds *= tl.where(q + k > 0, 1.0, slope)
            dk += tl.sum(ds, 0)
        elif KIND == 2:
            each = of_heads(T, h, D) * tl.where(q + k > 0, 1.0, slope)
            dk += tl.sum(ds[:, :, None] * each, 0)
        elif KIND == 3:
            t = tl.load(T + places(e, h, edges, D), some[:, None, None], 0.0).to(tl.float32)
            dk += tl.sum(ds[:, :, None] * q * t, 0)
        if KIND != 1:
            tl.store(DS + h[None, :] * edges + e[:, None], ds, mask=some[:, None])
    put(DVal, PartV, dv, h, j, slot, slots, vh, vn, DV)
    if KIND == 1:
        put_number(DK, PartK, dk, h, j, slot, slots, kh, kn)
    elif KIND > 1:
        put(DK, PartK, dk, h, j, slot, slots, kh, kn, D)


@triton.jit(do_not_specialize=NUMBERS)
def backward_rows(
    Q, K, T, DS, DQ, DT, Part, Pieces, Rows, Owner, Slot,
    slope, edges, heads, slots, pieces, oh, on, sqh, sqn, skh, skm,
    KIND: tl.constexpr, CUT: tl.constexpr,
    E: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """dq of one row, and what its edges give to dt; from the gradients of scores."""
    p, h, row, slot, low, high = piece(Pieces, Owner, Slot, heads // H, CUT, H)
    q = one(Q, h, row, sqh, sqn, KIND, D)
    acc, of_t = tl.zeros([H, D], tl.float32), tl.zeros([H, D], tl.float32)
    for at in range(low, high, E):
        e = at + tl.arange(0, E)
        some = e < high
        ds = of_edges(DS, e, h, some, edges)[:, :, None]
        j = tl.load(Rows + e, mask=some, other=0).to(tl.int64)
        k = many(K, h, j, some, skh, skm, KIND, D)
        if KIND == 2:
            bend = tl.where(q + k > 0, 1.0, slope)
            acc += tl.sum(ds * of_heads(T, h, D) * bend, 0)
            of_t += tl.sum(ds * (q + k) * bend, 0)
        else:
            place = places(e, h, edges, D)
            t = tl.load(T + place, some[:, None, None], 0.0).to(tl.float32)
            acc += tl.sum(ds * k * t, 0)
            found = (ds * q * k).to(DT.dtype.element_ty)
            tl.store(DT + place, found, mask=some[:, None, None])
    if KIND == 2:
        tl.store(DT + (h * pieces + p)[:, None] * D + tl.arange(0, D)[None, :], of_t)
    put(DQ, Part, acc, h, row, slot, slots, oh, on, D)
