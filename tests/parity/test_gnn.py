"""Graph networks as rules against PyG: outputs, and gradients by weights and inputs."""

import warnings
from collections.abc import Callable, Iterable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from edgewise import Program, R, V, repeat
from edgewise.zoo import gat, gatv2, gcn, gin, graphsage, rgcn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyG's own imports
    from torch_geometric import nn as pyg

# a graph may have no edges at all
pytestmark = pytest.mark.filterwarnings("ignore:warning.unknown-relation")
TOLERANCE = {"atol": 1e-9, "rtol": 1e-9}
FEW = settings(deadline=None, max_examples=12)
Named = dict[str, tuple[nn.Parameter, Callable[[Tensor], Tensor]]]


@st.composite
def graphs(draw, types: int = 1):
    """Nodes and edges (i, t, j), i hears j: one node, self loops, nodes without edges."""
    n = draw(st.integers(1, 6))
    node = st.integers(0, n - 1)
    edges = draw(st.sets(st.tuples(node, st.integers(0, types - 1), node), max_size=12))
    return n, sorted(edges), draw(st.integers(0, 99))


def same(x: Tensor) -> Tensor:
    return x


def randomised(conv: nn.Module) -> nn.Module:
    conv = conv.double().eval()
    for parameter in conv.parameters():
        nn.init.normal_(parameter)
    return conv


def assert_same_layer(
    program: Program, facts: Iterable, x: Tensor, theirs: Tensor, named: Named
) -> None:
    """Outputs equal, and the gradients of one random functional of them.

    `named` has for each of our weights PyG's parameter and how it becomes ours.
    """
    weights = {k: f(p).detach().clone().requires_grad_() for k, (p, f) in named.items()}
    assert set(weights) == set(program.weights())
    rows = x.detach().clone().requires_grad_()
    inputs = [R.x(i)[row] for i, row in enumerate(rows)]
    solution = program.solve([*inputs, *facts], weights=weights)
    ours = torch.stack([*solution[R.out(V.I)].values()]).reshape(theirs.shape)
    torch.testing.assert_close(ours, theirs, **TOLERANCE)

    direction = torch.randn_like(theirs)
    (ours * direction).sum().backward()
    (theirs * direction).sum().backward()
    torch.testing.assert_close(rows.grad, x.grad, **TOLERANCE)
    for name, (parameter, turned) in named.items():
        expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        found = weights[name].grad
        found = torch.zeros_like(weights[name]) if found is None else found
        torch.testing.assert_close(found, turned(expected), **TOLERANCE)


def drawn(graph, d: int) -> tuple[Tensor, Tensor, list]:
    n, edges, seed = graph
    torch.manual_seed(seed)
    x = torch.randn(n, d, dtype=torch.float64, requires_grad=True)
    index = torch.tensor([(j, i) for i, _, j in edges], dtype=torch.long).reshape(-1, 2).T
    return x, index, [R.edge(i, j) for i, _, j in edges]


@given(graphs())
@FEW
def test_gcn(graph):
    x, index, facts = drawn(graph, 3)
    conv = randomised(pyg.GCNConv(3, 2))
    named = {"weight": (conv.lin.weight, same), "bias": (conv.bias, same)}
    assert_same_layer(gcn.program(gcn.Config(3, 2)), facts, x, conv(x, index), named)


@given(graphs())
@FEW
def test_graphsage(graph):
    x, index, facts = drawn(graph, 3)
    conv = randomised(pyg.SAGEConv(3, 2))
    named = {
        "root.weight": (conv.lin_r.weight, same),
        "neighbours.weight": (conv.lin_l.weight, same),
        "bias": (conv.lin_l.bias, same),
    }
    program = graphsage.program(graphsage.Config(3, 2))
    assert_same_layer(program, facts, x, conv(x, index), named)


