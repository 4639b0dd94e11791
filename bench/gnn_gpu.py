"""Graph networks on a GPU against PyG, fp32: 1M nodes, 16M edges, d = 64 in 4 heads, in one run.

PYTHONPATH=src:bench python3 bench/gnn_gpu.py [model ...]

Each layer is a compiled program with PyG's weights; outputs and gradients are compared first. The
extra memory is what a training step takes beyond inputs, parameters, the output and gradients.
"""

import os
import sys
import time
import warnings

import torch
from measure import write

from edgewise import Program, R, V
from edgewise.graphs import from_edges
from edgewise.kernels.attention import attention
from edgewise.zoo import gat, gatv2, gcn, graphsage, parts, rgcn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyG's own imports
    from torch_geometric import __version__ as pyg_version
    from torch_geometric import nn as pyg

D, HEADS, TYPES = 64, 4, 128
M = D // HEADS
N = int(os.environ.get("NODES", 1 << 20))
DEGREE = 16
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BARS = {"messages": (15, 10), "transformer": (15, 10), "gat": (8, 8), "gcn": (3, 3), "rgcn": (5, 5)}
SECONDS = 1.0  # of each measurement


def by_head(weight):
    return weight.reshape(HEADS, M, -1)


def same(weight):
    return weight


def with_transformer():
    conv = pyg.TransformerConv(D, M, heads=HEADS, root_weight=False)
    rules = parts.attention(R.x, R.out, D, HEADS, where=(R._edge(V.I, V.J),))
    named = {}
    for name, linear in (("q", conv.lin_query), ("k", conv.lin_key), ("v", conv.lin_value)):
        named[f"{name}.weight"] = (linear.weight, by_head)
        named[f"{name}.bias"] = (linear.bias, lambda b: b.reshape(HEADS, M))
    return Program(rules, domains={V.H: HEADS}), conv, named


def with_gcn():
    conv = pyg.GCNConv(D, D)
    return gcn.program(gcn.Config(D, D)), conv, {"weight": (conv.lin.weight, same)}


def with_gcn_cached():
    """PyG keeps the norms of the edges from its first call on."""
    conv = pyg.GCNConv(D, D, cached=True)
    return gcn.program(gcn.Config(D, D)), conv, {"weight": (conv.lin.weight, same)}


def with_sage():
    conv = pyg.SAGEConv(D, D)
    named = {
        "root.weight": (conv.lin_r.weight, same),
        "neighbours.weight": (conv.lin_l.weight, same),
    }
    named["bias"] = (conv.lin_l.bias, same)
    return graphsage.program(graphsage.Config(D, D)), conv, named


def with_gat():
    conv = pyg.GATConv(D, M, heads=HEADS)
    named = {
        "weight": (conv.lin.weight, by_head),
        "target": (conv.att_dst, lambda a: a.reshape(HEADS, 1, M)),
        "source": (conv.att_src, lambda a: a.reshape(HEADS, 1, M)),
    }
    return gat.program(gat.Config(D, M, HEADS)), conv, named


def with_gatv2():
    conv = pyg.GATv2Conv(D, M, heads=HEADS)
    named = {"attention": (conv.att, lambda a: a.reshape(HEADS, 1, M))}
    for name, linear in (("source", conv.lin_l), ("target", conv.lin_r)):
        named[f"{name}.weight"] = (linear.weight, by_head)
        named[f"{name}.bias"] = (linear.bias, lambda b: b.reshape(HEADS, M))
    return gatv2.program(gatv2.Config(D, M, HEADS)), conv, named


def with_rgcn():
    conv = pyg.RGCNConv(D, D, TYPES)
    turned = {"root": (conv.root, lambda w: w.T)}
    turned["relation"] = (conv.weight, lambda w: w.transpose(1, 2))
    return rgcn.program(rgcn.Config(D, D, TYPES)), conv, turned


MODELS = {
    "transformer": with_transformer,
    "gat": with_gat,
    "gcn": with_gcn,
    "gcn_cached": with_gcn_cached,
    "rgcn": with_rgcn,
    "gatv2": with_gatv2,
    "sage": with_sage,
}


def drawn(graph):
    """Distinct edges (i, j) without loops, in key order, and a type for each.

    In "power law" the degrees of i fall like a power, and node 0 is connected to every node.
    """
    torch.manual_seed(0)
    i, j = torch.arange(N).repeat_interleave(DEGREE), torch.randint(N, (N * DEGREE,))
    if graph == "power law":
        i = torch.cat([(torch.rand(N * DEGREE) ** 8 * N).long(), torch.zeros(N, dtype=torch.long)])
        j = torch.cat([j, torch.arange(N)])
    codes = torch.unique((i * N + j)[i != j])
    return codes // N, codes % N, torch.randint(TYPES, (len(codes),))


