"""Scored attention in Triton. Imported only by the function that launches it.

One program is one piece of a row (or column) of one head. KIND is the place in `contract.KINDS`;
scores and what they read are as there.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,import-untyped,untyped-decorator"

import triton
import triton.language as tl


@triton.jit
def piece(Pieces, Owner, Slot, heads, CUT: tl.constexpr):
    """Of this program: its head, segment, slot or -1, and its entries."""
    p, h = tl.program_id(0) // heads, (tl.program_id(0) % heads).to(tl.int64)
    segment, slot = p, -1
    if CUT:
        segment, slot = tl.load(Owner + p), tl.load(Slot + p)
    return p, h, segment.to(tl.int64), slot, tl.load(Pieces + p), tl.load(Pieces + p + 1)


@triton.jit
def bent(z, slope):
    return tl.where(z > 0, z, slope * z)


@triton.jit
def scores(q, k, T, h, e, some, slope, edges, KIND: tl.constexpr, D: tl.constexpr):
    """s of E edges; q and k are numbers or rows, one of them of all edges."""
    if KIND == 0:
        s = tl.load(T + h * edges + e, mask=some, other=0.0).to(tl.float32)
    elif KIND == 1:
        s = bent(q + k, slope)
    elif KIND == 2:
        t = tl.load(T + h * D + tl.arange(0, D)).to(tl.float32)
        s = tl.sum(t[None, :] * bent(q + k, slope), 1)
    else:
        at = (h * edges + e).to(tl.int64)[:, None] * D + tl.arange(0, D)[None, :]
        t = tl.load(T + at, mask=some[:, None], other=0.0).to(tl.float32)
        s = tl.sum(q * k * t, 1)
    return s


@triton.jit
def one(X, h, row, sh, sn, KIND: tl.constexpr, D: tl.constexpr):
    """The query (key) of one row: nothing, a number, or a row of D."""
    if KIND == 0:
        x = 0.0
    elif KIND == 1:
        x = tl.load(X + h * sh + row * sn).to(tl.float32)
    else:
        x = tl.load(X + h * sh + row * sn + tl.arange(0, D)).to(tl.float32)[None, :]
    return x


@triton.jit
def many(X, h, rows, some, sh, sn, KIND: tl.constexpr, D: tl.constexpr):
    """Those of E rows."""
    if KIND == 0:
        x = 0.0
    elif KIND == 1:
        x = tl.load(X + h * sh + rows * sn, mask=some, other=0.0).to(tl.float32)
    else:
        at = h * sh + rows[:, None] * sn + tl.arange(0, D)[None, :]
        x = tl.load(X + at, mask=some[:, None], other=0.0).to(tl.float32)
    return x


@triton.jit(do_not_specialize=["n", "slots", "edges"])
def forward(
    Q, K, V, T, Keep, Out, Lse, Plus, Share, PartOut, PartLse, PartPlus, PartShare,
    Pieces, Rows, Owner, Slot,
    slope, n, edges, heads, slots, sqh, sqn, skh, skm, svh, svm,
    KIND: tl.constexpr, KEEP: tl.constexpr, CUT: tl.constexpr,
    E: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    _, h, row, slot, low, high = piece(Pieces, Owner, Slot, heads, CUT)
    y = tl.arange(0, DV)
    q = one(Q, h, row, sqh, sqn, KIND, D)
    top = tl.full([1], float("-inf"), tl.float32)
    total = tl.zeros([1], tl.float32)
    acc = tl.zeros([DV], tl.float32)
    plus, share = tl.zeros([DV], tl.float32), tl.zeros([1], tl.float32)  # over scores above 0
    for at in range(low, high, E):
        e = at + tl.arange(0, E)
        some = e < high
        j = tl.load(Rows + e, mask=some, other=0).to(tl.int64)
        k = many(K, h, j, some, skh, skm, KIND, D)
        v = tl.load(V + h * svh + j[:, None] * svm + y, mask=some[:, None], other=0.0)
        s = scores(q, k, T, h, e, some, slope, edges, KIND, D)
        s = tl.where(some, s, float("-inf"))
        new = tl.maximum(top, tl.max(s, 0))
        safe = tl.where(new == float("-inf"), 0.0, new)
        p, shrink = tl.exp(s - safe), tl.exp(top - safe)
        total = total * shrink + tl.sum(p, 0)
        if KIND == 1:
            share = share * shrink + tl.sum(tl.where(s > 0, p, 0.0), 0)
        if KEEP:
            p *= tl.load(Keep + h * edges + e, mask=some, other=0.0).to(tl.float32)
        weighed = p[:, None] * v.to(tl.float32)
        acc = acc * shrink + tl.sum(weighed, 0)
        if KIND == 1:
            plus = plus * shrink + tl.sum(tl.where((s > 0)[:, None], weighed, 0.0), 0)
        top = new
    heard = total != 0.0  # NaN is heard
    total = tl.where(heard, total, 1.0)
    acc, plus, share = acc / total, plus / total, share / total
    lse = tl.where(heard, top + tl.log(total), float("-inf"))
    first = tl.arange(0, 1)
    if slot < 0:
        tl.store(Lse + h * n + row + first, lse)
        tl.store(Out + (h * n + row) * DV + y, acc.to(Out.dtype.element_ty))
        if KIND == 1:
            tl.store(Share + h * n + row + first, share)
            tl.store(Plus + (h * n + row) * DV + y, plus.to(Plus.dtype.element_ty))
    else:
        tl.store(PartLse + h * slots + slot + first, lse)
        tl.store(PartOut + (h * slots + slot) * DV + y, acc)
        if KIND == 1:
            tl.store(PartShare + h * slots + slot + first, share)
            tl.store(PartPlus + (h * slots + slot) * DV + y, plus)


@triton.jit(do_not_specialize=["m", "slots", "edges"])
def backward_columns(
    Q, K, V, T, Keep, DOut, Lse, Delta, DK, DVal, DS, PartK, PartV,
    Pieces, Rows, Owner, Slot, Turn,
    slope, m, edges, heads, slots, sqh, sqn, skh, skm, svh, svm, soh, son, slh, sln,
    KIND: tl.constexpr, KEEP: tl.constexpr, CUT: tl.constexpr,
    E: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    """dk and dv of one key, and the gradient of each of its scores."""
    _, h, j, slot, low, high = piece(Pieces, Owner, Slot, heads, CUT)
    y = tl.arange(0, DV)
    k = one(K, h, j, skh, skm, KIND, D)
    v = tl.load(V + h * svh + j * svm + y).to(tl.float32)
    dv = tl.zeros([DV], tl.float32)
    dk = tl.zeros([E, D], tl.float32) if KIND > 1 else tl.zeros([E], tl.float32)
    for at in range(low, high, E):
        c = at + tl.arange(0, E)
        some = c < high
        i = tl.load(Rows + c, mask=some, other=0).to(tl.int64)
        e = c
        if KIND != 1 or KEEP:
            e = tl.load(Turn + c, mask=some, other=0)
        e = e.to(tl.int64)
        g = tl.load(DOut + h * soh + i[:, None] * son + y, mask=some[:, None], other=0.0)
        g = g.to(tl.float32)
        lse = tl.load(Lse + h * slh + i * sln, mask=some, other=float("inf"))
        delta = tl.load(Delta + h * slh + i * sln, mask=some, other=0.0)
        q = many(Q, h, i, some, sqh, sqn, KIND, D)
        p = tl.exp(scores(q, k, T, h, e, some, slope, edges, KIND, D) - lse)
        kept = p
        if KEEP:
            kept = p * tl.load(Keep + h * edges + e, mask=some, other=0.0).to(tl.float32)
        ds = kept * tl.sum(v[None, :] * g, 1) - p * delta
        ds = tl.where(some, ds, 0.0)
        dv += tl.sum(kept[:, None] * g, 0)
        if KIND == 1:
            ds *= tl.where(q + k > 0, 1.0, slope)
            dk += ds
        elif KIND == 2:
            t = tl.load(T + h * D + tl.arange(0, D)).to(tl.float32)
            dk += ds[:, None] * t[None, :] * tl.where(q + k > 0, 1.0, slope)
        elif KIND == 3:
            place = (h * edges + e)[:, None] * D + tl.arange(0, D)[None, :]
            t = tl.load(T + place, mask=some[:, None], other=0.0).to(tl.float32)
            dk += ds[:, None] * q * t
        if KIND != 1:
            tl.store(DS + h * edges + e, ds, mask=some)
    if slot < 0:
        tl.store(DVal + (h * m + j) * DV + y, dv.to(DVal.dtype.element_ty))
    else:
        tl.store(PartV + (h * slots + slot) * DV + y, dv)
    put(DK, PartK, dk, h, j, m, slot, slots, KIND, D)


@triton.jit
def put(Out, Part, acc, h, row, n, slot, slots, KIND: tl.constexpr, D: tl.constexpr):
    """The sum over E edges of a gradient of queries or keys."""
    if KIND == 1:
        found = tl.sum(acc, 0)
        if slot < 0:
            tl.store(Out + h * n + row, found.to(Out.dtype.element_ty))
        else:
            tl.store(Part + h * slots + slot, found)
    elif KIND > 1:
        x = tl.arange(0, D)
        sums = tl.sum(acc, 0)
        if slot < 0:
            tl.store(Out + (h * n + row) * D + x, sums.to(Out.dtype.element_ty))
        else:
            tl.store(Part + (h * slots + slot) * D + x, sums)


@triton.jit(do_not_specialize=["n", "slots", "edges", "pieces"])
def backward_rows(
    Q, K, T, DS, DQ, DT, Part, Pieces, Rows, Owner, Slot,
    slope, n, edges, heads, slots, pieces, sqh, sqn, skh, skm,
    KIND: tl.constexpr, CUT: tl.constexpr, E: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """dq of one row, and what its edges give to dt; from the gradients of scores."""
    p, h, row, slot, low, high = piece(Pieces, Owner, Slot, heads, CUT)
    x = tl.arange(0, D)
    q = one(Q, h, row, sqh, sqn, KIND, D)
    acc = tl.zeros([E, D], tl.float32)
    of_t = tl.zeros([E, D], tl.float32)
    for at in range(low, high, E):
        e = at + tl.arange(0, E)
        some = e < high
        ds = tl.load(DS + h * edges + e, mask=some, other=0.0)
        j = tl.load(Rows + e, mask=some, other=0).to(tl.int64)
        k = many(K, h, j, some, skh, skm, KIND, D)
        if KIND == 2:
            t = tl.load(T + h * D + x).to(tl.float32)
            bend = tl.where(q + k > 0, 1.0, slope)
            acc += ds[:, None] * t[None, :] * bend
            of_t += ds[:, None] * (q + k) * bend
        else:
            place = (h * edges + e).to(tl.int64)[:, None] * D + x[None, :]
            t = tl.load(T + place, mask=some[:, None], other=0.0).to(tl.float32)
            acc += ds[:, None] * k * t
            found = (ds[:, None] * q * k).to(DT.dtype.element_ty)
            tl.store(DT + place, found, mask=some[:, None])
    if KIND == 2:
        tl.store(DT + (h * pieces + p) * D + x, tl.sum(of_t, 0))
    put(DQ, Part, acc, h, row, n, slot, slots, KIND, D)
