"""A batch of no samples gives outputs of no samples."""

import pytest
import torch

from edgewise import F, Program, R, V
from edgewise.graphs import window

RULES = {
    "edges": [R.h(V.I) <= (R.x(V.I), R.x(V.J), R._edge(V.I, V.J))],
    "of what no rule derives": [R.g(V.I) <= (R.x(V.I), R._edge(V.I, V.I)), R.h(V.I) <= R.g(V.I)],
    "scalar": [R.h <= (R.x(V.J), R._edge(V.I, V.J))],
    "attention": [
        (R.w(V.I, V.J) <= (R.x(V.I).T, R.x(V.J), R._edge(V.I, V.J)))
        | [F.product, F.softmax_agg(agg_terms=[V.J])],
        (R.h(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product],
    ],
    "of weights alone": [R.h(V.I) <= (R.c["w":4,], R._x(V.I), R._edge(V.I, V.I)), R.c[2.0]],
    "pattern": [R.h(V.I) <= (R.x(V.I), R.x(V.J), window(1)(V.I, V.J))],
}


@pytest.mark.parametrize("edges", [0, 1])
@pytest.mark.parametrize("rows", [0, 2])
@pytest.mark.parametrize("rules", RULES)
def test_the_batch_axis_has_length_zero(rules, rows, edges):
    model = Program(RULES[rules]).compile(R.h, fill=0.0, seed=0)
    x = torch.randn(0, rows, 4, requires_grad=True)
    given = {"edge": torch.zeros(2, min(edges, rows), dtype=torch.int64)}
    y = model(x=x, **(given if "edge" in model.inputs else {}))
    assert y.shape == ((0, 4) if rules == "scalar" else (0, rows, 4))
    (gradient,) = torch.autograd.grad(y.sum(), x, allow_unused=True, materialize_grads=True)
    assert gradient.shape == x.shape