def milliseconds(run):
    """The median of single calls between events, after two to warm up."""
    run(), run()
    _wait()
    times, start = [], time.perf_counter()
    while len(times) < 3 or (time.perf_counter() - start < SECONDS and len(times) < 50):
        times.append(_once(run))
    return round(sorted(times)[len(times) // 2], 3)


def _once(run):
    if DEVICE == "cpu":
        start = time.perf_counter()
        run()
        return (time.perf_counter() - start) * 1e3
    a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    a.record()
    run()
    b.record()
    b.synchronize()
    return a.elapsed_time(b)


def _wait():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def both_ways(run, leaves, weight):
    def forward():
        with torch.no_grad():
            run()

    def train():
        torch.autograd.grad(run(), leaves, weight, allow_unused=True)

    found = {"forward": milliseconds(forward), "both": milliseconds(train)}
    if DEVICE == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        train()
        used = torch.cuda.max_memory_allocated() - before
        known = sum(x.numel() * x.element_size() for x in (*leaves, weight))
        found["extra_gib"] = round((used - known) / 2**30, 3)
    return found


def messages(graph, edges):
    """The message passing of TransformerConv alone, on given q, k and v: no projections."""
    i, j, _ = edges
    start = time.perf_counter()
    pairs = from_edges(torch.stack([i, j]), shape=(N, N))
    flat = [torch.randn(N, D, device=DEVICE, requires_grad=True) for _ in range(3)]
    conv = pyg.TransformerConv(D, M, heads=HEADS, root_weight=False).to(DEVICE)
    index = torch.stack([j, i]).to(DEVICE)
    weight = torch.randn(N, D, device=DEVICE)

    def ours():
        q, k, v = (x.view(N, HEADS, M).transpose(0, 1) for x in flat)
        return attention(q, k, v, pairs).transpose(0, 1).reshape(N, D)

    def theirs():
        q, k, v = (x.view(N, HEADS, M) for x in flat)
        return conv.propagate(index, query=q, key=k, value=v, edge_attr=None).view(N, D)

    mine, right = (
        (y.detach(), torch.autograd.grad(y, flat[0], weight)[0]) for y in (ours(), theirs())
    )
    row = {"model": "messages", "graph": graph, "n": N, "edges": len(i)}
    row["first_call_s"] = round(time.perf_counter() - start, 2)
    row["apart"] = {"out": apart(mine[0], right[0]), "q": apart(mine[1], right[1])}
    row["ours"], row["pyg"] = both_ways(ours, flat, weight), both_ways(theirs, flat, weight)
    return with_times(row)


def apart(mine, right):
    return f"{((mine - right).norm() / right.norm()).item():.1e}"


def compare(name, graph, edges, profile):
    i, j, types = edges
    program, conv, named = MODELS[name]()
    conv = conv.to(DEVICE)
    model = program.compile(R.out, fill=0.0)
    with torch.no_grad():
        for ours, (theirs, turned) in named.items():
            model.weight(ours).copy_(turned(theirs))
    model = model.to(DEVICE)
    x = torch.randn(N, D, device=DEVICE, requires_grad=True)
    given = [torch.stack([j, i]).to(DEVICE)] + ([types.to(DEVICE)] if name == "rgcn" else [])
    keys = torch.stack([i, types, j] if name == "rgcn" else [i, j])
    start = time.perf_counter()
    data = model.ground(edge=keys)
    model(data, x=x)
    row = {"model": name, "graph": graph, "n": N, "edges": len(i)}
    row["first_call_s"] = round(time.perf_counter() - start, 2)
    weight = torch.randn(N, D, device=DEVICE)
    mine, right = (
        (y.detach(), torch.autograd.grad(y, x, weight)[0])
        for y in (model(data, x=x), conv(x, *given))
    )
    row["apart"] = {"out": apart(mine[0], right[0]), "x": apart(mine[1], right[1])}
    del mine, right
    row["ours"] = both_ways(lambda: model(data, x=x), [x, *model.parameters()], weight)
    print(row, flush=True)
    if profile:
        show_profile(lambda: torch.autograd.grad(model(data, x=x), [x], weight))
    row["pyg"] = both_ways(lambda: conv(x, *given), [x, *conv.parameters()], weight)
    return with_times(row)


def with_times(row):
    for way, bar in zip(("forward", "both"), BARS.get(row["model"], (1, 1)), strict=True):
        row[f"times_{way}"] = round(row["pyg"][way] / row["ours"][way], 1)
        row[f"bar_{way}"] = bar
    if DEVICE == "cuda":
        row["memory"] = round(row["ours"]["extra_gib"] / max(row["pyg"]["extra_gib"], 1e-9), 3)
    return row


def show_profile(run):
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        run()
        _wait()
    events = [e for e in found.key_averages() if getattr(e, "self_device_time_total", 0) > 50]
    for e in sorted(events, key=lambda e: -e.self_device_time_total)[:14]:
        print(f"    {e.self_device_time_total / 1e3:9.3f} ms {e.count:4d} {e.key[:90]}", flush=True)


def main():
    rows = []
    graphs = os.environ.get("GRAPHS", "uniform,power law").split(",")
    for graph in graphs:
        edges = drawn(graph)
        for name in sys.argv[1:] or ("messages", *MODELS):
            try:
                if name == "messages":
                    row = messages(graph, edges)
                else:
                    row = compare(name, graph, edges, "PROFILE" in os.environ)
            except Exception as error:
                row = {
                    "model": name,
                    "graph": graph,
                    "failed": f"{type(error).__name__}: {error}"[:900],
                }
            rows.append(row | {"pyg_version": pyg_version})
            print(rows[-1], flush=True)
            if DEVICE == "cuda":
                torch.cuda.empty_cache()
            write("gnn_gpu", rows)


if __name__ == "__main__":
    main()
