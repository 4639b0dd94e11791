"""Layers and networks on graphs: PyG's, or the equations of the paper; outputs and gradients."""

import math
import warnings

import pytest
import torch
from torch import nn

from edgewise import R, rows
from edgewise.inputs.kinds import ragged
from edgewise.physical.passes import gathers
from edgewise.zoo import (
    appnp,
    basic_gnn,
    gated_gcn,
    gine,
    gps,
    graph_nets,
    graph_transformer,
    monet,
    network,
)
from edgewise.zoo.graph_models import GRAPH_MODELS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyG's own imports
    from torch_geometric import nn as pyg

N, D, E = 6, 4, 3
PAIRS = torch.tensor([(0, 1), (0, 2), (1, 0), (2, 2), (3, 1), (3, 4)]).T  # node 5 has no edge
INDEX = PAIRS.flip(0)  # PyG has the source first
TOLERANCE = {"atol": 1e-9, "rtol": 1e-9}


@pytest.fixture(autouse=True, params=["usual kernels", "kernels of large graphs"])
def kernels(request, monkeypatch):
    if request.param == "kernels of large graphs":
        monkeypatch.setattr(gathers, "SMALL_ROWS", 0)


def drawn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def randomised(module):
    for at, parameter in enumerate(module.double().parameters()):
        parameter.data.copy_(drawn(*parameter.shape, seed=100 + at))
    return module


def compiled(program, output, named=None):
    """A model in float64 whose weights are PyG's, or random ones."""
    model = program.compile(output, seed=0, dtype=torch.float64)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if named is None:
                weight.copy_(drawn(*weight.shape, seed=len(name)).abs() / 2 + 0.1)
        for name, parameter in (named or {}).items():
            model.weight(name).copy_(parameter.reshape(model.weight(name).shape))
    return model


def assert_same(model, theirs, named, x, *, edge=None, **more):
    """Outputs, and gradients by inputs and weights."""
    ours = model(model.ground(edge=rows(PAIRS, edge), **more), x=x)
    torch.testing.assert_close(ours, theirs, **TOLERANCE)
    direction = drawn(*theirs.shape, seed=7)
    weights = [model.weight(name) for name in named]
    found = torch.autograd.grad((ours * direction).sum(), [x, *weights])
    wanted = torch.autograd.grad((theirs * direction).sum(), [x, *named.values()])
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b.reshape(a.shape), **TOLERANCE)


@pytest.mark.parametrize("how", ["sum", "mean", "max"])
def test_basic_gnn(how):
    conv = randomised(pyg.GraphConv(D, 2, aggr={"sum": "add"}.get(how, how)))
    named = {"root.weight": conv.lin_root.weight, "neighbours.weight": conv.lin_rel.weight}
    named["bias"] = conv.lin_rel.bias
    model = compiled(basic_gnn.program(basic_gnn.Config(D, 2, how)), R.out, named)
    x = drawn(N, D).requires_grad_()
    assert_same(model, conv(x, INDEX), named, x)


def test_basic_gnn_with_attention():
    model = compiled(basic_gnn.program(basic_gnn.Config(D, 2, "attention")), R.out)
    named = {name: model.weight(name) for name in ("query.weight", "key.weight")}
    x = drawn(N, D).requires_grad_()
    score = (x @ named["query.weight"].T) @ (x @ named["key.weight"].T).T / math.sqrt(D)
    mask = torch.zeros(N, N, dtype=torch.bool)
    mask[PAIRS[0], PAIRS[1]] = True
    alpha = score.masked_fill(~mask, -math.inf)[:4].softmax(1)
    mixed = torch.cat([alpha @ x, torch.zeros(2, D, dtype=x.dtype)])
    root, near = (model.weight(f"{n}.weight") for n in ("root", "neighbours"))
    assert_same(model, x @ root.T + model.weight("bias") + mixed @ near.T, named, x)


def test_gine():
    mlp = nn.Sequential(nn.Linear(D, 5), nn.ReLU(), nn.Linear(5, 2))
    conv = randomised(pyg.GINEConv(mlp, train_eps=True, edge_dim=E))
    named = {"eps": conv.eps, "edge.weight": conv.lin.weight, "edge.bias": conv.lin.bias}
    for name, part in (("mlp", conv.nn[0]), ("out", conv.nn[2])):
        named |= {f"{name}.weight": part.weight, f"{name}.bias": part.bias}
    model = compiled(gine.program(gine.Config(D, 5, 2, edges=E)), R.out, named)
    x, edge = drawn(N, D).requires_grad_(), drawn(6, E, seed=1)
    assert_same(model, conv(x, INDEX, edge), named, x, edge=edge)


