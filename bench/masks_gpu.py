"""Masks written as queries beside FlexAttention with the same `mask_mod`: bf16, 8 heads of 64.

PYTHONPATH=src:bench python3 bench/masks.py --gpu [--tokens 4096,16384] [--workers 14] [names ...]

Every mask is first compared with loops over all pairs, and values and gradients with a softmax of
all pairs. Then processes plan and compile at the same time, and time one after another. `plan_s`
is what reading the relations and planning takes, `block_mask_s` what FlexAttention's blocks do;
neither is in the times, which are milliseconds forward, and forward and backward.
"""

import argparse
import contextlib
import os
import queue
import signal
import sys
import time
import traceback
from pathlib import Path
from threading import BrokenBarrierError

import torch
import torch.multiprocessing as mp
from measure import gpu_ms, skip, write
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from edgewise import F, Program, R, V

sys.path.append(str(Path(__file__).parents[1]))  # the corpus is that of the tests
from tests.ground.mask_corpus import CORPUS, TEXTS, facts

HEADS, D, SMALL, CHUNK = 8, 64, 200, 2048
PLANNING_S = 20  # after which planning is stopped
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CASES = {case.name: case for case in CORPUS}


class Columns:
    """Tables as tensors on the device: the value of each token, or a matrix of pairs."""

    def __init__(self, tables, n):
        self.tables, self.n = tables, n

    def __getattr__(self, name):
        found = torch.full((self.n,), -1, dtype=torch.int32, device=DEVICE)
        table = torch.from_numpy(self.tables[name]).to(DEVICE)
        found[table[0]] = table[1].int() if len(table) > 1 else 1
        return found

    def matrix(self, i, j):
        found = torch.zeros(self.n, self.n, dtype=torch.bool, device=DEVICE)
        found[i, j] = True
        return found

    def pairs(self, name):
        return self.matrix(*torch.from_numpy(self.tables[name]).to(DEVICE))

    def sharing(self, name):
        """Pairs of tokens with a common value of several."""
        token, value = torch.from_numpy(self.tables[name])
        groups = [token[value == one] for one in value.unique()]
        pairs = torch.cat([torch.cartesian_prod(x, x) for x in groups])
        return self.matrix(*pairs.T.to(DEVICE))

    def above(self):
        """Pairs of a token and an ancestor."""
        parent, found = self.parent.cpu().long(), []
        child = torch.arange(self.n)
        up = parent.clone()
        while (up >= 0).any():
            child, up = child[up >= 0], up[up >= 0]
            found.append(torch.stack([child, up]))
            up = parent[up]
        return self.matrix(*torch.cat(found, 1).to(DEVICE))

    def scope(self):
        _, start, stop = torch.from_numpy(self.tables["scope"]).to(DEVICE).int()
        return start, stop


def equal(*columns):
    def mod(b, h, i, j):
        found = columns[0][i] == columns[0][j]
        for column in columns[1:]:
            found = found & (column[i] == column[j])
        return found

    return mod


def earlier(mod):
    return lambda b, h, i, j: mod(b, h, i, j) & (j <= i)


def listed(matrix):
    return lambda b, h, i, j: matrix[i, j]


def between(value, low, high):
    """low ≤ value(i) − value(j) ≤ high."""

    def mod(b, h, i, j):
        apart = value[i] - value[j]
        return (apart >= low) & (apart <= high)

    return mod


def own_turn(turn, speaker):
    return lambda b, h, i, j: (turn[i] == turn[j]) | (speaker[i] != speaker[j])


def prefixes(document, offset, prefix):
    return lambda b, h, i, j: (document[i] == document[j]) & ((j <= i) | (offset[j] < prefix[j]))


def scoped(start, stop, of_key):
    if of_key:
        return lambda b, h, i, j: (start[j] <= i) & (i < stop[j])
    return lambda b, h, i, j: (start[i] <= j) & (j < stop[i])


def near_or_global(some):
    return lambda b, h, i, j: ((i - j).abs() <= 2) | (some[i] >= 0) | (some[j] >= 0)


def related(left, right, table):
    return lambda b, h, i, j: table[left[i], right[j]]


