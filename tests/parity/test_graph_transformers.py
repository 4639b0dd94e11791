"""Transformers on graphs against the equations of their papers, written in torch; and readouts."""

import math
import warnings

import pytest
import torch
from torch import nn
from torch.nn.functional import gelu, layer_norm

from edgewise import EdgewiseError, Program, R, rows
from edgewise.graphs import expander
from edgewise.inputs.kinds import ragged
from edgewise.zoo import edge_transformer, exphormer, graphormer, relational_attention
from edgewise.zoo.graph_models import GRAPH_MODELS
from edgewise.zoo.graph_readouts import READOUTS, pooled

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyG's own imports
    from torch_geometric import nn as pyg

N, D, H = 7, 4, 2
PAIRS = torch.tensor([(0, 1), (0, 2), (1, 0), (2, 2), (3, 1), (3, 4), (4, 5)]).T  # node 6 is alone
TOLERANCE = {"atol": 1e-9, "rtol": 1e-9}


def drawn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def compiled(program, output=R.out):
    """A model in float64 with random weights, biases too."""
    model = program.compile(output, seed=0, dtype=torch.float64)
    with torch.no_grad():
        for at, weight in enumerate(model.parameters()):
            weight.copy_(drawn(*weight.shape, seed=50 + at) / 2)
    return model


def assert_same(model, ours, theirs, inputs):
    """Outputs, and the gradients by inputs and all weights."""
    torch.testing.assert_close(ours, theirs, **TOLERANCE)
    direction, leaves = drawn(*theirs.shape, seed=9), [*inputs, *model.parameters()]
    found, wanted = (
        torch.autograd.grad((y * direction).sum(), leaves, allow_unused=True)
        for y in (ours, theirs)
    )
    for a, b in zip(found, wanted, strict=True):
        assert (a is None or not a.any()) if b is None else torch.allclose(a, b, **TOLERANCE)


class Named:
    """The weights of a model by name: maps, heads and norms."""

    def __init__(self, model, scope=""):
        self.model, self.scope = model, scope

    def __getitem__(self, name):
        return self.model.weight(f"{self.scope}{name}")

    def map(self, name, x):
        return x @ self[f"{name}.weight"].mT + self[f"{name}.bias"]

    def norm(self, name, x):
        return layer_norm(x, x.shape[-1:], self[f"{name}.gain"], self[f"{name}.bias"], 1e-5)


