"""One step of an algorithm as rules: equal to its equations, values and gradients."""

import pytest
import torch

from edgewise import R, V, rows, zoo

KEYS = torch.tensor([[0, 0, 1, 1, 2, 3], [0, 1, 0, 1, 2, 3]])


def plain(w, x, edge, picked, chooses):
    def relu_pair(name, own, node, *more):
        i, j = KEYS
        total = own[i] @ w[f"{name}.own"].T + node[j] @ w[f"{name}.near"].T + w[f"{name}.bias"]
        total = total + edge @ w[f"{name}.edge"].T
        return sum((m @ w[f"{name}.message"].T for m in more), total).relu()

    seen = x @ w["node.weight"].T + w["node.bias"]
    found = {}
    if chooses:
        seen = seen + picked @ w["node.picked"].reshape(1, -1)
        hidden = (x @ w["choose.hidden.weight"].T + w["choose.hidden.bias"]).relu()
        found["choose"] = (hidden @ w["choose.weight"].T + w["choose.bias"])[:, 0]
    node = seen.relu()
    message = relu_pair("message", node, node) @ w["message.out"].T
    most = torch.stack([message[i == KEYS[0]].amax(0) for i in range(4)])
    state = (node @ w["state.own"].T + most @ w["state.most"].T + w["state.bias"]).relu()
    found["out"] = state @ w["out.weight"].T + most @ w["out.most"].T + w["out.bias"]
    logit = (relu_pair("pointer", state, node, message) @ w["pointer.out"].T)[:, 0]
    found["share"] = torch.cat([logit[i == KEYS[0]].softmax(0) for i in range(4)])
    return found


@pytest.mark.parametrize("chooses", [False, True])
def test_a_step_is_its_equations_and_the_reference(chooses):
    config = zoo.clrs.Config(3, 2, 2, 4, chooses)
    outputs = [R.out, R.share, *([R.choose] if chooses else [])]
    program = zoo.clrs.program(config)
    model = program.compile(outputs, seed=0, dtype=torch.float64, dense=False)
    draw = torch.Generator().manual_seed(0)
    x, edge = (torch.randn(n, d, generator=draw).double() for n, d in ((4, 3), (6, 2)))
    picked = torch.eye(4)[1][:, None].double()
    read = {"x": x} | ({"picked": picked} if chooses else {})
    found = model(edge=rows(KEYS, edge), **read)
    weights = dict(model.named_parameters())
    wanted = plain(weights, x, edge, picked, chooses)
    facts = [R.x(i)[row] for i, row in enumerate(x)]
    facts += [R.edge(*pair)[row] for pair, row in zip(KEYS.T.tolist(), edge, strict=True)]
    facts += [R.picked(i)[row] for i, row in enumerate(picked)] if chooses else []
    solved = program.solve(facts, weights=weights)
    for name, value in wanted.items():
        assert torch.allclose(found[name].data.reshape(value.shape), value, atol=1e-9)
        atom = R[name](V.I, V.J) if name == "share" else R[name](V.I)
        reference = torch.stack(list(solved[atom].values()))
        assert torch.allclose(reference.reshape(value.shape), value, atol=1e-9)
    sums = [sum(f(p).sin().sum() for p in each) for f, each in (
        (lambda r: r.data, found.values()), (lambda v: v, wanted.values()))]  # fmt: skip
    for a, b in zip(*(torch.autograd.grad(s, list(weights.values())) for s in sums), strict=True):
        assert torch.allclose(a, b, atol=1e-9)
    assert "https://arxiv.org/abs/" in zoo.clrs.__doc__