def of_document(c):
    prefix = torch.from_numpy(c.tables["prefix"][1]).to(DEVICE).int()
    return prefixes(c.document, c.offset, prefix[c.document.long()])


def table_of(c, name, size):
    found = torch.zeros(size, size, dtype=torch.bool, device=DEVICE)
    found[tuple(torch.from_numpy(c.tables[name]).to(DEVICE))] = True
    return found


def later(left, right, strict):
    if strict:
        return lambda b, h, i, j: right[j] < left[i]
    return lambda b, h, i, j: right[j] <= left[i]


def both(*mods):
    def mod(b, h, i, j):
        found = mods[0](b, h, i, j)
        for one in mods[1:]:
            found = found & one(b, h, i, j)
        return found

    return mod


def either(one, other):
    return lambda b, h, i, j: one(b, h, i, j) | other(b, h, i, j)


def without(mod):
    return lambda b, h, i, j: ~mod(b, h, i, j)


def real_key(some):
    return lambda b, h, i, j: some[j] >= 0


MODS = {
    "same speaker": lambda c: equal(c.speaker),
    "same speaker, earlier": lambda c: earlier(equal(c.speaker)),
    "own turn or the other speaker": lambda c: earlier(own_turn(c.turn, c.speaker)),
    "previous turn": lambda c: between(c.turn, 1, 1),
    "last two turns": lambda c: between(c.turn, 0, 2),
    "documents, causal": lambda c: earlier(equal(c.document)),
    "shuffled documents, causal": lambda c: earlier(equal(c.shuffled)),
    "documents × roles": lambda c: equal(c.document, c.role),
    "documents with prefixes": of_document,
    "same sentence or coreferent, and earlier": lambda c: earlier(
        either(equal(c.sentence), listed(c.sharing("mention")))
    ),
    "neighbouring sentences": lambda c: between(c.sentence, -1, 1),
    "ancestors": lambda c: listed(c.above()),
    "earlier by time": lambda c: later(c.clock, c.clock, False),
    "the last ten minutes": lambda c: between(c.time, 0, 10),
    "arrived before sent": lambda c: earlier(later(c.time, c.arrived, True)),
    "earlier of the same speaker": lambda c: both(equal(c.speaker), later(c.clock, c.clock, True)),
    "row or column": lambda c: either(equal(c.x), equal(c.y)),
    "below in the same column": lambda c: both(equal(c.x), later(-c.y, -c.y, True)),
    "edges": lambda c: listed(c.pairs("edge")),
    "not banned, and earlier": lambda c: earlier(without(listed(c.pairs("banned")))),
    "names in scope": lambda c: scoped(*c.scope(), of_key=True),
    "inside of my scope": lambda c: scoped(*c.scope(), of_key=False),
    "level at most mine": lambda c: later(c.level, c.level, False),
    "groups that my owner is in": lambda c: related(c.owner, c.group, table_of(c, "member", 4)),
    "padding, causal": lambda c: earlier(real_key(c.real)),
    "global tokens": lambda c: near_or_global(getattr(c, "global")),
    "compatible types": lambda c: related(c.type, c.type, table_of(c, "compatible", 4)),
}


def program(case):
    """Attention of several heads with the mask of a case."""
    of_head = (R.k(V.H, V.J).T, R.q(V.H, V.I), *case.conditions)
    return Program([
        *case.rules,
        (R.weights(V.H, V.I, V.J) <= of_head) | [F.product, F.softmax_agg(agg_terms=[V.J])],
        (R.out(V.H, V.I) <= (R.weights(V.H, V.I, V.J), R.v(V.H, V.J))) | [F.product],
    ])  # fmt: skip


class OutOfTime(Exception):
    """Planning, compiling or the run take too long."""


