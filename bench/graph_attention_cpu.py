"""4-head graph attention, 100k nodes and 1M edges, d = 64, forward and backward, on two threads:
ours against the message passing of PyG's TransformerConv, eager and compiled, in one run.

Runs alternate, so that a busy machine disturbs all alike; the least of each counts."""

import os
import time

import torch
from measure import write

from edgewise.graphs import from_edges
from edgewise.kernels.attention import attention

ROUNDS, REPEATS = 5, 3


def main() -> None:
    from torch_geometric.nn import TransformerConv

    torch.set_num_threads(int(os.environ.get("THREADS", 2)))
    torch.manual_seed(0)
    n, e = 100_000, 1_000_000
    graph = from_edges(torch.randint(n, (2, e)))
    edge_index = graph.edges(n).flip(0)
    flat = [torch.randn(n, 64, requires_grad=True) for _ in range(3)]

    def ours() -> None:
        q, k, v = (x.view(n, 4, 16).transpose(0, 1) for x in flat)
        torch.autograd.grad(attention(q, k, v, graph).sum(), flat)

    conv = TransformerConv(64, 16, heads=4, root_weight=False)

    def message_passing(q, k, v):
        return conv.propagate(edge_index, query=q, key=k, value=v, edge_attr=None)

    compiled = torch.compile(message_passing)

    def peer(function):
        q, k, v = (x.view(n, 4, 16) for x in flat)
        torch.autograd.grad(function(q, k, v).sum(), flat)

    runs = {"ours": ours, "pyg": lambda: peer(message_passing)}
    runs["pyg_compiled"] = lambda: peer(compiled)
    result = {}
    try:
        runs["pyg_compiled"]()
    except Exception as error:  # no C++ compiler on this machine
        result["pyg_compiled"] = f"{type(error).__name__}: {error}"[:120]
        del runs["pyg_compiled"]
    found = sorted((measured(runs) for _ in range(REPEATS)), key=lambda one: one["times"])
    result |= found[REPEATS // 2] | {"all_times": [one["times"] for one in found]}
    result["load"] = round(os.getloadavg()[0], 1)
    print(result, "(bars: 10× eager, 3× compiled)")
    write("graph_attention_cpu", result)


def measured(runs):
    """One run: all in turn, the least of each."""
    result, times = {}, {name: [] for name in runs}
    for turn in range(ROUNDS + 1):
        for name, run in runs.items():
            a, b = time.process_time(), time.perf_counter()
            run()
            if turn:  # the first warms up
                times[name].append((time.process_time() - a, time.perf_counter() - b))
    for name in runs:
        cpu, wall = (round(min(side), 4) for side in zip(*times[name], strict=True))
        result[name] = {"cpu_s": cpu, "wall_s": wall}
    result["times"] = round(result["pyg"]["wall_s"] / result["ours"]["wall_s"], 1)
    result["times_process"] = round(result["pyg"]["cpu_s"] / result["ours"]["cpu_s"], 1)
    if "pyg_compiled" in result:
        compiled_s = result["pyg_compiled"]["wall_s"]
        result["times_compiled"] = round(compiled_s / result["ours"]["wall_s"], 1)
    return result


if __name__ == "__main__":
    main()
