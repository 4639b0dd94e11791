"""Attention with vectors of edges, forward and backward, and PyG's TransformerConv with edge_dim.

PYTHONPATH=src:bench python bench/relational_attention.py

The rules are those of relational attention with the same weights; outputs are compared. Runs
alternate on one thread, and the least process time of each counts. Memory is what a process of
its own grows by in a step, its output and gradients included.
"""

import json
import math
import pathlib
import subprocess
import sys
import time
import warnings

import torch
from measure import write

from edgewise import F, Program, R, V, W, rows

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyG's own imports
    from torch_geometric.nn import TransformerConv

D, ROUNDS = 64, 5
CASES = (  # nodes, edges, heads, features of a head, features of an edge
    (10_000, 160_000, 4, 16, 16),
    (10_000, 160_000, 4, 16, 64),
    (10_000, 100_000, 1, 64, 64),
    (2_000, 30_000, 8, 8, 8),
    (300, 80_000, 8, 32, 128),
)


def program(heads, c, edge):
    def of(name, at, size):
        return at[W[name](V.H)[c, size]]

    pair = (V.H, V.I, V.J)
    return Program(
        [
            R.q(V.H, V.I) <= of("q", R.x(V.I), D),
            R.k(*pair) <= (of("k", R.x(V.J), D), of("e", R.edge(V.I, V.J), edge)),
            R.v(*pair) <= (of("v", R.x(V.J), D), of("e", R.edge(V.I, V.J), edge)),
            R.d_k[1 / math.sqrt(c)].fixed(),
            (R.weights(*pair) <= (R.d_k, R.k(*pair).T, R.q(V.H, V.I)))
            | [F.product, F.softmax_agg(agg_terms=[V.J])],
            (R.out(V.H, V.I) <= (R.weights(*pair), R.v(*pair))) | [F.product],
        ],
        domains={V.H: heads},
    )


def runs(n, e, heads, c, edge):
    """Steps of both, which return the output."""
    torch.manual_seed(0)
    pairs = torch.randint(n, (2, e)).unique(dim=1)
    x, vectors = torch.randn(n, D), torch.randn(pairs.shape[1], edge)
    conv = TransformerConv(D, c, heads=heads, edge_dim=edge, root_weight=False)
    conv.lin_query.bias = conv.lin_key.bias = conv.lin_value.bias = None
    model = program(heads, c, edge).compile(R.out, fill=0.0)
    own, theirs = dict(model.named_parameters()), []
    with torch.no_grad():
        for name in ("query", "key", "value", "edge"):
            theirs.append(getattr(conv, f"lin_{name}").weight)
            own[name[0]].copy_(theirs[-1].view(heads, c, -1))
    leaves = [x.requires_grad_(), vectors.requires_grad_()]
    data = model.ground(x=x, edge=rows(pairs, vectors))
    edge_index = pairs.flip(0)

    def ours():
        out = model(data)
        torch.autograd.grad(out.sum(), [*leaves, *model.parameters()])
        return out.detach().transpose(0, 1)

    def peer():
        out = conv(x, edge_index, vectors)
        torch.autograd.grad(out.sum(), [*leaves, *theirs])
        return out.detach().view(n, heads, c)

    return {"ours": ours, "pyg": peer}


def grown(case, name):
    """Mebibytes that a process of its own grows by in a step; a small one compiled the loops."""
    found = subprocess.run(
        [sys.executable, __file__, json.dumps(case), name],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(found.stdout)


def measured(case):
    both = runs(*case)
    torch.testing.assert_close(both["ours"](), both["pyg"](), atol=1e-4, rtol=1e-4)
    times = {name: [] for name in both}
    for _ in range(ROUNDS):
        for name, run in both.items():
            start = time.process_time()
            run()
            times[name].append(time.process_time() - start)
    found = {f"{name}_cpu_s": round(min(each), 4) for name, each in times.items()}
    found["times"] = round(found["pyg_cpu_s"] / found["ours_cpu_s"], 1)
    found |= {f"{name}_mib": grown(case, name) for name in both}
    found["memory"] = round(found["ours_mib"] / found["pyg_mib"], 2)
    return found


def child(case, name):
    runs(50, 200, *case[2:])[name]()  # compiled, and what libraries allocate once
    run = runs(*case)[name]
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = resident("VmRSS")
    run()
    print((resident("VmHWM") - before) / 1024)


def resident(name):
    """Kibibytes of this process, as Linux counts them."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def main():
    torch.set_num_threads(1)
    if len(sys.argv) > 1:
        return child(json.loads(sys.argv[1]), sys.argv[2])
    names = ("nodes", "edges", "heads", "features", "edge_features")
    found = []
    for case in CASES:
        found.append(dict(zip(names, case, strict=True)) | measured(case))
        print(found[-1])
    return write("relational_attention", {"cases": found})


if __name__ == "__main__":
    main()
