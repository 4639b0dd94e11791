"""A few queries over a long cache, in Triton: its keys are split among programs, whose results are
merged by log-sum-exp. Imported only by the function that launches it.

The rows of a program are all queries of the heads that share its keys: row r is query r // group of
head r % group, so that every key is read once for all of them.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,import-untyped,untyped-decorator"

import triton
import triton.language as tl

from edgewise.kernels.attention.triton.block_kernels import LN2, LOG2E

COUNTS = ["runs", "n", "m", "keys", "group", "chunk", "splits", "sbh", "sbn", "sbm"]


@triton.jit
def among(Layers, n, t, j, LAYERS: tl.constexpr):
    """Which keys j each row, of query t, attends to: those of one of its progressions."""
    found = (t[:, None] + j[None, :]) < 0
    for layer in tl.static_range(LAYERS):
        at = Layers + layer * 3 * n + t
        low, high, step = tl.load(at), tl.load(at + n), tl.load(at + 2 * n)
        back = j[None, :] - low[:, None]
        here = (back >= 0) & (j[None, :] < high[:, None])
        found |= here & (back % step[:, None] == 0)
    return found


@triton.jit(do_not_specialize=COUNTS)
def split_keys(
    Q, K, V, PartOut, PartLse, Lengths, Runs, Layers, runs, scale, n, m, keys, group, chunk, splits,
    qb, qh, qn, kb, kh, km, vb, vh, vm, Tables, Sizes, Bias, sbh, sbn, sbm,
    VALUE: tl.constexpr, SCORE: tl.constexpr, BIAS: tl.constexpr, RAGGED: tl.constexpr,
    LAYERS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    D: tl.constexpr, DV: tl.constexpr, WD: tl.constexpr, WV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """All rows over the places `chunk`·s ≤ place < `chunk`·(s + 1) of the runs, one after another;
    each run is filled up to whole blocks. Of `RAGGED` ones batch element b has `Lengths[b]` keys,
    and blocks beyond them are not read."""
    s, own = tl.program_id(0), tl.program_id(1)
    b, shared = (own // keys).to(tl.int64), (own % keys).to(tl.int64)
    r, x, y, e = tl.arange(0, ROWS), tl.arange(0, WD), tl.arange(0, WV), tl.arange(0, BLOCK)
    real = r < n * group
    t, head = tl.where(real, r // group, 0), r % group
    of_q = Q + b * qb + (shared * group + head) * qh + t.to(tl.int64) * qn
    q = tl.load(of_q[:, None] + x[None, :], mask=real[:, None] & (x < D)[None, :], other=0.0)
    h = own.to(tl.int64) * group + head
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, WV], tl.float32)
    begin = s * chunk
    for run in range(runs):
        start, count, step = (
            tl.load(Runs + 3 * run), tl.load(Runs + 3 * run + 1), tl.load(Runs + 3 * run + 2)
        )  # fmt: skip
        size = tl.cdiv(count, BLOCK) * BLOCK
        if RAGGED:
            left = tl.load(Lengths + b).to(tl.int32) - start
            count = tl.minimum(count, tl.cdiv(tl.maximum(left, 0), step))
        first, last = tl.maximum(begin, 0), tl.minimum(begin + chunk, count)
        for place in range(first, last, BLOCK):
            there = place + e < count
            j = start + tl.where(there, place + e, 0) * step
            inside = there[None, :] & real[:, None]
            if LAYERS > 0:
                inside &= among(Layers, n, t, j, LAYERS)
            if BIAS:
                at = h[:, None] * sbh + t[:, None].to(tl.int64) * sbn + j[None, :] * sbm
                bias = tl.load(Bias + at, mask=inside, other=float("-inf")).to(tl.float32)
                inside &= bias != float("-inf")
            # a block that is always read is fetched while the last one is computed
            if not BIAS or tl.max(inside.to(tl.int32)) > 0:
                far = j.to(tl.int64)[:, None]
                of_k, of_v = K + b * kb + shared * kh, V + b * vb + shared * vh
                mask_k, mask_v = there[:, None] & (x < D)[None, :], there[:, None] & (y < DV)[None]
                k = tl.load(of_k + far * km + x[None, :], mask=mask_k, other=0.0)
                v = tl.load(of_v + far * vm + y[None, :], mask=mask_v, other=0.0)
                dot = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
                if SCORE:
                    dot = VALUE(dot, t[:, None], j[None, :], h[:, None], Tables, Sizes)
                if BIAS:
                    dot += tl.where(inside, bias, 0.0)
                dot = tl.where(inside, dot * LOG2E, float("-inf"))
                new = tl.maximum(top, tl.max(dot, 1))
                safe = tl.where(new == float("-inf"), 0.0, new)
                p = tl.exp2(dot - safe[:, None])
                shrink = tl.exp2(top - safe)
                total = total * shrink + tl.sum(p, 1)
                acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision=PRECISION)
                top = new
        begin -= size
    some = total != 0.0  # NaN counts
    acc *= (1.0 / tl.where(some, total, 1.0))[:, None]
    lse = tl.where(some, (top + tl.log2(tl.where(some, total, 1.0))) * LN2, float("-inf"))
    at = (own.to(tl.int64) * splits + s) * ROWS + r
    tl.store(PartLse + at, lse)
    tl.store(PartOut + at[:, None] * WV + y[None, :], acc)


@triton.jit(do_not_specialize=COUNTS)
def merge_splits(
    Out, Lse, PartOut, PartLse, n, group, splits,
    ROWS: tl.constexpr, DV: tl.constexpr, WV: tl.constexpr,
):  # fmt: skip
    """Weighted by their shares of the log-sum-exp; (heads, n, dv) one after another."""
    own = tl.program_id(0).to(tl.int64)
    r, y = tl.arange(0, ROWS), tl.arange(0, WV)
    top = tl.full([ROWS], float("-inf"), tl.float32)
    for s in range(splits):
        top = tl.maximum(top, tl.load(PartLse + (own * splits + s) * ROWS + r))
    safe = tl.where(top == float("-inf"), 0.0, top)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, WV], tl.float32)
    for s in range(splits):
        at = (own * splits + s) * ROWS + r
        share = tl.exp(tl.load(PartLse + at) - safe)
        total += share
        acc += share[:, None] * tl.load(PartOut + at[:, None] * WV + y[None, :])
    some = total != 0.0
    total = tl.where(some, total, 1.0)
    to, real = (own * group + r % group) * n + r // group, r < n * group
    tl.store(Lse + to, tl.where(some, safe + tl.log(total), float("-inf")), mask=real)
    out = (acc / total[:, None]).to(Out.dtype.element_ty)
    tl.store(Out + to[:, None] * DV + y[None, :], out, mask=real[:, None] & (y < DV)[None, :])
