"""GraphSAGE on 1M nodes and 10M edges in mini-batches of 1,024 seeds, beside PyG.

PYTHONPATH=src:bench python bench/minibatch.py

PyG gets the subgraphs that were sampled here, layer by layer, as its own loader would give them:
"step" is the gather of features, forward and backward; "sample" finds a subgraph, "prepare" makes
a plan of it, which PyG has no need of. "one_node" is the output of one node, grounding included.
"""

import resource
import statistics
import sys
import time

import torch
from measure import write
from torch.nn.functional import cross_entropy, relu
from torch_geometric.nn import SAGEConv

from edgewise import F, Program, R, V

FEATURES, HIDDEN, CLASSES = 128, 128, 41


def sage():
    def layer(x, y, out, size):
        neighbours = (y(V.I) <= (x(V.J)[out, size], R.hidden.edge(V.J, V.I))) | [F.avg_agg]
        return [y(V.I) <= x(V.I)[out, size], neighbours]

    first = layer(R.x, R.h, HIDDEN, FEATURES)
    return Program([*first, R.h / 1 | [F.relu], *layer(R.h, R.o, CLASSES, HIDDEN)])


class Peer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one = SAGEConv(FEATURES, HIDDEN, bias=False)
        self.two = SAGEConv(HIDDEN, CLASSES, bias=False)

    def forward(self, x, rows, layers):
        (edges, own), (more, last) = layers
        x = x[rows]
        h = relu(self.one((x, x[own]), edges))
        return self.two((h, h[last]), more)


def subgraph(batch):
    """The rows of x, and for each layer its edges and the nodes that it is computed for."""
    (step,) = batch.built.values()
    layers = []
    for part in step.executable.steps:
        own, neighbours = (rule.ground for rule in part.steps)
        (source,), (place,) = neighbours.rows.values(), own.rows.values()
        edges = torch.stack([source, neighbours.segments.ids])
        layers.append((edges, torch.arange(own.count) if place is None else place))
    return step.executable.taken["x"], layers, step.outputs.parts[0].rows


def timed(run):
    a, b = time.process_time(), time.perf_counter()
    found = run()
    return found, time.process_time() - a, time.perf_counter() - b


def trained(model, peer, batches, x, y, count):
    """Seconds of process time of each part, alternately ours and PyG's; the median of batches."""
    times = {"sample_and_prepare": [], "step": [], "pyg_step": []}
    for step in range(count):
        batch, used, _ = timed(lambda s=step: batches.at(s))
        times["sample_and_prepare"].append(used)
        target = y[batch.seeds]
        _, used, _ = timed(lambda b=batch, t=target: cross_entropy(model(b), t).backward())
        times["step"].append(used)
        rows, layers, chosen = subgraph(batch)

        def other(rows=rows, layers=layers, chosen=chosen, target=target):
            out = peer(x, rows, layers)
            return cross_entropy(out if chosen is None else out[chosen], target).backward()

        _, used, _ = timed(other)
        times["pyg_step"].append(used)
    found = {name: round(statistics.median(each[1:]), 4) for name, each in times.items()}
    found["edges"] = sum(layer[0].shape[1] for layer in layers)
    found["rows_of_x"] = len(rows)
    found["step_over_pyg"] = round(found["step"] / found["pyg_step"], 3)
    return found


def one_node(model, edges, x):
    """Seconds of process time for one node at a time: on new data, then on the same."""
    data, times = model.ground(edge=edges), []
    for node in (7, 77, 777, 7_777, 77_777, 777_777):
        _, used, _ = timed(lambda n=node: model(data, x=x, want=[n]))
        times.append(used)
    found = {"first_cpu_s": round(times[0], 3), "next_cpu_s": [round(t, 3) for t in times[1:]]}
    shown = model.explain(model.ground(edge=edges, want=[7]), x=x, stage="kernels", json=True)
    return found | {"rows_joined": {n: r["rows"] for n, r in shown["kernels"]["joined"].items()}}


def main(nodes=1_000_000, degree=10, count=12):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    codes = torch.unique(torch.randint(nodes * nodes, (nodes * degree,)))
    edges = torch.stack([codes // nodes, codes % nodes])
    del codes
    x, y = torch.randn(nodes, FEATURES), torch.randint(CLASSES, (nodes,))
    model, peer = sage().compile(R.o, seed=0), Peer()
    seeds = torch.randperm(nodes)[: 100 * 1024]
    data, ground, _ = timed(lambda: model.ground(edge=edges))
    found = {"nodes": nodes, "edges": edges.shape[1], "ground_cpu_s": round(ground, 2)}
    found["one_node"] = one_node(model, edges, x)
    print("one node", found["one_node"], flush=True)
    for name, most in {"exact": None, "sampled": [15, 10], "exact_after_all": None}.items():
        batches = model.batches(seeds, data, batch=1024, most=most, x=x)
        _, first, _ = timed(lambda b=batches: b.at(0))
        found[name] = {"first_batch_cpu_s": round(first, 2)}
        found[name] |= trained(model, peer, batches, x, y, count)
        print(name, found[name], flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found["peak_gib"] = round(peak / 2**20, 2)
    found["start_gib"] = round(before / 2**20, 2)
    write("minibatch", found)
    return found


if __name__ == "__main__":
    sys.exit(not main())
