"""Attention on a GPU against FlexAttention, SDPA and PyG, in one run; bf16, 16 heads of 64.

PYTHONPATH=src:bench python3 bench/attention_gpu.py [section ...]
"""

import sys
import time
import traceback

import torch
from measure import gpu_ms, write
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention

from edgewise.graphs import bigbird, causal, from_edges, strided, tree, window
from edgewise.kernels.attention import attention, case_of, choose

RESULTS: list[dict[str, object]] = []
torch._dynamo.config.recompile_limit = 10_000
torch._dynamo.config.accumulated_recompile_limit = 10_000
flex = torch.compile(flex_attention, dynamic=False)


def note(**values: object) -> None:
    RESULTS.append(values)
    print(" ".join(f"{k}={v}" for k, v in values.items()), flush=True)


def inputs(n, heads=16, d=64, dtype=torch.bfloat16):
    torch.manual_seed(0)
    shape = (1, heads, n, d)
    return [torch.randn(shape, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3)]


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
    with torch.no_grad():
        forward = gpu_ms(run)
    return {"forward": forward, "both": gpu_ms(train), "extra_gib": round(peak, 3)}


def compare(name, graph, n, peer, peer_name="flex", **sizes):
    tensors = inputs(n, **sizes)
    start = time.perf_counter()
    choice = choose(case_of(*tensors, graph))
    plan = time.perf_counter() - start
    ours = both_ways(lambda: attention(*tensors, graph), tensors)
    pairs = (graph or causal()).count(n)
    flops = 4 * 64 * 16 * pairs
    ours["tflops"] = round(flops / ours["forward"] / 1e9, 1)
    ours["tflops_both"] = round(3.5 * flops / ours["both"] / 1e9, 1)
    row = {"case": name, "n": n, "kernel": choice.name, "plan_s": round(plan, 4), "ours": ours}
    try:
        run = peer(tensors, n)
        expected, got = run().float(), attention(*tensors, graph).float()
        row["difference"] = f"{((expected - got).norm() / expected.norm()).item():.1e}"
        del expected, got
        row[peer_name] = both_ways(run, tensors)
        row["times_forward"] = round(row[peer_name]["forward"] / ours["forward"], 2)
        row["times_both"] = round(row[peer_name]["both"] / ours["both"], 2)
    except Exception as error:
        row["peer_failed"] = f"{type(error).__name__}: {error}"[:200]
    note(**row)


def with_flex(graph, mask_mod):
    def peer(tensors, n):
        mask = graph.block_mask(n).to("cuda")
        mask.mask_mod = mask_mod
        return lambda: flex(*tensors, block_mask=mask)

    return peer


def windows():
    graph = window(256)
    for n in (4096, 16384, 65536, 262144):
        compare("window ±256", graph, n, with_flex(graph, lambda b, h, i, j: (i - j).abs() <= 256))
    graph = window(255) & causal()
    mask = with_flex(graph, lambda b, h, i, j: (j <= i) & (i - j <= 255))
    compare("causal window 256", graph, 65536, mask)