def test_monet():
    k, m, c = 3, 2, 2
    conv = randomised(pyg.GMMConv(D, m, dim=c, kernel_size=k))
    weight = conv.g.detach().reshape(D, k, m).permute(1, 2, 0)
    named = {"root.weight": conv.root.weight, "bias": conv.bias}
    named |= {"mean": conv.mu, "width": conv.sigma}
    model = compiled(monet.program(monet.Config(D, m, c, k)), R.out, named)
    with torch.no_grad():
        model.weight("weight").copy_(weight)
    x, edge = drawn(N, D).requires_grad_(), drawn(6, c, seed=1)
    assert_same(model, conv(x, INDEX, edge), named, x, edge=edge)


def test_appnp():
    model = compiled(appnp.program(appnp.Config(3, 0.2)), R.out)
    x = drawn(N, D).requires_grad_()
    assert_same(model, pyg.APPNP(K=3, alpha=0.2)(x, INDEX), {}, x)


def test_graph_nets():
    class Edge(nn.Module):
        def forward(self, source, target, edge, u, batch):
            return mlps["edge_out"](torch.cat([edge, target, source, u[batch]], 1))

    class Node(nn.Module):
        def forward(self, x, index, edge, u, batch):
            mean = pyg.aggr.MeanAggregation()(edge, index[1], dim_size=len(x))
            return mlps["out"](torch.cat([mean, x, u[batch]], 1))

    class Global(nn.Module):
        def forward(self, x, index, edge, u, batch):
            return mlps["global_out"](torch.cat([edge.mean(0)[None], x.mean(0)[None], u], 1))

    sizes = {"edge_out": E + 2 * D + 2, "out": 2 + D + 2, "global_out": 4 + 2}
    mlps = {
        name: randomised(nn.Sequential(nn.Linear(size, 5), nn.ReLU(), nn.Linear(5, 2)))
        for name, size in sizes.items()
    }
    program = graph_nets.program(graph_nets.Config(D, E, 2, 5, 2))
    x, edge, u = drawn(N, D).requires_grad_(), drawn(6, E, seed=1), drawn(1, 2, seed=2)
    batch = torch.zeros(N, dtype=torch.int64)
    order = (INDEX[1] * N + INDEX[0]).argsort()
    layer = pyg.MetaLayer(Edge(), Node(), Global())
    node, pair, total = layer(x, INDEX[:, order], edge[order], u, batch)
    for output, theirs in ((R.out, node), (R.global_out, total[0]), (R.edge_out, pair)):
        model = program.compile(output, seed=0, dtype=torch.float64)
        with torch.no_grad():
            for name, mlp in mlps.items():
                if f"{name}.first.weight" in model._paths:
                    for part, linear in (("first", mlp[0]), ("second", mlp[2])):
                        model.weight(f"{name}.{part}.weight").copy_(linear.weight)
                        model.weight(f"{name}.{part}.bias").copy_(linear.bias)
        given = {"edge": rows(PAIRS, edge)} if "edge" in model.inputs else {}
        ours = model.rows(model.ground(**given), x=x, u=u[0]).data.reshape(theirs.shape)
        torch.testing.assert_close(ours, theirs, **TOLERANCE)
        (a,) = torch.autograd.grad(ours.sum(), x, retain_graph=True)
        (b,) = torch.autograd.grad(theirs.sum(), x, retain_graph=True)
        torch.testing.assert_close(a, b, **TOLERANCE)


def test_gps():
    mlp = nn.Sequential(nn.Linear(D, D), nn.ReLU(), nn.Linear(D, D))
    conv = randomised(pyg.GPSConv(D, pyg.GINEConv(mlp, train_eps=True), heads=2)).train()
    attention, h, d = conv.attn, 2, D // 2
    named = {"local.eps": conv.conv.eps}
    for name, part in (("mlp", conv.conv.nn[0]), ("out", conv.conv.nn[2])):
        named |= {f"local.{name}.weight": part.weight, f"local.{name}.bias": part.bias}
    for name, part in (
        ("mlp", conv.mlp[0]),
        ("fed", conv.mlp[3]),
        ("attended", attention.out_proj),
    ):
        named |= {f"{name}.weight": part.weight, f"{name}.bias": part.bias}
    for name, norm in zip(("norm_local", "norm_attention", "norm_out"),
                          (conv.norm1, conv.norm2, conv.norm3), strict=True):  # fmt: skip
        named |= {f"{name}.gain": norm.module.weight, f"{name}.bias": norm.module.bias}
    model = compiled(gps.program(gps.Config(D, h, 0)), R.out, named)
    with torch.no_grad():
        for at, name in enumerate("qkv"):
            weight = attention.in_proj_weight[at * D : (at + 1) * D]
            model.weight(f"{name}.weight").copy_(weight.reshape(h, d, D))
            bias = attention.in_proj_bias[at * D : (at + 1) * D]
            model.weight(f"{name}.bias").copy_(bias.reshape(h, d))
    x, edge = drawn(N, D).requires_grad_(), drawn(6, D, seed=1)
    theirs = conv(x, INDEX, torch.zeros(N, dtype=torch.int64), edge_attr=edge)
    assert_same(model, theirs, named, x, edge=edge)
    torch.testing.assert_close(model.weight("norm_out.mean"), conv.norm3.module.running_mean)
    torch.testing.assert_close(model.weight("norm_out.variance"), conv.norm3.module.running_var)


