"""Hiding 1,000 of 174,000 edges at every step, beside a step that hides none and joining anew.

PYTHONPATH=src:bench python bench/hide_edges.py

Two layers of means over 40,943 nodes, the size of WN18RR with inverse edges; forward and backward,
alternating runs, CPU time. "add" grounds 1,000 more edges and hides another 1,000.
"""

import statistics
import time

import torch
from measure import write

from edgewise import F, Program, R, V

NODES, EDGES, HIDDEN, SIZE = 40_943, 174_000, 1_000, 64


def network():
    edge, seen = R.hidden.edge(V.J, V.I), ~R.hidden.hide(V.J, V.I)

    def layer(x, y):
        neighbours = (y(V.I) <= (x(V.J)[SIZE, SIZE], edge, seen)) | [F.avg_agg]
        return [neighbours, y(V.I) <= x(V.I)[SIZE, SIZE]]

    return Program([*layer(R.x, R.h), R.h / 1 | [F.relu], *layer(R.h, R.o)])


def timed(run):
    start = time.process_time()
    out = run()
    out.square().mean().backward()
    return out, time.process_time() - start


def main(count=25):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, x = network().compile(R.o, seed=0), torch.randn(NODES, SIZE)
    every = torch.randint(NODES, (2, EDGES + 3 * HIDDEN)).unique(dim=1)
    every = every[:, torch.randperm(every.shape[1])[: EDGES + HIDDEN]]
    edge = every[:, :EDGES]
    data, more, none = model.ground(edge=edge), model.ground(edge=every), edge[:, :0]
    plain = model.ground(edge=edge, hide=none)
    times = {name: [] for name in ("none_hidden", "hidden", "added", "joined_anew")}
    different = 0.0
    for _ in range(count):
        hide = edge[:, torch.randperm(EDGES)[:HIDDEN]]
        cases = {
            "none_hidden": lambda: model(plain, x=x),
            "hidden": lambda h=hide: model(data, x=x, hide=h),
            "added": lambda h=hide: model(more, x=x, hide=h),
            "joined_anew": lambda h=hide: model(model.ground(edge=edge, hide=h), x=x),
        }
        found = {}
        for name, run in cases.items():
            found[name], used = timed(run)
            times[name].append(used)
        apart = found["hidden"] - found["joined_anew"]
        different = max(different, apart.detach().abs().max().item())
    middle = {name: statistics.median(each[3:]) for name, each in times.items()}
    base = middle["none_hidden"]
    ratios = {f"{n}_over_none": round(t / base, 3) for n, t in middle.items() if t is not base}
    seconds = {f"{name}_cpu_s": round(t, 4) for name, t in middle.items()}
    result = {"nodes": NODES, "edges": EDGES, "hidden": HIDDEN, **seconds, **ratios}
    write("hide_edges", result | {"largest_difference": different})
    print(result)


if __name__ == "__main__":
    main()
