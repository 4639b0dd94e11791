"""Graph networks of the zoo against PyG on a CPU: a layer, d = 64 unless D says so, both ways.

PYTHONPATH=src:bench python bench/gnn_pyg.py [model ...]     results of other models are kept
D=16 GRAPH=power_law PYTHONPATH=src:bench python bench/gnn_pyg.py gine     another width and graph

Edges are drawn evenly, or with ends of degrees as in nature: node k of a shuffled order is drawn
(k + 1)^-0.7 as often as the first. SIZES=10000 runs the smaller graph alone.

The runs alternate, so that a busy machine disturbs all of them alike. Times are the median on the
clock, and the least of the process, which others disturb least; THREADS=1 makes the latter exact,
because threads that wait for each other count as work. GatedGCN, which PyG lacks, is the
`MessagePassing` of its equations; `transformer` is TransformerConv, whose rules are here.
"""

import json
import os
import pathlib
import statistics
import sys
import time
import warnings

import torch
from measure import RESULTS, commit, write
from torch import nn

from edgewise import F, Program, R, V, W, rows
from edgewise.zoo import appnp, gat, gated_gcn, gatv2, gcn, gin, gine, graphsage, monet, rgcn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyG's own imports
    from torch_geometric import nn as pyg

D, HEADS, TYPES = int(os.environ.get("D", 64)), 4, 4
GRAPH = os.environ.get("GRAPH", "even")
SIZES = [int(n) for n in os.environ.get("SIZES", "10000,100000").split(",")]
M = D // HEADS


def same(x):
    return x


def with_gcn():
    conv = pyg.GCNConv(D, D)
    return gcn.program(gcn.Config(D, D)), conv, {"weight": (conv.lin.weight, same)}


def with_sage():
    conv = pyg.SAGEConv(D, D)
    named = {
        "root.weight": (conv.lin_r.weight, same),
        "neighbours.weight": (conv.lin_l.weight, same),
    }
    return (
        graphsage.program(graphsage.Config(D, D)),
        conv,
        named | {"bias": (conv.lin_l.bias, same)},
    )


def with_gin():
    conv = pyg.GINConv(nn.Sequential(nn.Linear(D, D), nn.ReLU(), nn.Linear(D, D)), train_eps=True)
    named = {}
    for name, linear in (("mlp", conv.nn[0]), ("out", conv.nn[2])):
        named |= {f"{name}.weight": (linear.weight, same), f"{name}.bias": (linear.bias, same)}
    return gin.program(gin.Config(D, D, D)), conv, named


def with_gat():
    conv = pyg.GATConv(D, M, heads=HEADS)
    named = {
        "weight": (conv.lin.weight, lambda w: w.reshape(HEADS, M, D)),
        "target": (conv.att_dst, lambda a: a.reshape(HEADS, 1, M)),
        "source": (conv.att_src, lambda a: a.reshape(HEADS, 1, M)),
    }
    return gat.program(gat.Config(D, M, HEADS)), conv, named


def with_gatv2():
    conv = pyg.GATv2Conv(D, M, heads=HEADS)
    named = {"attention": (conv.att, lambda a: a.reshape(HEADS, 1, M))}
    for name, linear in (("source", conv.lin_l), ("target", conv.lin_r)):
        named[f"{name}.weight"] = (linear.weight, lambda w: w.reshape(HEADS, M, D))
        named[f"{name}.bias"] = (linear.bias, lambda b: b.reshape(HEADS, M))
    return gatv2.program(gatv2.Config(D, M, HEADS)), conv, named


def with_rgcn():
    conv = pyg.RGCNConv(D, D, TYPES)
    named = {
        "root": (conv.root, lambda w: w.T),
        "relation": (conv.weight, lambda w: w.transpose(1, 2)),
    }
    return rgcn.program(rgcn.Config(D, D, TYPES)), conv, named


def with_gine():
    conv = pyg.GINEConv(nn.Sequential(nn.Linear(D, D), nn.ReLU(), nn.Linear(D, D)), train_eps=True)
    named = {}
    for name, linear in (("mlp", conv.nn[0]), ("out", conv.nn[2])):
        named |= {f"{name}.weight": (linear.weight, same), f"{name}.bias": (linear.bias, same)}
    return gine.program(gine.Config(D, D, D, edges=0)), conv, named


