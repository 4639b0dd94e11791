"""Attention on a GPU against FlexAttention, SDPA and HF BigBird; bf16, 16 heads of 64, and other
sizes of heads, float32, shared keys and single queries.

PYTHONPATH=src:bench python3 bench/attention_gpu.py [--warm] [section ...]

With --warm everything runs once and nothing is timed: it fills the caches of the peers' compilers,
so that several sections can compile at the same time before one run measures them.
"""

import gc
import sys
import time
import traceback

import torch
from measure import commit, gpu_ms, issue_us, skip, write, written
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention

from edgewise.graphs import bigbird, causal, from_edges, full, prefix, strided, tree, window
from edgewise.kernels.attention import attention, case_of, choose
from edgewise.scores import softcap

COPY, PRODUCT = 4.3e12, 790e12  # bytes and operations per second that an H200 reaches, measured
RESULTS: list[dict[str, object]] = []
WARM = "--warm" in sys.argv
torch._dynamo.config.recompile_limit = 10_000
torch._dynamo.config.accumulated_recompile_limit = 10_000
flex = torch.compile(flex_attention, dynamic=False)


def note(**values: object) -> None:
    RESULTS.append(values)
    print(" ".join(f"{k}={v}" for k, v in values.items()), flush=True)


def inputs(n, heads=16, d=64, dtype=torch.bfloat16, keys=None, m=None, batch=1):
    """q of n tokens, k and v of m; `keys` are the heads of both, `heads` unless said."""
    torch.manual_seed(0)
    of_keys = (batch, keys or heads, m or n, d)
    return [
        torch.randn(shape, device="cuda", dtype=dtype, requires_grad=True)
        for shape in ((batch, heads, n, d), of_keys, of_keys)
    ]


def both_ways(run, tensors):
    """Milliseconds forward, forward and backward, and GiB beyond what was there before."""
    weight = torch.randn_like(run())
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()

    def train():
        grads = torch.autograd.grad(run(), tensors, weight)
        del grads

    train()
    peak = (torch.cuda.max_memory_allocated() - before) / 2**30
    if WARM:
        return {"forward": 1.0, "both": 1.0, "extra_gib": 0.0}
    with torch.no_grad():
        forward = gpu_ms(run)
        issue = issue_us(run)
    times = {"forward": forward, "both": gpu_ms(train), "issue_us": issue}
    return {**times, "issue_both_us": issue_us(train), "extra_gib": round(peak, 3)}


def rates(pairs, n, ours, heads=16, d=64):
    """TFLOP/s of the pairs of the graph alone, and the times that no kernel can go below."""
    flops, size = 4 * d * heads * pairs, 2 * heads * n * d
    floor = max(flops / PRODUCT, 4 * size / COPY), max(3.5 * flops / PRODUCT, 12 * size / COPY)
    return {
        "tflops": round(flops / ours["forward"] / 1e9, 1),
        "tflops_both": round(3.5 * flops / ours["both"] / 1e9, 1),
        "floor": round(floor[0] * 1e3, 4),
        "floor_both": round(floor[1] * 1e3, 4),
    }


def compare(name, graph, n, made=None, score=None, **peers):
    """Ours, and each peer on the same tensors; a peer is a function of them and n. `made` says how
    `inputs` differ from the usual ones."""
    tensors = inputs(n, **(made or {}))
    start = time.perf_counter()
    row = {"case": name, "n": n}
    if score is None:
        row["kernel"] = choose(case_of(*tensors, graph)).name
        row["plan_s"] = round(time.perf_counter() - start, 4)

    def mine():
        return attention(*tensors, graph, score=score)

    ours = both_ways(mine, tensors)
    row["ours"] = ours
    if not made:
        row["ours"] = {**ours, **rates((full() if graph is None else graph).count(n), n, ours)}
    for peer_name, peer in peers.items():
        try:
            run = peer(tensors, n)
            expected, got = run().float(), mine().float()
            row["difference"] = f"{((expected - got).norm() / expected.norm()).item():.1e}"
            del expected, got
            row[peer_name] = both_ways(run, tensors)
            for way in ("forward", "both"):
                row[f"{way}_times_{peer_name}"] = round(row[peer_name][way] / ours[way], 2)
        except Exception as error:
            row[f"{peer_name}_failed"] = f"{type(error).__name__}: {error}"[:200]
    note(**row)


def with_flex(graph, mask_mod, score_mod=None):
    def peer(tensors, n):
        mask = graph.block_mask(n).to("cuda")
        mask.mask_mod = mask_mod
        shared = tensors[0].shape[1] != tensors[1].shape[1]
        return lambda: flex(*tensors, score_mod, mask, enable_gqa=shared)

    return peer


