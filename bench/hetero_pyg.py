"""R-GCN with 128 types of edges beside PyG's `to_hetero` on a thread of a CPU: two layers, d = 64.

PYTHONPATH=src:bench python bench/hetero_pyg.py

PyG has a SAGEConv for each type, which `to_hetero` makes of one; ours is one rule. Both have the
same weights, outputs and gradients are compared, and the runs alternate; times are the least of the
process. `RGCNConv` on the same graph, whose nodes are then of one kind, is beside them.
"""

import os
import time
import warnings

import torch
from measure import write
from torch import nn

from edgewise import R, data
from edgewise.zoo import hetero

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyG's own imports
    from torch_geometric.data import HeteroData
    from torch_geometric.nn import RGCNConv, SAGEConv, to_hetero

D, KINDS, REPEATS = 64, 8, 5
CASES = (  # types of edges, edges of all of them, nodes
    (128, 100_000, 10_000),
    (128, 20_000, 10_000),
    (128, 20_000, 1_000),
    (128, 5_000, 1_000),
    (32, 100_000, 10_000),
)


class Sage(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = SAGEConv((D, D), D), SAGEConv((D, D), D)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


def drawn(types, edges, nodes):
    """Kinds of equal size; type t leads from kind t mod 8 to kind t + t / 8 mod 8."""
    torch.manual_seed(0)
    graph, size = HeteroData(), nodes // KINDS
    for kind in range(KINDS):
        graph[f"k{kind}"].x = torch.randn(size, D)
    for at in range(types):
        ends = f"k{at % KINDS}", f"t{at}", f"k{(at + at // KINDS) % KINDS}"
        graph[ends].edge_index = torch.randint(size, (2, edges // types)).unique(dim=1)
    return graph


def ours_of(theirs, graph, types):
    """The rules of both layers with PyG's weights, and the grounded graph."""
    found = data.typed_graph(graph)
    nodes = {kind: D for kind in graph.node_types}
    config = hetero.Network(nodes=nodes, types=types, hidden=D, outputs=D)
    model = hetero.network(config).compile(R.logits, seed=0)
    with torch.no_grad():
        for kind in nodes:  # PyG's model has no encoding
            model.weight(f"{kind}.weight").copy_(torch.eye(D))
            model.weight(f"{kind}.bias").zero_()
        for k, convs in enumerate((theirs.first, theirs.second)):
            parts = [convs["__".join(ends)] for ends in graph.edge_types]
            into = [[c for c, (_, _, b) in zip(parts, graph.edge_types, strict=True) if b == kind]
                    for kind in nodes]  # fmt: skip
            weights = {
                "relation": torch.stack([c.lin_l.weight for c in parts]),
                "root": torch.stack([sum(c.lin_r.weight for c in some) for some in into]),
                "bias": torch.stack([sum(c.lin_l.bias for c in some) for some in into]),
            }
            for name, weight in weights.items():
                model.weight(f"layer.{k}.{name}").copy_(weight)
    return model, model.ground(**found.inputs)


def single(graph, types):
    """Two RGCNConv on the nodes of all kinds together."""
    found = data.typed_graph(graph).inputs
    i, t, j = found["edge"].keys
    convs = nn.ModuleList([RGCNConv(D, D, types), RGCNConv(D, D, types)])
    x, index = torch.cat([graph[kind].x for kind in graph.node_types]), torch.stack([j, i])
    return convs, lambda: convs[1](convs[0](x, index, t).relu(), index, t)


def compare(types, edges, nodes):
    graph = drawn(types, edges, nodes)
    theirs = to_hetero(Sage(), graph.metadata(), aggr="sum")
    model, grounded = ours_of(theirs, graph, types)
    convs, rgcn = single(graph, types)

    def pyg():
        found = theirs(graph.x_dict, graph.edge_index_dict)
        return torch.cat([found[kind] for kind in graph.node_types])

    torch.testing.assert_close(model(grounded).data, pyg(), atol=1e-4, rtol=1e-4)
    runs = {
        "ours": (lambda: model(grounded).data, model),
        "to_hetero": (pyg, theirs),
        "rgcn_conv": (rgcn, convs),
    }
    row = {"types": types, "edges": edges, "nodes": nodes, "load": os.getloadavg()[0]}
    for way in (forward, both):
        seconds = {name: [] for name in runs}
        for repeat in range(REPEATS + 2):
            for name, (run, module) in runs.items():
                start = time.process_time()
                way(run, list(module.parameters()))
                if repeat > 1:  # the first two warm up
                    seconds[name].append(time.process_time() - start)
        found = {name: round(min(taken), 5) for name, taken in seconds.items()}
        row[f"{way.__name__}_s"] = found
        row[f"{way.__name__}_times"] = round(found["to_hetero"] / found["ours"], 1)
    return row


def forward(run, leaves):
    with torch.no_grad():
        run()


def both(run, leaves):
    torch.autograd.grad(run().square().sum(), leaves, allow_unused=True)


def main():
    torch.set_num_threads(1)
    found = []
    for case in CASES:
        found.append(compare(*case))
        print(found[-1], flush=True)
    write("hetero_pyg", found)


if __name__ == "__main__":
    main()