def with_monet():
    kernels = 3
    conv = pyg.GMMConv(D, D, dim=EDGES["monet"], kernel_size=kernels)
    named = {
        "root.weight": (conv.root.weight, same),
        "bias": (conv.bias, same),
        "mean": (conv.mu, same),
        "width": (conv.sigma, same),
        "weight": (conv.g, lambda w: w.reshape(D, kernels, D).permute(1, 2, 0)),
    }
    return monet.program(monet.Config(D, D, EDGES["monet"], kernels)), conv, named


def with_appnp():
    return appnp.program(appnp.Config(10, 0.1)), pyg.APPNP(K=10, alpha=0.1), {}


class GatedGCN(pyg.MessagePassing):
    def __init__(self):
        super().__init__(aggr="add")
        names = ("target", "source", "value", "edge", "own")
        self.maps = nn.ModuleDict({name: nn.Linear(D, D) for name in names})

    def forward(self, x, edge_index, edge_attr):
        found = {name: self.maps[name](x) for name in ("target", "source", "value")}
        edge = self.maps["edge"](edge_attr)
        both = self.propagate(edge_index, **found, edge=edge)
        total, mass = both[:, :D], both[:, D:]
        return self.maps["own"](x) + total / (mass + gated_gcn.EPS)

    def message(self, target_i, source_j, value_j, edge):
        gate = (edge + target_i + source_j).sigmoid()
        return torch.cat([gate * value_j, gate], 1)


def with_gated_gcn():
    conv = GatedGCN()
    named = {}
    for name, linear in conv.maps.items():
        named |= {f"{name}.weight": (linear.weight, same), f"{name}.bias": (linear.bias, same)}
    return gated_gcn.program(gated_gcn.Config(D, D, D)), conv, named


def with_transformer():
    conv = pyg.TransformerConv(D, M, heads=HEADS)
    parts = {"q": conv.lin_query, "k": conv.lin_key, "v": conv.lin_value}
    named = {"own.weight": (conv.lin_skip.weight, same), "own.bias": (conv.lin_skip.bias, same)}
    for name, linear in parts.items():
        named[f"{name}.weight"] = (linear.weight, lambda w: w.reshape(HEADS, M, D))
        named[f"{name}.bias"] = (linear.bias, lambda b: b.reshape(HEADS, M))
    rules = [
        R[name](V.H, V.I) <= (R.x(V.I)[W[f"{name}.weight"](V.H)[M, D]], W[f"{name}.bias"](V.H)[M,])
        for name in parts
    ]
    query = R.q(V.H, V.I)[M**-0.5].fixed()
    near = R._edge(V.I, V.J)
    rules += [
        (R.alpha(V.H, V.I, V.J) <= (R.k(V.H, V.J).T @ query, near))
        | [F.softmax_agg(agg_terms=[V.J])],
        (R.context(V.H, V.I) <= (R.alpha(V.H, V.I, V.J), R.v(V.H, V.J))) | [F.product],
        (R.heads(V.I) <= R.context(V.H, V.I)) | [F.concat_agg],
        R.out(V.I) <= R.heads(V.I),
        R.out(V.I) <= (R.x(V.I)[W["own.weight"][D, D]], W["own.bias"][D,]),
    ]
    return Program(rules, domains={V.H: HEADS}), conv, named


EDGES = {"gine": D, "monet": 2, "gated_gcn": D}  # features of edges
MODELS = {
    "gcn": with_gcn,
    "sage": with_sage,
    "gin": with_gin,
    "gat": with_gat,
    "gatv2": with_gatv2,
    "rgcn": with_rgcn,
    "gine": with_gine,
    "monet": with_monet,
    "appnp": with_appnp,
    "gated_gcn": with_gated_gcn,
    "transformer": with_transformer,
}


def ends(n, e):
    """One end of each of `e` edges."""
    if GRAPH == "even":
        return torch.randint(n, (e,))
    often = torch.arange(1, n + 1, dtype=torch.float64) ** -0.7
    return torch.randperm(n)[torch.multinomial(often, e, replacement=True)]