@given(graphs())
@FEW
def test_gin(graph):
    x, index, facts = drawn(graph, 3)
    mlp = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    conv = randomised(pyg.GINConv(mlp, train_eps=True))
    named = {
        "eps": (conv.eps, lambda e: e.reshape(())),
        "mlp.weight": (conv.nn[0].weight, same),
        "mlp.bias": (conv.nn[0].bias, same),
        "out.weight": (conv.nn[2].weight, same),
        "out.bias": (conv.nn[2].bias, same),
    }
    assert_same_layer(gin.program(gin.Config(3, 4, 2)), facts, x, conv(x, index), named)


@given(graphs(), st.sampled_from([1, 2, 3]))
@FEW
def test_gat(graph, heads):
    x, index, facts = drawn(graph, 3)
    conv = randomised(pyg.GATConv(3, 2, heads=heads, negative_slope=0.2))
    named = {
        "weight": (conv.lin.weight, lambda w: w.reshape(heads, 2, 3)),
        "target": (conv.att_dst, lambda a: a.reshape(heads, 1, 2)),
        "source": (conv.att_src, lambda a: a.reshape(heads, 1, 2)),
        "bias": (conv.bias, same),
    }
    program = gat.program(gat.Config(3, 2, heads))
    assert_same_layer(program, facts, x, conv(x, index), named)


@given(graphs(), st.sampled_from([1, 2, 3]))
@FEW
def test_gatv2(graph, heads):
    x, index, facts = drawn(graph, 3)
    conv = randomised(pyg.GATv2Conv(3, 2, heads=heads, negative_slope=0.2))
    named: Named = {
        "attention": (conv.att, lambda a: a.reshape(heads, 1, 2)),
        "bias": (conv.bias, same),
    }
    for name, linear in (("source", conv.lin_l), ("target", conv.lin_r)):
        named[f"{name}.weight"] = (linear.weight, lambda w: w.reshape(heads, 2, 3))
        named[f"{name}.bias"] = (linear.bias, lambda b: b.reshape(heads, 2))
    program = gatv2.program(gatv2.Config(3, 2, heads))
    assert_same_layer(program, facts, x, conv(x, index), named)


@given(graphs(types=3), st.sampled_from([None, 1, 2]))
@FEW
def test_rgcn(graph, bases):
    x, index, _ = drawn(graph, 3)
    edges = graph[1]
    names = ("binds", "cites", "likes")
    facts = [R.edge(i, names[t], j) for i, t, j in edges]
    conv = randomised(pyg.RGCNConv(3, 2, 3, num_bases=bases))
    named: Named = {"root": (conv.root, lambda w: w.T), "bias": (conv.bias, same)}
    if bases is None:
        named["relation"] = (conv.weight, lambda w: w.transpose(1, 2))
    else:
        named["basis"] = (conv.weight, lambda w: w.transpose(1, 2))
        named["coefficient"] = (conv.comp, lambda c: c[..., None])
    theirs = conv(x, index, torch.tensor([t for _, t, _ in edges], dtype=torch.long))
    program = rgcn.program(rgcn.Config(3, 2, names, bases))
    assert_same_layer(program, facts, x, theirs, named)


def test_layers_stack():
    """A layer is a block: two of them hear along the same edges with weights of their own."""
    x, index, facts = drawn((5, [(0, 0, 1), (1, 0, 2), (3, 0, 3), (4, 0, 0)], 0), 3)
    convs = [randomised(pyg.GCNConv(3, 3)) for _ in range(2)]
    config = gcn.Config(3, 3)
    stack = repeat(lambda x: gcn.layer(x, config), 2)(R.x)
    shared = gcn.program(config).statements[:4]
    program = Program([*shared, stack, R.out(V.I) <= stack.out(V.I)])
    named: Named = {}
    for i, conv in enumerate(convs):
        named |= {
            f"layer.{i}.weight": (conv.lin.weight, same),
            f"layer.{i}.bias": (conv.bias, same),
        }
    assert_same_layer(program, facts, x, convs[1](convs[0](x, index), index), named)
