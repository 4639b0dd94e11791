"""Products with the members of a family, in Triton. Imported only by what launches it."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,import-untyped,untyped-decorator"

import triton
import triton.language as tl


@triton.jit
def linear(
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
    kept = some[:, None] & (n < m)[None, :]
    tl.store(Out + row[:, None] * m + n[None, :], acc.to(Out.dtype.element_ty), mask=kept)


@triton.jit
def outer(
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
    kept = (n < m)[:, None] & (k < d)[None, :]
    tl.store(Part + chunk * m * d + n[:, None] * d + k[None, :], acc, mask=kept)