def with_sdpa(is_causal):
    def peer(tensors, n):
        q, k, v = tensors
        shared = q.shape[1] != k.shape[1]
        return lambda: scaled_dot_product_attention(q, k, v, is_causal=is_causal, enable_gqa=shared)

    return peer


def windows():
    graph = window(256)
    peer = with_flex(graph, lambda b, h, i, j: (i - j).abs() <= 256)
    for n in (4096, 16384, 65536):
        compare("window ±256", graph, n, flex=peer)
    graph = window(255) & causal()
    peer = with_flex(graph, lambda b, h, i, j: (j <= i) & (i - j <= 255))
    compare("causal window 256", graph, 65536, flex=peer)


def bigbirds():
    """FlexAttention with blocks of 128 and a table of the 64s: torch 2.11 refuses blocks of 64."""
    for n in (4096, 16384, 65536):
        graph = bigbird(64)
        table = graph.blocks(n, block=64).dense().bool().cuda()
        mask = with_flex(graph, lambda b, h, i, j, table=table: table[i // 64, j // 64])
        compare("bigbird", graph, n, flex=mask)


def strides():
    graph = strided(64) & causal()
    peer = with_flex(graph, lambda b, h, i, j: (j <= i) & ((i - j) % 64 == 0))
    for n in (16384, 65536):
        compare("causal strided 64", graph, n, flex=peer)


def trees():
    graph, total = branches(64, 1024, 16384), 16384 + 64 * 1024
    end = torch.full((total,), total, device="cuda")
    end[16384:] = torch.arange(64, device="cuda").repeat_interleave(1024) * 1024 + 16384 + 1024
    peer = with_flex(graph, lambda b, h, i, j: (j <= i) & (i < end[j]))
    compare("shared-prefix tree, 64 × 1k after 16k", graph, total, flex=peer)
    separate = inputs(16384 + 1024)
    one = both_ways(lambda: attention(*separate, causal()), separate)
    note(case="one branch with its prefix", times=64, ours=one, total=round(64 * one["both"], 2))


def branches(count, length, prefix):
    parents = [-1, *range(prefix - 1)]
    for b in range(count):
        first = prefix + b * length
        parents += [prefix - 1, *range(first, first + length - 1)]
    return tree(parents)


def dense():
    for n in (16384, 65536):
        for name, graph in (("full", None), ("causal", causal())):
            compare(name, graph, n, sdpa=with_sdpa(graph is not None))


def sizes():
    """Sizes of heads that are not a power of two, or wide; and float32."""
    graph = window(256)
    peer = with_flex(graph, lambda b, h, i, j: (i - j).abs() <= 256)
    for d in (80, 96, 112, 128):
        compare(f"window ±256, d {d}", graph, 16384, {"d": d}, flex=peer)
    for d in (64, 128):
        made = {"d": d, "dtype": torch.float32}
        compare(f"window ±256, d {d}, float32", graph, 16384, made, flex=peer)
    graph = window(1023) & causal()
    peer = with_flex(graph, lambda b, h, i, j: (j <= i) & (i - j <= 1023))
    for d in (192, 256):
        compare(f"causal window 1,024, d {d}", graph, 8192, {"d": d}, flex=peer)


def shared_keys():
    """32 heads on 8: causal, and one query over a long cache."""
    made = {"heads": 32, "keys": 8, "d": 128}
    compare("causal, d 128, 32 on 8", causal(), 8192, made, sdpa=with_sdpa(True))
    for m, batch in ((65536, 1), (8192, 32)):
        name, cache = f"one query, batch {batch}, {m:,} keys", {**made, "m": m, "batch": batch}
        compare(name, None, 1, cache, sdpa=with_sdpa(False))
    graph = window(4095) & causal()
    peer = with_flex(graph, lambda b, h, i, j: (j <= i) & (i - j <= 4095))
    compare("causal window 4,096, d 128, 32 on 8", graph, 32768, made, flex=peer)


def pixels():
    """Neighbourhoods of 13×13 in an image of 128×128, listed as edges."""
    side, radius = 128, 6
    axis = torch.arange(side, dtype=torch.int16)
    y, x = (z.flatten() for z in torch.meshgrid(axis, axis, indexing="ij"))
    apart = torch.maximum((y[:, None] - y).abs(), (x[:, None] - x).abs())
    graph = from_edges((apart <= radius).nonzero().T)

    def near(b, h, i, j):
        rows, columns = i // side - j // side, i % side - j % side
        return (rows.abs() <= radius) & (columns.abs() <= radius)

    compare("image 128×128, 13×13", graph, side * side, flex=with_flex(graph, near))


def prefixes():
    """A prefix that all attend to, and scores that are capped."""
    graph = prefix(2048)
    peer = with_flex(graph, lambda b, h, i, j: (j <= i) | (j < 2048))
    compare("prefix 2,048", graph, 16384, flex=peer)
    graph = window(1023) & causal()
    capped = with_flex(
        graph,
        lambda b, h, i, j: (j <= i) & (i - j <= 1023),
        lambda s, b, h, i, j: 50.0 * torch.tanh(s / 50.0),
    )
    compare("softcap, causal window 1,024, d 128", graph, 16384, {"d": 128}, softcap(50.0),
            flex=capped)  # fmt: skip


def million():
    graph, n = window(256), 1 << 20
    tensors = inputs(n)
    ours = both_ways(lambda: attention(*tensors, graph), tensors)
    note(case="window ±256", n=n, ours={**ours, **rates(graph.count(n), n, ours)})


def huggingface():
    """One BigBird layer of 1024 features, with its three projections on both sides."""
    from transformers import BigBirdConfig
    from transformers.models.big_bird.modeling_big_bird import (
        BigBirdBlockSparseAttention,
        BigBirdModel,
    )

    n, graph = 16384, bigbird(64)
    config = BigBirdConfig(hidden_size=1024, num_attention_heads=16, block_size=64,
                           num_random_blocks=3, max_position_embeddings=n)  # fmt: skip
    layer = BigBirdBlockSparseAttention(config, seed=0).eval().cuda().bfloat16()
    x = torch.randn(1, n, 1024, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    with torch.no_grad():
        mask = torch.ones(1, n, device="cuda", dtype=torch.bfloat16)
        blocked, band, rows, keys = BigBirdModel.create_masks_for_block_sparse_attn(mask, 64)
    names = {"band_mask": band, "from_mask": rows, "to_mask": keys,
             "from_blocked_mask": blocked, "to_blocked_mask": blocked}  # fmt: skip

    def ours():
        heads = (f(x).view(1, n, 16, 64).transpose(1, 2)
                 for f in (layer.query, layer.key, layer.value))  # fmt: skip
        return attention(*heads, graph)

    at = [x, *layer.parameters()]
    row = {"ours": both_ways(ours, at), "huggingface": both_ways(lambda: layer(x, **names)[0], at)}
    for way in ("forward", "both"):
        row[f"{way}_times"] = round(row["huggingface"][way] / row["ours"][way], 1)
    share = row["ours"]["extra_gib"] / max(row["huggingface"]["extra_gib"], 1e-9)
    note(case="HF BigBird, one layer", n=n, **row, memory_share=round(share, 4))


def lengths():
    """200 lengths and graphs, each new: the first call against its second, and the memory."""
    torch.manual_seed(0)
    first = inputs(999)
    for graph in (window(99), bigbird(64)):  # kernels are compiled once, not for each length
        torch.autograd.grad(attention(*first, graph).sum(), first)
    late, times, memory = [], [], []
    for count, n in enumerate(torch.randint(1000, 20000, (200,)).tolist()):
        tensors = inputs(n)
        graph = (window(64 + count), window(64 + count) & causal(), bigbird(64, seed=count))[
            count % 3
        ]
        both = []
        for _ in range(3):
            torch.cuda.synchronize()
            start = time.perf_counter()
            torch.autograd.grad(attention(*tensors, graph).sum(), tensors)
            torch.cuda.synchronize()
            both.append((time.perf_counter() - start) * 1e3)
        late.append(both[0] - 3 * both[1])
        times.append(both[0])
        del tensors
        memory.append(torch.cuda.memory_allocated() / 2**20)
    late.sort()
    note(
        case="200 new lengths and graphs",
        first_ms_median=round(sorted(times)[100], 2),
        first_minus_3x_second_ms_median=round(late[100], 2),
        first_minus_3x_second_ms_worst=round(late[-1], 2),
        within_5_ms=sum(x <= 5 for x in late),
        memory_mib_after_50_100_200=[round(memory[at], 1) for at in (49, 99, 199)],
    )


SECTIONS = {
    "windows": windows, "bigbirds": bigbirds, "strides": strides, "trees": trees, "dense": dense,
    "sizes": sizes, "shared keys": shared_keys, "pixels": pixels, "prefixes": prefixes,
    "million": million, "huggingface": huggingface, "lengths": lengths,
}  # fmt: skip


def main():
    if not torch.cuda.is_available():
        skip("there is no CUDA GPU here")
    results, failed = written("attention_gpu"), []
    for name in [x for x in sys.argv[1:] if x != "--warm"] or SECTIONS:
        start = time.time()
        RESULTS.clear()
        try:
            SECTIONS[name]()
        except Exception:
            traceback.print_exc()
            failed.append(name)
        gc.collect()
        torch.cuda.empty_cache()
        print(f"section {name}: {time.time() - start:.1f} s", flush=True)
        if not WARM and RESULTS:
            results[name] = {"commit": commit(), "rows": list(RESULTS)}
            write("attention_gpu", results)
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