def by_name(model, name, x):
    return x @ model.weight(f"{name}.weight").mT + model.weight(f"{name}.bias")


def summed(values, n=N):
    return torch.zeros(n, *values.shape[1:], dtype=values.dtype).index_add(0, PAIRS[0], values)


def test_gated_gcn():
    model = compiled(gated_gcn.program(gated_gcn.Config(D, 2, E)), R.out)
    x, edge = drawn(N, D).requires_grad_(), drawn(6, E, seed=1)
    i, j = PAIRS
    state = by_name(model, "edge", edge)
    state = state + by_name(model, "target", x)[i] + by_name(model, "source", x)[j]
    gate = state.sigmoid()
    mixed = summed(gate * by_name(model, "value", x)[j]) / (summed(gate) + gated_gcn.EPS)
    named = {"target.weight": model.weight("target.weight")}
    assert_same(model, by_name(model, "own", x) + mixed, named, x, edge=edge)


def test_graph_transformer():
    h, d = 2, D // 2
    config = graph_transformer.Config(D, h, norm="layer")
    model = compiled(graph_transformer.program(config), R.out)
    x, edge = drawn(N, D).requires_grad_(), drawn(6, D, seed=1)
    i, j = PAIRS
    q, k, v = (torch.einsum("hcd,nd->nhc", model.weight(f"{n}.weight"), x) for n in "qkv")
    e = torch.einsum("hcd,nd->nhc", model.weight("e.weight"), edge)
    score = (q[i] * k[j] * e / math.sqrt(d)).sum(-1).exp()
    context = summed(score[..., None] * v[j]) / summed(score)[..., None].clamp_min(1e-300)
    there = torch.zeros(N, 1, dtype=x.dtype).index_fill(0, i, 1.0)
    total = x + there * by_name(model, "mixed", context.flatten(1))

    def norm(y, name):
        gain, bias = model.weight(f"{name}.gain"), model.weight(f"{name}.bias")
        return nn.functional.layer_norm(y, (D,), gain, bias, 1e-5)

    mid = norm(total, "out_mid")
    fed = by_name(model, "out_fed", by_name(model, "out_hidden", mid).relu())
    named = {"q.weight": model.weight("q.weight"), "e.weight": model.weight("e.weight")}
    assert_same(model, norm(mid + fed, "out"), named, x, edge=edge)


@pytest.mark.parametrize("name", GRAPH_MODELS)
def test_a_network_is_that_of_the_reference_and_graphs_of_a_batch_are_apart(name):
    module = GRAPH_MODELS[name]
    typed = name == "rgcn"
    more = {"types": 2} if typed else {}
    config = module.Network(inputs=D, hidden=8, outputs=2, layers=2, edges=E, task="graph",
                            head=1, **more)  # fmt: skip
    program = module.network(config)
    assert program.parse(program.text()).text() == program.text()
    model = program.compile(R.logits, seed=0, dtype=torch.float64).eval()
    keys = torch.stack([PAIRS[0], torch.arange(6) % 2, PAIRS[1]]) if typed else PAIRS
    x, edge = drawn(N, D), None if typed else drawn(6, E, seed=1)
    facts = [R.x(i)[row] for i, row in enumerate(x)]
    values = [None] * 6 if typed else edge
    for key, value in zip(keys.T.tolist(), values, strict=True):
        facts.append(R.edge(*key) if value is None else R.edge(*key)[value])
    more = module.facts(config, PAIRS, N) if hasattr(module, "facts") else {}
    for relation, found in more.items():
        facts += [R[relation](*key) for key in found.keys.T.tolist()]
    weights = dict(model.state_dict())
    expected = program.solve(facts, weights=weights)[R.logits]
    one = rows(keys, edge)
    same = {relation: ragged([found] * 3) for relation, found in more.items()}
    found = model(model.ground(x=ragged([x, x + 1, x]), edge=ragged([one] * 3), **same)).data
    torch.testing.assert_close(found[0], expected)
    torch.testing.assert_close(found[2], expected)
    assert not torch.allclose(found[1], expected)


def test_edges_are_scored_in_the_order_of_the_pairs():
    config = network.Network(inputs=D, hidden=4, outputs=1, task="edge", head=2)
    model = GRAPH_MODELS["gcn"].network(config).compile(R.logits, seed=0)
    pairs = torch.tensor([[0, 1, 2], [3, 0, 3], [1, 2, 1]])
    x = drawn(N, D).float()
    found = model(model.ground(x=x, edge=rows(PAIRS), pair=rows(pairs))).data
    swapped = model(model.ground(x=x, edge=rows(PAIRS), pair=rows(pairs[:, [1, 0, 2]]))).data
    torch.testing.assert_close(found[0], found[2])
    torch.testing.assert_close(swapped[2], found[2])