def test_relational_attention():
    config = relational_attention.Config(D, H, 6)
    x, e = drawn(N, D).requires_grad_(), drawn(N, N, 6, seed=1).requires_grad_()
    for output in (R.out, R.edge_out):
        model = compiled(relational_attention.program(config), output)
        w = Named(model)
        q, k, v = (
            torch.einsum("hcd,nd->hnc", w[f"{n}.weight"], x).unsqueeze(at)
            + torch.einsum("hcd,ijd->hijc", w[f"{n}.edge"], e)
            + w[f"{n}.bias"][:, None, None]
            for n, at in (("q", 2), ("k", 1), ("v", 1))
        )
        alpha = ((q * k).sum(-1) / math.sqrt(D // H)).softmax(-1)
        context = torch.einsum("hij,hijc->ihc", alpha, v).flatten(1)
        y = w.norm("attended", x + w.map("mixed", context))
        y = w.norm("out", y + w.map("out_fed", w.map("out_hidden", y).relu()))
        both = y.expand(N, N, D)
        u = torch.cat([e, e.transpose(0, 1), both, both.transpose(0, 1)], 2)
        wanted = y
        if output == R.edge_out:
            mid = w.norm("edge_mid", e + w.map("edge_mid_fed", w.map("edge_mid_hidden", u).relu()))
            hidden = w.map("edge_out_hidden", mid).relu()
            wanted = w.norm("edge_out", mid + w.map("edge_out_fed", hidden))
        assert_same(model, model(x=x, edge=e), wanted, [x, e])


def test_edge_transformer():
    model = compiled(edge_transformer.program(edge_transformer.Config(D, H)))
    x, w = drawn(N, N, D).requires_grad_(), Named(model)
    read = w.norm("normed", x)
    q, k, left, right = (
        torch.einsum("hcd,ijd->hijc", w[f"{n}.weight"], read) for n in ("q", "k", "left", "right")
    )
    alpha = (torch.einsum("hilc,hljc->hijl", q, k) / math.sqrt(D // H)).softmax(-1)
    context = torch.einsum("hijl,hilc,hljc->ijhc", alpha, left, right).flatten(2)
    mixed = x + w.map("mixed", context)
    wanted = mixed + w.map("out", w.map("mlp", w.norm("middle", mixed)).relu())
    assert_same(model, model(x=x), wanted, [x])


def _exphormer_attention(w, x, virtual, edge, config, last):
    """Rows after the nodes are virtual; lists of edges of each kind with their vectors."""
    d, all_rows = D // H, torch.cat([x, virtual])
    far = torch.stack(torch.where(expander(config.degree, seed=config.seed).dense(N)))
    nodes = torch.arange(N)
    kinds = [(*PAIRS, edge), (*far, w["expander"].expand(far.shape[1], D))]
    for u in range(config.virtual):
        there = torch.full((N,), N + u)
        kinds += [(nodes, there, w["inward"][u].expand(N, D))]
        kinds += [] if last else [(there, nodes, w["outward"][u].expand(N, D))]
    i, j, e = (torch.cat(part) for part in zip(*kinds, strict=True))
    q, k, v = (torch.einsum("hcd,nd->nhc", w[f"{n}.weight"], all_rows) for n in "qkv")
    score = (q[i] * k[j] * torch.einsum("hcd,nd->nhc", w["e.weight"], e)).sum(-1) / math.sqrt(d)
    score = score.clamp(-5, 5).exp()
    total = torch.zeros_like(q).index_add(0, i, score[..., None] * v[j])
    mass = torch.zeros_like(q[..., 0]).index_add(0, i, score)
    return (total / (mass[..., None] + 1e-6)).flatten(1)


def test_exphormer():
    config = exphormer.Network(inputs=3, hidden=D, outputs=2, layers=2, edges=2, heads=H, degree=4,
                               virtual=2, seed=3, norm="layer", task="node", head=1)  # fmt: skip
    model = compiled(exphormer.network(config), R.logits)
    w, x, edge = Named(model), drawn(N, 3).requires_grad_(), drawn(7, 2, seed=1)
    bond, virtual, y = w.map("bond", edge), w["virtual"], w.map("encoded", x)
    for k in range(2):
        layer, local = Named(model, f"layer.{k}."), Named(model, f"layer.{k}.local.")
        out = _exphormer_attention(layer, y, virtual, bond, config, k == 1)
        near = torch.zeros_like(y).index_add(0, PAIRS[0], (y[PAIRS[1]] + bond).relu())
        near = local.map("out", local.map("mlp", near + (1 + local["eps"]) * y).relu())
        both = layer.norm("norm_local", y + near) + layer.norm("norm_attention", y + out[:N])
        y = layer.norm("norm_out", both + layer.map("fed", layer.map("mlp", both).relu()))
        virtual = out[N:]
    ours = model(model.ground(edge=rows(PAIRS, edge)), x=x)
    assert_same(model, ours, w.map("logits", y), [x])


def test_graphormer():
    config = graphormer.Network(inputs=3, hidden=D, outputs=2, layers=2, edges=2, heads=H,
                                farthest=2, degrees=2)  # fmt: skip
    model = compiled(graphormer.network(config), R.logits)
    w = Named(model)
    x, edge = drawn(N, 3).requires_grad_(), drawn(7, 2, seed=1)
    found = {tuple(pair): at for at, pair in enumerate(PAIRS.T.tolist())}
    paths = _paths(found)
    bias = w["graph_bias"][:, 0].expand(N + 1, N + 1, H).clone()  # the graph is the last token
    for i in range(N):
        for j in range(N):
            path = paths.get((i, j))
            far = 3 if path is None else min(len(path), 2)  # 3: there is no path
            bias[i, j] = w["distance"][far, :, 0]
            steps = [w["path"][n, :, 0] @ edge[found[e]] for n, e in enumerate((path or [])[:2])]
            if steps:
                bias[i, j] = bias[i, j] + torch.stack(steps).mean(0)
    into, out = (torch.bincount(PAIRS[at], minlength=N).clamp_max(2) for at in (0, 1))
    token = w.map("encoded", x) + w["in_degree"][into] + w["out_degree"][out]
    token = torch.cat([token, w["graph"][None]])
    for k in range(2):
        token = _graphormer_layer(Named(model, f"layer.{k}."), token, bias)
    wanted = w.map("logits", w.norm("final", token[N]))
    data = model.ground(edge=rows(PAIRS, edge), **graphormer.facts(config, PAIRS, N))
    assert_same(model, model(data, x=x), wanted, [x])


def _graphormer_layer(w, x, bias):
    read = w.norm("normed", x)
    q, k, v = (
        torch.einsum("hcd,nd->hnc", w[f"{n}.weight"], read) + w[f"{n}.bias"][:, None] for n in "qkv"
    )
    score = q @ k.mT / math.sqrt(D // H) + bias.permute(2, 0, 1)
    x = x + w.map("mixed", (score.softmax(-1) @ v).permute(1, 0, 2).flatten(1))
    return x + w.map("out", gelu(w.map("mlp", w.norm("middle", x))))


def _paths(edges):
    """(i, j) → the edges of a shortest path, that with the smallest nodes from its end."""
    found = {(i, i): [] for i in range(N)}
    for _ in range(N):
        new = {}
        for (i, k), path in sorted(found.items()):
            for a, b in edges:
                if a == k and (i, b) not in found and (i, b) not in new:
                    new[i, b] = [*path, (a, b)]
        found |= new
    return found


@pytest.mark.parametrize("how", READOUTS)
def test_readouts_are_those_of_pyg(how):
    model = compiled(Program(pooled(R.x, R.y, D, how)), R.y)
    aggregation = {"sum": pyg.SumAggregation, "mean": pyg.MeanAggregation,
                   "max": pyg.MaxAggregation}  # fmt: skip
    if how == "attention":
        gate = nn.Linear(D, 1).double()
        gate.weight, gate.bias = (nn.Parameter(model.weight(f"y.gate.{n}").detach().reshape(s))
                                  for n, s in (("weight", (1, D)), ("bias", (1,))))  # fmt: skip
        theirs = pyg.AttentionalAggregation(gate)
    else:
        theirs = aggregation[how]()
    x, size = drawn(5, D).requires_grad_(), [2, 3]
    index = torch.tensor([0, 0, 1, 1, 1])
    ours = model(model.ground(x=ragged(list(x.split(size))))).data
    wanted = theirs(x, index)
    torch.testing.assert_close(ours, wanted, **TOLERANCE)
    for a, b in zip(*(torch.autograd.grad(y.square().sum(), x) for y in (ours, wanted)),
                    strict=True):  # fmt: skip
        torch.testing.assert_close(a, b, **TOLERANCE)


BAD = {
    "leave it out": ("appnp", {"task": "graph", "jump": True}),
    "not an integer ≥ 0": ("gcn", {"edges": -1}),
    "write `encode=True`": ("gps", {"inputs": 3, "encode": False}),
    "residual connections inside": ("gated_gcn", {"residual": True}),
    "not one of layer": ("graphormer", {"norm": "batch"}),
    "not one of sum, mean": ("gcn", {"task": "graph", "readout": "token"}),
    "must be even": ("exphormer", {"degree": 3}),
}


@pytest.mark.parametrize("what", BAD)
def test_a_configuration_that_does_not_fit_is_refused(what):
    name, options = BAD[what]
    module = GRAPH_MODELS[name]
    with pytest.raises(EdgewiseError) as caught:
        module.network(module.Network(**options))
    assert what in str(caught.value)


@pytest.mark.parametrize("name", GRAPH_MODELS)
@pytest.mark.parametrize("task", ["node", "edge"])
def test_the_logits_of_nodes_and_pairs_have_the_size_of_the_outputs(name, task):
    """Also without features of edges, and without an MLP."""
    module = GRAPH_MODELS[name]
    config = module.Network(inputs=3, hidden=8, outputs=5, layers=2, task=task, head=0, jump=False)
    model = module.network(config).compile(R.logits, seed=0)
    keys = torch.stack([PAIRS[0], torch.zeros(7).long(), PAIRS[1]]) if name == "rgcn" else PAIRS
    more = {"pair": rows(torch.tensor([[0, 1], [3, 0], [4, 6]]))} if task == "edge" else {}
    if hasattr(module, "facts"):
        more |= module.facts(config, PAIRS, N)
    found = model(model.ground(edge=rows(keys), x=drawn(N, 3).float(), **more))
    found = found if isinstance(found, torch.Tensor) else found.data
    assert found.shape == (N if task == "node" else 2, 5)
