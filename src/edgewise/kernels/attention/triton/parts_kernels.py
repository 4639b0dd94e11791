"""What was computed in parts, put together, and where it is written; gradients of tables of scores,
added up before they are shared: tables are small and pairs are many. Imported only to be launched.

Features are side by side, D of them in tiles of WD; three numbers per tensor say how many times
`features` apart elements of the batch (ob), heads (oh) and tokens (on) are.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,import-untyped,untyped-decorator"

import triton
import triton.language as tl

SQUARE = tl.constexpr(32)  # the least tile whose diagonals are added up
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


@triton.jit
def cells(inside, x, D: tl.constexpr, WD: tl.constexpr):
    """Which numbers of a tile are written: those of some rows, of the features that exist."""
    if WD > D:
        inside = inside & (x < D)[None, :]
    return inside


@triton.jit(do_not_specialize=NUMBERS)
def merge(
    Out, Lse, PartOut, PartLse, Split, SplitPtr, n, slots, heads, ob, oh, on,
    BLOCK: tl.constexpr, DV: tl.constexpr, WV: tl.constexpr,
):  # fmt: skip
    """The parts of a split row, weighted by their shares of its log-sum-exp."""
    s, h = tl.program_id(0), tl.program_id(1).to(tl.int64)
    r, y = tl.arange(0, BLOCK), tl.arange(0, WV)
    first, last = tl.load(SplitPtr + s), tl.load(SplitPtr + s + 1)
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    for t in range(first, last):
        top = tl.maximum(top, tl.load(PartLse + (h * slots + t) * BLOCK + r))
    safe = tl.where(top == float("-inf"), 0.0, top)
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, WV], tl.float32)
    for t in range(first, last):
        at = (h * slots + t) * BLOCK + r
        share = tl.exp(tl.load(PartLse + at) - safe)
        total += share
        acc += share[:, None] * tl.load(PartOut + at[:, None] * WV + y)
    some = total != 0.0  # NaN counts
    total = tl.where(some, total, 1.0)
    i = tl.load(Split + s) * BLOCK + r
    tl.store(Lse + h * n + i, tl.where(some, safe + tl.log(total), float("-inf")), mask=i < n)
    out = (acc / total[:, None]).to(Out.dtype.element_ty)
    at = strided(h, i, heads, ob, oh, on, True)[:, None] * DV + y
    tl.store(Out + at, out, mask=cells(i[:, None] < n, y, DV, WV))


@triton.jit
def summed(Sum, Part, Split, SplitPtr, n, slots, heads, ob, oh, on,
           BLOCK: tl.constexpr, D: tl.constexpr, WD: tl.constexpr):  # fmt: skip
    """The parts of a split row (or column), added in one order."""
    s, h = tl.program_id(0), tl.program_id(1).to(tl.int64)
    r, x = tl.arange(0, BLOCK), tl.arange(0, WD)
    acc = tl.zeros([BLOCK, WD], tl.float32)
    for t in range(tl.load(SplitPtr + s), tl.load(SplitPtr + s + 1)):
        acc += tl.load(Part + ((h * slots + t) * BLOCK + r)[:, None] * WD + x)
    i = tl.load(Split + s) * BLOCK + r
    at = strided(h, i, heads, ob, oh, on, True)[:, None] * D + x
    tl.store(Sum + at, acc.to(Sum.dtype.element_ty), mask=cells(i[:, None] < n, x, D, WD))


@triton.jit(do_not_specialize=NUMBERS)
def add_up(
    Sum, Part, Split, SplitPtr, n, slots, heads, ob, oh, on,
    BLOCK: tl.constexpr, D: tl.constexpr, WD: tl.constexpr,
):  # fmt: skip
    summed(Sum, Part, Split, SplitPtr, n, slots, heads, ob, oh, on, BLOCK, D, WD)


@triton.jit(do_not_specialize=NUMBERS)
def add_up_both(
    DK, DV_, PartK, PartV, Split, SplitPtr, n, slots, heads, kb, kh, kn, vb, vh, vn,
    BLOCK: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    WD: tl.constexpr, WV: tl.constexpr,
):  # fmt: skip
    summed(DK, PartK, Split, SplitPtr, n, slots, heads, kb, kh, kn, BLOCK, D, WD)
    summed(DV_, PartV, Split, SplitPtr, n, slots, heads, vb, vh, vn, BLOCK, DV, WV)


@triton.jit
def added(Grads, place, part, inside):
    """Integers, added to a table at some places."""
    low = tl.min(tl.where(inside, place, 1 << 30))
    high = tl.max(tl.where(inside, place, -1))
    if low == high:  # all pairs of the tile read one entry
        tl.atomic_add(Grads + low, tl.sum(tl.where(inside, part, 0)))
    else:
        # Triton's interpreter reads beyond a mask that is spread over a tile
        tl.atomic_add(Grads + place, part, mask=inside & (place >= 0))


@triton.jit
def added_by_distance(Grads, place, part, inside):
    """The same where the place is one along each diagonal, as it is in tiles of neighbours."""
    if place.shape[0] == place.shape[1] and place.shape[0] >= SQUARE:
        low = tl.min(tl.where(inside, place, 1 << 30))
        high = tl.max(tl.where(inside, place, -1))
        if low == high:
            tl.atomic_add(Grads + low, tl.sum(tl.where(inside, part, 0)))
        else:
            diagonals(Grads, place, tl.where(inside, part, 0))
    else:
        added(Grads, place, part, inside)


@triton.jit
def diagonals(Grads, place, part):
    """Column c of the turned tile has the diagonals c and c - SIZE, one above the other."""
    SIZE: tl.constexpr = place.shape[0]
    r, c = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :]
    turn = (r - c) & (SIZE - 1)
    part, place = tl.gather(part, turn, 1), tl.gather(place, turn, 1)
    upper = r < c
    for side in tl.static_range(2):
        here = upper if side else r >= c
        at = tl.max(tl.where(here, place, -1), 0)
        tl.atomic_add(Grads + at, tl.sum(tl.where(here, part, 0), 0), mask=at >= 0)
