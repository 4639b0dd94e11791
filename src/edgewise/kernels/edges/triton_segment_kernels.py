"""Reductions of segments and grouped products in Triton. Imported only where they are launched.

One program is one piece of a segment in one block of columns; E edges are read at a time.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,import-untyped,untyped-decorator"

import triton
import triton.language as tl


@triton.jit
def place(Owner, Slot, SPLIT: tl.constexpr):
    """The segment of this program, and the place of its partial result or -1."""
    p = tl.program_id(0)
    segment, slot = p, -1
    if SPLIT:
        segment, slot = tl.load(Owner + p), tl.load(Slot + p)
    return segment.to(tl.int64), slot


@triton.jit
def read(X, j, some, c, d, stride):
    """Columns c of the rows j."""
    inside = some[:, None] & (c < d)[None, :]
    return tl.load(X + j[:, None] * stride + c[None, :], mask=inside, other=0.0)


@triton.jit
def put(Out, Part, segment, slot, d, c, value, SPLIT: tl.constexpr):
    if SPLIT and slot >= 0:
        tl.store(Part + slot.to(tl.int64) * d + c, value, mask=c < d)
    else:
        tl.store(Out + segment * d + c, value.to(Out.dtype.element_ty), mask=c < d)


@triton.jit
def segment_sum(
    X, Scale, Out, Part, Pieces, Rows, Owner, Slot, d, stride,
    SCALE: tl.constexpr, SPLIT: tl.constexpr, E: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    low, high = tl.load(Pieces + tl.program_id(0)), tl.load(Pieces + tl.program_id(0) + 1)
    c = tl.program_id(1) * D + tl.arange(0, D)
    acc = tl.zeros([E, D], tl.float32)
    for t in range(low, high, E):
        e = t + tl.arange(0, E)
        some = e < high
        j = tl.load(Rows + e, mask=some, other=0).to(tl.int64)
        x = read(X, j, some, c, d, stride).to(tl.float32)
        if SCALE:
            x *= tl.load(Scale + e, mask=some, other=0.0).to(tl.float32)[:, None]
        acc += x
    segment, slot = place(Owner, Slot, SPLIT)
    put(Out, Part, segment, slot, d, c, tl.sum(acc, 0), SPLIT)


@triton.jit
def segment_sum_short(
    X, Scale, Out, Part, Pieces, Rows, Owner, Slot, d, stride, pieces,
    SCALE: tl.constexpr, SPLIT: tl.constexpr, E: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Of E pieces side by side, for short ones: the first of each, the second, ..."""
    p = tl.program_id(0) * E + tl.arange(0, E)
    there = p < pieces
    low = tl.load(Pieces + p, mask=there, other=0)
    size = tl.load(Pieces + p + 1, mask=there, other=0) - low
    c = tl.program_id(1) * D + tl.arange(0, D)
    acc = tl.zeros([E, D], tl.float32)
    for t in range(0, tl.max(size, 0)):
        some = there & (t < size)
        j = tl.load(Rows + low + t, mask=some, other=0).to(tl.int64)
        x = read(X, j, some, c, d, stride).to(tl.float32)
        if SCALE:
            x *= tl.load(Scale + low + t, mask=some, other=0.0).to(tl.float32)[:, None]
        acc += x
    inside = there[:, None] & (c < d)[None, :]
    if SPLIT:
        segment = tl.load(Owner + p, mask=there, other=0).to(tl.int64)
        slot = tl.load(Slot + p, mask=there, other=0).to(tl.int64)
        part = inside & (slot >= 0)[:, None]
        tl.store(Part + slot[:, None] * d + c[None, :], acc, mask=part)
        inside = inside & (slot < 0)[:, None]
    else:
        segment = p.to(tl.int64)
    tl.store(Out + segment[:, None] * d + c[None, :], acc.to(Out.dtype.element_ty), mask=inside)