def bigbirds():
    """FlexAttention refuses blocks of 64 here, so its blocks are of 128 with a table of the 64s."""
    for n in (4096, 16384, 65536):
        graph = bigbird(64)
        table = graph.blocks(n, block=64).dense().bool().cuda()
        mask = with_flex(graph, lambda b, h, i, j, table=table: table[i // 64, j // 64])
        compare("bigbird", graph, n, mask)


def strides():
    graph = strided(64) & causal()
    mask = with_flex(graph, lambda b, h, i, j: (j <= i) & ((i - j) % 64 == 0))
    for n in (16384, 65536):
        compare("causal strided 64", graph, n, mask)


def trees():
    graph, total = branches(64, 1024, 16384), 16384 + 64 * 1024
    end = torch.full((total,), total, device="cuda")
    end[16384:] = torch.arange(64, device="cuda").repeat_interleave(1024) * 1024 + 16384 + 1024
    mask = with_flex(graph, lambda b, h, i, j: (j <= i) & (i < end[j]))
    compare("shared-prefix tree, 64 × 1k after 16k", graph, total, mask)
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
            is_causal = graph is not None
            compare(
                name,
                graph,
                n,
                lambda t, n, c=is_causal: lambda: scaled_dot_product_attention(*t, is_causal=c),
                "sdpa",
            )


def million():
    graph, n = window(256), 1 << 20
    tensors = inputs(n)
    note(case="window ±256", n=n, ours=both_ways(lambda: attention(*tensors, graph), tensors))


def edges():
    n, degree = 1 << 20, 16
    for name in ("uniform", "power law"):
        note(graph=name, **graph_attention(n, degree, name))


def graph_attention(n, degree, name):
    i = torch.arange(n).repeat_interleave(degree)
    j = torch.randint(n, (n * degree,))
    if name == "power law":
        heavy = (torch.rand(n * degree) ** 8 * n).long()
        i, j = (
            torch.cat([heavy, torch.zeros(n, dtype=torch.int64)]),
            torch.cat([j, torch.arange(n)]),
        )
    start = time.perf_counter()
    graph = from_edges(torch.stack([i, j]))
    e = graph.count(n)
    flat = [torch.randn(n, 64, device="cuda", requires_grad=True) for _ in range(3)]

    def run():
        q, k, v = (x.view(n, 4, 16).transpose(0, 1) for x in flat)
        return attention(q, k, v, graph)

    run()
    row = {"n": n, "edges": e, "first_call_s": round(time.perf_counter() - start, 2)}
    row["ours"] = both_ways(run, flat)
    try:
        row["pyg"] = pyg(n, graph.edges(n).flip(0).cuda())
        row["times_forward"] = round(row["pyg"]["forward"] / row["ours"]["forward"], 1)
        row["times_both"] = round(row["pyg"]["both"] / row["ours"]["both"], 1)
    except Exception as error:
        row["peer_failed"] = f"{type(error).__name__}: {error}"[:200]
    return row


def pyg(n, edge_index):
    """The message passing of TransformerConv on given q, k and v: no projections on either side."""
    from torch_geometric.nn import TransformerConv

    conv = TransformerConv(64, 16, heads=4, root_weight=False).cuda()
    flat = [torch.randn(n, 4, 16, device="cuda", requires_grad=True) for _ in range(3)]

    def run():
        q, k, v = flat
        return conv.propagate(edge_index, query=q, key=k, value=v, edge_attr=None)

    return both_ways(run, flat)


def lengths():
    """A new length or graph: the first call against its second."""
    slow = []
    torch.manual_seed(0)
    sizes = torch.randint(1000, 20000, (100,)).tolist()
    attention(*inputs(999), window(99))
    for count, n in enumerate(sizes):
        tensors, graph = inputs(n), window(64 + count)
        times = []
        for _ in range(2):
            torch.cuda.synchronize()
            start = time.perf_counter()
            torch.autograd.grad(attention(*tensors, graph).sum(), tensors)
            torch.cuda.synchronize()
            times.append((time.perf_counter() - start) * 1e3)
        slow.append(times[0] - 3 * times[1])
    worst = sorted(slow)
    note(
        case="100 new lengths and graphs",
        first_minus_3x_second_ms_median=round(worst[50], 2),
        worst=round(worst[-1], 2),
        memory_gib=round(torch.cuda.memory_allocated() / 2**30, 3),
    )


SECTIONS = {
    "windows": windows, "bigbirds": bigbirds, "strides": strides, "trees": trees, "dense": dense,
    "million": million, "edges": edges, "lengths": lengths,
}  # fmt: skip


def main():
    for name in sys.argv[1:] or SECTIONS:
        start = time.time()
        try:
            SECTIONS[name]()
        except Exception:
            traceback.print_exc()
        torch.cuda.empty_cache()
        note(section=name, seconds=round(time.time() - start, 1))
        write("attention_gpu", RESULTS)


if __name__ == "__main__":
    main()
