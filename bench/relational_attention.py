"""Attention with vectors of edges, forward and backward, and PyG's TransformerConv with edge_dim.

PYTHONPATH=src:bench python bench/relational_attention.py [--gpu]

The rules are those of relational attention with the same weights; outputs and gradients are
compared, at a small size with float64. On a CPU runs alternate on one thread, and the least process
time of each counts. Extra memory is what a step takes beyond inputs, weights, the output and
gradients: on a CPU, what a process of its own grows by, less these.
"""

import json
import math
import pathlib
import subprocess
import sys
import time
import warnings

import torch
from measure import gpu_ms, skip, write

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
GPU_CASES = (
    (1 << 19, 1 << 23, 4, 16, 16),
    (1 << 18, 1 << 22, 4, 16, 64),
    (1 << 17, 1 << 20, 1, 64, 64),
    (1 << 17, 1 << 21, 8, 8, 8),
    (300, 80_000, 8, 32, 128),
    (2_000, 30_000, 8, 8, 8),
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


def drawn(n, e):
    """Distinct edges (i, j), in key order."""
    codes = torch.randint(n * n, (e,)).unique()
    return torch.stack([codes // n, codes % n])


class Case:
    """Both models with the same weights on the same graph; a step returns output and gradients."""

    def __init__(self, n, e, heads, c, edge, device="cpu"):
        torch.manual_seed(0)
        self.n, self.heads, self.c = n, heads, c
        pairs = drawn(n, e)
        self.conv = TransformerConv(D, c, heads=heads, edge_dim=edge, root_weight=False)
        for linear in (self.conv.lin_query, self.conv.lin_key, self.conv.lin_value):
            linear.bias = None
        self.model = program(heads, c, edge).compile(R.out, fill=0.0)
        with torch.no_grad():
            for name, weight in self.named().items():
                self.model.weight(name).copy_(weight.view(heads, c, -1))
        self.conv, self.model = self.conv.to(device), self.model.to(device)
        self.x = torch.randn(n, D).to(device).requires_grad_()
        self.vectors = torch.randn(pairs.shape[1], edge).to(device).requires_grad_()
        self.weight = torch.randn(n, heads, c).to(device)
        self.data = self.model.ground(x=self.x, edge=rows(pairs, self.vectors))
        self.edge_index = pairs.flip(0).to(device)

    def named(self):
        """PyG's weights by the names that ours have."""
        linear = ("query", "key", "value", "edge")
        return {name[0]: getattr(self.conv, f"lin_{name}").weight for name in linear}

    def ours(self):
        names = ("q", "k", "v", "e")
        leaves = [self.x, self.vectors, *(self.model.weight(name) for name in names)]
        out = self.model(self.data).transpose(0, 1)
        return out.detach(), torch.autograd.grad(out, leaves, self.weight)

    def pyg(self):
        leaves = [self.x, self.vectors, *self.named().values()]
        out = self.conv(self.x, self.edge_index, self.vectors).view(self.n, self.heads, self.c)
        return out.detach(), torch.autograd.grad(out, leaves, self.weight)

    def exact(self):
        """PyG's in float64 on a CPU."""
        self.conv, device = self.conv.double().cpu(), self.x.device
        held = self.x, self.vectors, self.weight, self.edge_index
        self.x, self.vectors, self.weight = (
            t.detach().cpu().double().requires_grad_() for t in held[:3]
        )
        self.edge_index = self.edge_index.cpu()
        found = self.pyg()
        self.x, self.vectors, self.weight, self.edge_index = held
        self.conv = self.conv.float().to(device)
        return found

    def results(self):
        """Bytes of the output and of all gradients."""
        leaves = [self.x, self.vectors, *self.named().values()]
        return sum(4 * t.numel() for t in (*leaves, self.weight))


def apart(case, right, of):
    """The relative distance of output and gradients from others."""
    out, grads = getattr(case, of)()
    names, each = ("out", "x", "edge", "q", "k", "v", "e"), {}
    for name, mine, other in zip(names, (out, *grads), (right[0], *right[1]), strict=True):
        mine, other = mine.double().cpu().flatten(), other.double().cpu().flatten()
        each[name] = f"{float((mine - other).norm() / other.norm()):.1e}"
    return each


def checked(device):
    """At a small size, the distance of both from float64."""
    case = Case(500, 4_000, 4, 16, 16, device)
    exact = case.exact()
    found = {name: apart(case, exact, name) for name in ("ours", "pyg")}
    assert all(float(off) < 1e-5 for off in found["ours"].values()), found
    return found


def grown(case, name):
    """Mebibytes that a process of its own grows by in a step; a small one compiled the loops."""
    found = subprocess.run(
        [sys.executable, __file__, json.dumps(case), name],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(found.stdout)


def measured(sizes):
    case = Case(*sizes)
    found = {"apart": apart(case, case.pyg(), "ours")}
    assert all(float(off) < 1e-4 for off in found["apart"].values()), found
    times = {name: [] for name in ("ours", "pyg")}
    for _ in range(ROUNDS):
        for name, each in times.items():
            start = time.process_time()
            getattr(case, name)()
            each.append(time.process_time() - start)
    found |= {f"{name}_cpu_s": round(min(each), 4) for name, each in times.items()}
    found["times"] = round(found["pyg_cpu_s"] / found["ours_cpu_s"], 1)
    found |= {f"{name}_extra_mib": grown(sizes, name) for name in times}
    found["memory"] = round(found["ours_extra_mib"] / found["pyg_extra_mib"], 3)
    return found


def measured_on_gpu(sizes):
    start = time.perf_counter()
    case = Case(*sizes, device="cuda")
    found = {"apart": apart(case, case.pyg(), "ours")}
    found["prepared_s"] = round(time.perf_counter() - start, 1)
    for name in ("ours", "pyg"):
        run = getattr(case, name)
        found[f"{name}_ms"] = gpu_ms(run)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        used = torch.cuda.max_memory_allocated() - before
        found[f"{name}_extra_mib"] = round((used - case.results()) / 2**20, 1)
    found["times"] = round(found["pyg_ms"] / found["ours_ms"], 1)
    found["memory"] = round(found["ours_extra_mib"] / found["pyg_extra_mib"], 3)
    return found


def child(sizes, name):
    getattr(Case(50, 200, *sizes[2:]), name)()  # compiled, and what libraries allocate once
    case = Case(*sizes)
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = resident("VmRSS")
    getattr(case, name)()
    print(round(((resident("VmHWM") - before) * 1024 - case.results()) / 2**20, 1))


def resident(name):
    """Kibibytes of this process, as Linux counts them."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def main():
    torch.set_num_threads(1)
    gpu = sys.argv[1:] == ["--gpu"]
    if len(sys.argv) > 1 and not gpu:
        return child(json.loads(sys.argv[1]), sys.argv[2])
    if gpu and not torch.cuda.is_available():
        skip("there is no CUDA GPU here")
    names = ("nodes", "edges", "heads", "features", "edge_features")
    found = {"float64": checked("cuda" if gpu else "cpu"), "cases": []}
    print(found, flush=True)
    for sizes in GPU_CASES if gpu else CASES:
        row = measured_on_gpu(sizes) if gpu else measured(sizes)
        found["cases"].append(dict(zip(names, sizes, strict=True)) | row)
        print(found["cases"][-1], flush=True)
    return write("relational_attention_gpu" if gpu else "relational_attention", found)


if __name__ == "__main__":
    main()
