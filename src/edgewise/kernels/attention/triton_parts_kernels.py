"""What was computed in parts, put together; and where it is written. Imported only to be launched.

Features are side by side; three numbers per tensor say how many times `features` apart elements of
the batch (ob), heads (oh) and tokens (on) are.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,import-untyped,untyped-decorator"

import triton
import triton.language as tl

# of which no kernel is compiled for a value of its own
NUMBERS = [
    *("n", "first", "items", "many", "heads", "slots", "m", "sbh", "sbn", "sbm", "seed", "least"),
    *("ob", "oh", "on", "kb", "kh", "kn", "vb", "vh", "vn", "edges", "keys"),
]


@triton.jit
def parted(h, heads, BATCH: tl.constexpr):
    """The element of the batch, 0 if it has one, and the head in it."""
    if BATCH:
        b, near = h // heads, h % heads
    else:
        b, near = 0, h
    return b, near


@triton.jit
def strided(h, i, heads, ob, oh, on, BATCH: tl.constexpr):
    """Where token i of a head stands in what is written, in units of its features."""
    b, near = parted(h.to(tl.int64), heads, BATCH)
    return b * ob + near * oh + i.to(tl.int64) * on


@triton.jit(do_not_specialize=NUMBERS)
def merge(
    Out, Lse, PartOut, PartLse, Split, SplitPtr, n, slots, heads, ob, oh, on,
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
    some = total != 0.0  # NaN counts
    total = tl.where(some, total, 1.0)
    i = tl.load(Split + s) * BLOCK + r
    tl.store(Lse + h * n + i, tl.where(some, safe + tl.log(total), float("-inf")), mask=i < n)
    out = (acc / total[:, None]).to(Out.dtype.element_ty)
    at = strided(h, i, heads, ob, oh, on, True)[:, None] * DV + y
    tl.store(Out + at, out, mask=i[:, None] < n)


@triton.jit
def summed(Sum, Part, Split, SplitPtr, n, slots, heads, ob, oh, on,
           BLOCK: tl.constexpr, D: tl.constexpr):  # fmt: skip
    """The parts of a split row (or column), added in one order."""
    s, h = tl.program_id(0), tl.program_id(1).to(tl.int64)
    r, x = tl.arange(0, BLOCK), tl.arange(0, D)
    acc = tl.zeros([BLOCK, D], tl.float32)
    for t in range(tl.load(SplitPtr + s), tl.load(SplitPtr + s + 1)):
        acc += tl.load(Part + ((h * slots + t) * BLOCK + r)[:, None] * D + x)
    i = tl.load(Split + s) * BLOCK + r
    at = strided(h, i, heads, ob, oh, on, True)[:, None] * D + x
    tl.store(Sum + at, acc.to(Sum.dtype.element_ty), mask=i[:, None] < n)


@triton.jit(do_not_specialize=NUMBERS)
def add_up(
    Sum, Part, Split, SplitPtr, n, slots, heads, ob, oh, on,
    BLOCK: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    summed(Sum, Part, Split, SplitPtr, n, slots, heads, ob, oh, on, BLOCK, D)


@triton.jit(do_not_specialize=NUMBERS)
def add_up_both(
    DK, DV_, PartK, PartV, Split, SplitPtr, n, slots, heads, kb, kh, kn, vb, vh, vn,
    BLOCK: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    summed(DK, PartK, Split, SplitPtr, n, slots, heads, kb, kh, kn, BLOCK, D)
    summed(DV_, PartV, Split, SplitPtr, n, slots, heads, vb, vh, vn, BLOCK, DV)