def planned(case, n, tables, tensors):
    """The model as a function of nothing, how long planning took, and how it is computed."""
    reads = case.inputs(tables)
    if "R.h(" in repr(case.rules):
        reads["h"] = torch.ones(n, 1, dtype=torch.bfloat16, device=DEVICE)
    model = program(case).compile(R.out, seed=0, fill=0.0).to(DEVICE, torch.bfloat16)
    inputs = dict(zip("qkv", tensors, strict=True))

    def refuse(*_):
        raise OutOfTime(f"planning takes more than {PLANNING_S} s")

    signal.signal(signal.SIGALRM, refuse)
    signal.alarm(PLANNING_S)
    start = time.perf_counter()
    try:
        data = model.ground(**reads)
        explained = model.explain(data, **inputs, stage="kernels").to_json()
    finally:
        signal.alarm(0)
    took = time.perf_counter() - start
    step = explained["kernels"]["relations"][-1]["steps"][0]
    row = {"pairs": step["pairs"] // HEADS, "kernel": step["kernel"], "plan_s": round(took, 3)}
    return lambda: model(data, **inputs), row


def blocks_of(mod, n):
    """FlexAttention's blocks, some queries at a time; their time, and how many pairs there are."""
    start, parts, pairs = time.perf_counter(), [], 0
    for at in range(0, n, CHUNK):
        size = min(CHUNK, n - at)
        moved = lambda b, h, i, j, at=at: mod(b, h, i + at, j)  # noqa: E731
        parts.append(create_block_mask(moved, None, None, size, n, device=DEVICE))
    fields = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")
    joined = (torch.cat([getattr(part, field) for part in parts], 2) for field in fields)
    found = BlockMask.from_kv_blocks(*joined, BLOCK_SIZE=128, mask_mod=mod, seq_lengths=(n, n))
    synchronize()
    took = time.perf_counter() - start
    for at in range(0, n, CHUNK):
        pairs += int(matrix_of(mod, at, min(at + CHUNK, n), n).sum())
    return found, {"block_mask_s": round(took, 3), "allowed": pairs}


def matrix_of(mod, first, last, n):
    """The mask of some queries as a matrix."""
    i = torch.arange(first, last, device=DEVICE)[:, None]
    return mod(0, 0, i, torch.arange(n, device=DEVICE)[None]) & (i >= 0)


def synchronize():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def numbers(n):
    torch.manual_seed(0)
    return [
        (torch.randn(HEADS, n, D, device=DEVICE) / 4).bfloat16().requires_grad_() for _ in range(3)
    ]


def away(ours, other):
    pairs = zip(ours, other, strict=True)
    return max(((a - b).float().norm() / b.float().norm()).item() for a, b in pairs)


def results(run, tensors):
    out = run()
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out)
    return [out.detach(), *torch.autograd.grad(out, tensors, weight)]


def check(name):
    """The same mask by loops, by `mask_mod` and by rules, at a small size."""
    case, tables = CASES[name], facts(SMALL)
    mask, tensors = case.mask(SMALL, tables).to(DEVICE), numbers(SMALL)
    mod = MODS[name](Columns(tables, SMALL))
    assert torch.equal(matrix_of(mod, 0, SMALL, SMALL), mask), f"mask_mod of {name}"
    run, row = planned(case, SMALL, tables, tensors)
    assert row["pairs"] == mask.sum(), f"pairs of {name}"
    some = mask.any(1)

    def plain():
        q, k, v = (x.float() for x in tensors)
        score = (q @ k.mT).masked_fill(~mask, -torch.inf)
        score = torch.where(some[:, None], score, 0.0)
        return (score.softmax(-1) * some[:, None] @ v).bfloat16()

    return round(away(results(run, tensors), results(plain, tensors)), 5)


def of_flex(tensors, block):
    flex = torch.compile(flex_attention, dynamic=False)
    return lambda: flex(*(x[None] for x in tensors), block_mask=block, scale=1.0)[0]


def of_sdpa(tensors, mod, n):
    """FlexAttention has no backward on a CPU."""
    bias = torch.zeros(n, n).masked_fill(~matrix_of(mod, 0, n, n), -torch.inf).bfloat16()
    attend = torch.nn.functional.scaled_dot_product_attention
    return lambda: attend(*tensors, attn_mask=bias, scale=1.0).nan_to_num()


