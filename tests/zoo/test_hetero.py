"""Heterogeneous graphs without a loop over types, beside PyG's `HeteroConv` and `to_hetero`."""

import warnings

import pytest
import torch

from edgewise import EdgewiseError, R, data
from edgewise.zoo import hetero

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyG's own imports
    from torch_geometric.data import HeteroData
    from torch_geometric.nn import HeteroConv, SAGEConv

SIZES = {"author": 5, "paper": 7, "venue": 2}
TYPES = [("author", "writes", "paper"), ("paper", "cites", "paper"), ("paper", "in", "venue"),
         ("paper", "by", "author"), ("author", "reads", "paper")]  # fmt: skip
D, M = 3, 4


def library(features=None):
    graph, draw = HeteroData(), torch.Generator().manual_seed(0)
    for kind, size in SIZES.items():
        width = D if features is None else features[kind]
        graph[kind].num_nodes = size
        if width:
            graph[kind].x = torch.randn(size, width, generator=draw, dtype=torch.float64)
    for a, verb, b in TYPES:
        pairs = torch.randint(100, (2, 9), generator=draw) % torch.tensor([[SIZES[a]], [SIZES[b]]])
        graph[a, verb, b].edge_index = pairs.unique(dim=1)
    return graph


def test_a_layer_is_a_module_for_each_type():
    graph = library()
    found = data.typed_graph(graph)
    convs = {kind: SAGEConv((D, D), M).double() for kind in TYPES}
    theirs = HeteroConv(convs, aggr="sum")(graph.x_dict, graph.edge_index_dict)
    theirs = torch.cat([theirs[kind] for kind in SIZES])
    program = hetero.program(hetero.Config(D, M, len(SIZES), len(TYPES)))
    model = program.compile(R.out, seed=0, dtype=torch.float64)
    into = [[c for (_, _, b), c in convs.items() if b == kind] for kind in SIZES]
    ours = {
        "relation": torch.stack([conv.lin_l.weight for conv in convs.values()]),
        "root": torch.stack([sum(c.lin_r.weight for c in some) for some in into]),
        "bias": torch.stack([sum(c.lin_l.bias for c in some) for some in into]),
    }
    with torch.no_grad():
        for name, weight in ours.items():
            model.weight(name).copy_(weight)
    x = torch.cat([graph[kind].x for kind in SIZES]).requires_grad_()
    y = model(model.ground(edge=found.inputs["edge"], kind=found.inputs["kind"]), x=x)
    torch.testing.assert_close(y, theirs)
    direction = torch.randn_like(y)
    (y * direction).sum().backward()
    wanted = torch.autograd.grad(
        (theirs * direction).sum(), [c.lin_l.weight for c in convs.values()]
    )
    torch.testing.assert_close(model.weight("relation").grad, torch.stack(wanted))


def test_a_network_is_that_of_the_reference_with_features_of_any_size_or_none():
    features = {"author": 2, "paper": 5, "venue": 0}
    found = data.typed_graph(library(features))
    config = hetero.Network(nodes=features, types=len(TYPES), hidden=4, outputs=2, layers=2)
    program = hetero.network(config)
    model = program.compile(R.logits, seed=0, dtype=torch.float64)
    logits = model(model.ground(**found.inputs))
    logits = logits if isinstance(logits, torch.Tensor) else logits.data
    facts = []
    for name, item in found.inputs.items():
        values = [None] * item.keys.shape[1] if item.values is None else item.values
        for key, value in zip(item.keys.T.tolist(), values, strict=True):
            facts.append(R[name](*key) if value is None else R[name](*key)[value])
    solved = program.solve(facts, weights=dict(model.state_dict()))
    wanted = torch.stack([solved[R.logits(i)] for i in range(14)])
    torch.testing.assert_close(logits, wanted)


def test_names_labels_and_splits_are_of_all_nodes_together():
    graph = library()
    graph["paper"].y = torch.arange(7) % 2
    graph["paper"].train_mask = torch.arange(7) < 3
    found = data.typed_graph(graph)
    assert found.names["kind"] == ("author", "paper", "venue")
    assert found.names["type"][1] == "paper_cites_paper"
    assert found.labels["paper"].keys.tolist() == [list(range(5, 12))]
    assert found.splits["train"].tolist() == [5, 6, 7]


def test_what_is_no_heterogeneous_graph_is_refused():
    graph = library()
    graph["author", "writes", "paper"].edge_index = torch.tensor([[0], [7]])
    with pytest.raises(EdgewiseError, match="author_writes_paper"):
        data.typed_graph(graph)
    with pytest.raises(EdgewiseError, match="not a `HeteroData`"):
        data.typed_graph({"x": 1})
    graph = HeteroData()
    graph["kind"].x = torch.ones(2, 1)
    with pytest.raises(EdgewiseError, match="called `kind`"):
        data.typed_graph(graph)
    with pytest.raises(EdgewiseError, match="the number of features"):
        hetero.Network(nodes={"author": -1})