@triton.jit
def edge_dots(
    X, Y, Out, Pieces, Rows, Owner, Slot, d, stride, other,
    SPLIT: tl.constexpr, E: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    low, high = tl.load(Pieces + tl.program_id(0)), tl.load(Pieces + tl.program_id(0) + 1)
    segment, _ = place(Owner, Slot, SPLIT)
    for t in range(low, high, E):
        e = t + tl.arange(0, E)
        some = e < high
        j = tl.load(Rows + e, mask=some, other=0).to(tl.int64)
        acc = tl.zeros([E], tl.float32)
        for start in range(0, d, D):
            c = start + tl.arange(0, D)
            y = tl.load(Y + segment * other + c, mask=c < d, other=0.0).to(tl.float32)
            acc += tl.sum(read(X, j, some, c, d, stride).to(tl.float32) * y[None, :], 1)
        tl.store(Out + e, acc.to(Out.dtype.element_ty), mask=some)


@triton.jit
def segment_extreme(
    X, Out, Part, Ties, PartTies, Pieces, Rows, Owner, Slot, d, stride, sign,
    SPLIT: tl.constexpr, E: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    low, high = tl.load(Pieces + tl.program_id(0)), tl.load(Pieces + tl.program_id(0) + 1)
    c = tl.program_id(1) * D + tl.arange(0, D)
    top = tl.full([D], float("-inf"), tl.float32)
    ties = tl.zeros([D], tl.float32)
    wrong = tl.zeros([D], tl.int32)
    for t in range(low, high, E):
        e = t + tl.arange(0, E)
        some = e < high
        j = tl.load(Rows + e, mask=some, other=0).to(tl.int64)
        inside = some[:, None] & (c < d)[None, :]
        x = read(X, j, some, c, d, stride).to(tl.float32) * sign
        x = tl.where(inside, x, float("-inf"))
        wrong += tl.sum((x != x).to(tl.int32), 0)
        new = tl.maximum(top, tl.max(x, 0))
        has = inside & (x == new[None, :])
        ties = tl.where(new > top, 0.0, ties) + tl.sum(has.to(tl.float32), 0)
        top = new
    top = tl.where(wrong > 0, float("nan"), top) * sign
    segment, slot = place(Owner, Slot, SPLIT)
    put(Out, Part, segment, slot, d, c, top, SPLIT)
    put(Ties, PartTies, segment, slot, d, c, ties, SPLIT)


@triton.jit
def equal_sum(
    A, X, Y, Out, Part, Pieces, Rows, Owner, Slot, d, stride, second, other,
    SPLIT: tl.constexpr, E: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    low, high = tl.load(Pieces + tl.program_id(0)), tl.load(Pieces + tl.program_id(0) + 1)
    c = tl.program_id(1) * D + tl.arange(0, D)
    segment, slot = place(Owner, Slot, SPLIT)
    y = tl.load(Y + segment * other + c, mask=c < d, other=0.0)
    acc = tl.zeros([E, D], tl.float32)
    for t in range(low, high, E):
        e = t + tl.arange(0, E)
        some = e < high
        j = tl.load(Rows + e, mask=some, other=0).to(tl.int64)
        x, a = read(X, j, some, c, d, stride), read(A, j, some, c, d, second)
        acc += tl.where(x == y[None, :], a.to(tl.float32), 0.0)
    put(Out, Part, segment, slot, d, c, tl.sum(acc, 0), SPLIT)


@triton.jit
def grouped_linear(
    X, W, Out, Order, Ptr, Member, Low, m, d,
    R: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """y_r = W_t x_r for the rows of one tile, which have one member t."""
    member, low = tl.load(Member + tl.program_id(0)), tl.load(Low + tl.program_id(0))
    p = low + tl.arange(0, R)
    some = p < tl.load(Ptr + member + 1)
    row = tl.load(Order + p, mask=some, other=0).to(tl.int64)
    n = tl.program_id(1) * N + tl.arange(0, N)
    W += member.to(tl.int64) * m * d
    acc = tl.zeros([R, N], tl.float32)
    for start in range(0, d, K):
        k = start + tl.arange(0, K)
        x = tl.load(
            X + row[:, None] * d + k[None, :], mask=some[:, None] & (k < d)[None, :], other=0.0
        )
        w = tl.load(
            W + n[None, :] * d + k[:, None], mask=(n < m)[None, :] & (k < d)[:, None], other=0.0
        )
        acc = tl.dot(x, w, acc, input_precision=PRECISION)
    inside = some[:, None] & (n < m)[None, :]
    tl.store(Out + row[:, None] * m + n[None, :], acc.to(Out.dtype.element_ty), mask=inside)


@triton.jit
def grouped_outer(
    Y, X, Part, Order, Ptr, Member, Low, m, d,
    R: tl.constexpr, CHUNK: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Σ_r y_r x_rᵀ over the rows of one chunk, which have one member."""
    chunk = tl.program_id(0).to(tl.int64)
    low = tl.load(Low + chunk)
    high = tl.minimum(low + CHUNK, tl.load(Ptr + tl.load(Member + chunk) + 1))
    n = tl.program_id(1) * N + tl.arange(0, N)
    k = tl.program_id(2) * K + tl.arange(0, K)
    acc = tl.zeros([N, K], tl.float32)
    for start in range(low, high, R):
        p = start + tl.arange(0, R)
        some = p < high
        row = tl.load(Order + p, mask=some, other=0).to(tl.int64)
        y = tl.load(
            Y + row[None, :] * m + n[:, None], mask=some[None, :] & (n < m)[:, None], other=0.0
        )
        x = tl.load(
            X + row[:, None] * d + k[None, :], mask=some[:, None] & (k < d)[None, :], other=0.0
        )
        acc = tl.dot(y, x, acc, input_precision=PRECISION)
    inside = (n < m)[:, None] & (k < d)[None, :]
    tl.store(Part + chunk * m * d + n[:, None] * d + k[None, :], acc, mask=inside)