def prepared(name, n):
    """Both sides compiled and compared; their functions and what is known of them."""
    tables, tensors = facts(n, rates=TEXTS), numbers(n)
    row = {"mask": name, "tokens": n}
    run, found = planned(CASES[name], n, tables, tensors)
    mod = MODS[name](Columns(tables, n))
    block, about = blocks_of(mod, n)
    row |= found | about
    peer = of_flex(tensors, block) if DEVICE == "cuda" else of_sdpa(tensors, mod, n)
    row["away"] = round(away(results(run, tensors), results(peer, tensors)), 5)
    if DEVICE == "cuda":
        torch.cuda.empty_cache()
    return row, {"": run, "flex_": peer}, tensors


def timed(row, runs, tensors):
    for who, run in runs.items():
        weight = torch.ones_like(run())
        train = lambda run=run, w=weight: torch.autograd.grad(run(), tensors, w)  # noqa: E731
        with torch.no_grad():
            row[f"{who}forward"] = milliseconds(run)
        row[f"{who}both"] = milliseconds(train)


def milliseconds(run):
    if DEVICE == "cuda":
        return gpu_ms(run, seconds=0.1)
    start = time.perf_counter()
    run()
    return round(1e3 * (time.perf_counter() - start), 2)


def failure(error, **row):
    return {**row, "failed": f"{type(error).__name__}: {error}"[:300]}


def worker(cases, turn, ready, rows, deadline):
    """Prepares its cases while the others do, then times them while the others wait.

    What fails, or comes too late, is a row that says so.
    """
    torch._dynamo.config.recompile_limit = 10_000
    torch._dynamo.config.accumulated_recompile_limit = 10_000
    done, start = [], time.time()
    for name, n in cases:
        try:
            if time.time() > start + (deadline - start) / 2:
                raise OutOfTime("compiling took too long")
            away_at_small = check(name)
            done.append(prepared(name, n))
            done[-1][0]["small_away"] = away_at_small
        except Exception as error:
            traceback.print_exc()
            rows.put(failure(error, mask=name, tokens=n))
    with contextlib.suppress(BrokenBarrierError):
        ready.wait(max(deadline - time.time(), 0.1) / 2)
    with turn:
        for row, runs, tensors in done:
            try:
                if time.time() > deadline:
                    raise OutOfTime("timing took too long")
                timed(row, runs, tensors)
                rows.put(row)
            except Exception as error:
                rows.put(failure(error, **row))
    rows.put(None)


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--here", action="store_true", help="on this CPU, to try the script")
    parser.add_argument("--tokens", default="4096,16384,65536")
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--seconds", type=int, default=115, help="of the run, in all")
    parser.add_argument("names", nargs="*")
    return parser.parse_args()


def main():
    chosen = options()
    if DEVICE != "cuda" and not chosen.here:
        skip("there is no CUDA GPU here")
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # processes enough
    sizes = [int(n) for n in chosen.tokens.split(",")]
    names = chosen.names or list(MODS)
    cases = [[(name, n) for name in names[at :: chosen.workers] for n in sizes]
             for at in range(min(chosen.workers, len(names)))]  # fmt: skip
    context = mp.get_context("spawn")
    turn, ready, rows = context.Lock(), context.Barrier(len(cases)), context.Queue()
    deadline = time.time() + chosen.seconds
    workers = [
        context.Process(target=worker, args=(part, turn, ready, rows, deadline), daemon=True)
        for part in cases
    ]
    for process in workers:
        process.start()
    found = collected(rows, len(workers), deadline + 5)
    for process in workers:
        process.kill()  # its results are here; one that hangs must not hold the others up
    wrong = [r for r in found if "failed" in r or r["pairs"] != r["allowed"] or r["away"] > 0.02]
    print(f"{len(found)} rows, {len(wrong)} wrong")
    sys.exit(bool(wrong))


def collected(rows, left, deadline):
    """Rows as they come, until all workers are done or time is up."""
    found = []
    while left and time.time() < deadline:
        try:
            row = rows.get(timeout=1)
        except queue.Empty:
            continue
        if row is None:
            left -= 1
            continue
        found.append(row)
        print(" ".join(f"{k}={v}" for k, v in row.items()), flush=True)
        write("masks_gpu", {"masks": found, "peer": "FlexAttention", "heads": HEADS})
    return found


if __name__ == "__main__":
    main()
