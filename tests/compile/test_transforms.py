"""Transforms of `torch.func` through compiled models."""

import pytest
import torch

from edgewise import F, Program, R, V, W
from edgewise.graphs import window

pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's own
EDGES = torch.tensor([[0, 1, 2, 0, 3], [1, 2, 0, 2, 3]])
PAIRS = {
    "all pairs": (),
    "causal": (R.special.leq(V.Y, V.X),),
    "a window": (window(1)(V.X, V.Y),),
    "listed pairs": (R._edge(V.Y, V.X),),
}


def attention(pairs):
    score = (R.x(V.Y).T, R.x(V.X)[W.q[3, 3]], *PAIRS[pairs])
    rules = [
        (R.w(V.X, V.Y) <= score) | [F.product, F.softmax_agg(agg_terms=[V.Y])],
        (R.h(V.X) <= (R.w(V.X, V.Y), R.x(V.Y)[W.v[3, 3]])) | [F.product],
    ]
    model = Program(rules).compile(R.h, seed=0, dtype=torch.float64, fill=0.0)
    data = model.ground(edge=EDGES) if pairs == "listed pairs" else None
    return model, data


@pytest.mark.parametrize("pairs", PAIRS)
def test_attention(pairs):
    model, data = attention(pairs)
    batch = torch.randn(2, 4, 3, dtype=torch.float64)

    def f(x):
        return model(data, x=x)

    expected = torch.autograd.functional.jacobian(f, batch[0])
    torch.testing.assert_close(torch.func.jacrev(f)(batch[0]), expected)
    torch.testing.assert_close(torch.vmap(f)(batch), torch.stack([f(x) for x in batch]))
    if pairs in ("a window", "listed pairs"):  # else it is torch's own, without a forward mode
        torch.testing.assert_close(torch.func.jacfwd(f)(batch[0]), expected)


@pytest.mark.parametrize("pairs", PAIRS)
def test_gradients_of_each_sample(pairs):
    model, data = attention(pairs)
    batch = torch.randn(2, 4, 3, dtype=torch.float64)

    def loss(weights, x):
        return torch.func.functional_call(model, weights, (data,), {"x": x}).square().sum()

    weights = dict(model.named_parameters())
    found = torch.vmap(torch.func.grad(loss), (None, 0))(weights, batch)
    for n, x in enumerate(batch):
        model.zero_grad()
        model(data, x=x).square().sum().backward()
        for name, weight in weights.items():
            torch.testing.assert_close(found[name][n], weight.grad)


KINDS = Program(
    [
        R.h(V.X) <= R.c(V.X)["c":3,],
        R.h(V.X) <= R.o(V.X)["o":3,],
        R.h(V.X) <= R.n(V.X)["n":3,],
        (R.out <= R.h(V.X)["v":2, 3]) | [F.avg_agg],
    ]
)


def test_weights_that_are_stacked():
    model = KINDS.compile(R.out, seed=0, dtype=torch.float64)
    facts = [R.c(0)[1.0], R.o(1)[2.0], R.n(2)[3.0], R.c(3)[0.5]]
    data = model.ground(facts=facts)

    def loss(weights):
        return torch.func.functional_call(model, weights, (data,)).square().sum()

    weights = dict(model.named_parameters())
    found = torch.func.grad(loss)(weights)
    loss(weights).backward()
    torch.testing.assert_close(found, {name: w.grad for name, w in weights.items()})
    several = {name: torch.stack([w, 2 * w]) for name, w in weights.items()}
    data = model.ground(facts=facts)  # nothing is built for it before
    torch.testing.assert_close(torch.vmap(loss)(several)[0], loss(weights))