def drawn(n, e):
    """Distinct edges (i, j) without loops, in key order, and a type for each."""
    torch.manual_seed(0)
    codes = torch.unique(ends(n, e) * n + ends(n, e))
    i, j = codes // n, codes % n
    kept = i != j
    return i[kept], j[kept], torch.randint(TYPES, (int(kept.sum()),))


REPEATS = 5


def forward(model, leaves, weight):
    with torch.no_grad():
        model()


def both(model, leaves, weight):
    torch.autograd.grad((model() * weight).sum(), leaves)


def alternated(way, runs, weight):
    """Name → seconds on the clock and of the process, for runs one after another in turn."""
    found = {name: [] for name in runs}
    repeats = REPEATS if len(weight) > 50_000 else 3 * REPEATS
    for repeat in range(repeats + 2):
        for name, (model, leaves) in runs.items():
            start, used = time.perf_counter(), time.process_time()
            way(model, leaves, weight)
            if repeat > 1:  # the first two compile and warm up
                found[name].append((time.perf_counter() - start, time.process_time() - used))
    return found


def median_clock(seconds):
    return statistics.median(wall for wall, _ in seconds)


def least_process(seconds):
    return min(used for _, used in seconds)


def compare(name, n):
    program, conv, named = MODELS[name]()
    i, j, types = drawn(n, 10 * n)
    x = torch.randn(n, D, requires_grad=True)
    given = (torch.stack([j, i]), types) if name == "rgcn" else (torch.stack([j, i]),)
    values = torch.randn(len(i), EDGES[name]) if name in EDGES else None
    given += () if values is None else (values,)
    keys = torch.stack([i, types, j] if name == "rgcn" else [i, j])
    model = program.compile(R.out)
    with torch.no_grad():
        for ours, (theirs, turned) in named.items():
            model.weight(ours).copy_(turned(theirs))
    data = model.ground(edge=rows(keys, values))
    model(data, x=x)
    fast, compiled = torch.compile(model, dynamic=False), torch.compile(conv, dynamic=False)
    expected = conv(x, *given)
    torch.testing.assert_close(model(data, x=x), expected, atol=1e-4, rtol=1e-4)
    ours, theirs = ([x, *m.parameters()] for m in (model, conv))
    runs = {
        "ours": (lambda: model(data, x=x), ours),
        "ours_compiled": (lambda: fast(data, x=x), ours),
        "pyg": (lambda: conv(x, *given), theirs),
        "pyg_compiled": (lambda: compiled(x, *given), theirs),
    }
    row = {"model": name, "graph": GRAPH, "d": D, "n": n, "edges": len(i)}
    weight = torch.randn(n, D)
    for way in (forward, both):
        times = alternated(way, runs, weight)
        for best in (median_clock, least_process):
            found = {run: round(best(seconds), 4) for run, seconds in times.items()}
            mine, name = min(found["ours"], found["ours_compiled"]), best.__name__
            row[f"{way.__name__}_{name}_s"] = found
            row[f"{way.__name__}_{name}_times"] = round(found["pyg_compiled"] / mine, 2)
    return row


def main():
    torch.set_num_threads(int(os.environ.get("THREADS", 2)))
    names, rows = sys.argv[1:] or list(MODELS), []
    for name in names:
        for n in SIZES:
            torch._dynamo.reset()
            how = {"threads": torch.get_num_threads(), "commit": commit()}
            rows.append(compare(name, n) | {"load": os.getloadavg()[0]} | how)
            print({k: v for k, v in rows[-1].items()}, flush=True)
    again = {key(row) for row in rows}
    write("gnn_pyg", sorted(rows + [row for row in known() if key(row) not in again], key=key))


def key(row):
    return (list(MODELS).index(row["model"]), row["graph"], row["d"], row["n"], row["threads"])


def known():
    """The rows of the last run, each with its commit."""
    path = pathlib.Path(os.environ.get("OUT", RESULTS)) / "gnn_pyg.json"
    found = json.loads(path.read_text()) if path.exists() else {"commit": commit(), "results": []}
    usual = {"graph": "even", "d": 64, "threads": 2, "commit": found["commit"]}
    return [usual | row for row in found["results"]]


if __name__ == "__main__":
    main()
