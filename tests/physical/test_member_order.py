"""Rows in the order of members: the same values and gradients, and no gathers around products."""

import pytest
import torch

from edgewise import F, Program, R, V, W, rows
from edgewise.physical.passes import gathers

TYPES, N, D, EDGES = 32, 2000, 5, 12_000
PROGRAMS = {
    kind: Program(
        [
            (R.mean(V.I, V.T) <= (R.x(V.J), R._edge(V.I, V.T, V.J))) | [inner],
            (R.out(V.I) <= R.mean(V.I, V.T)[W.w(V.T)[3, D]]) | [outer],
        ],
        domains={V.T: TYPES},
    )
    for kind, inner, outer in (
        ("a mean, then a sum", F.avg_agg, F.sum_agg),
        ("a sum, then a mean", F.sum_agg, F.avg_agg),
    )
}


def typed_edges(unequal):
    """Most edges of type 0, so that members are multiplied one after another; some of no node."""
    draw = torch.Generator().manual_seed(0)
    i, j = torch.randint(N - 3, (2, EDGES), generator=draw)
    types = torch.randint(TYPES, (EDGES,), generator=draw)
    types[: 6000 if unequal else 0] = 0
    return rows(torch.stack([i, types, j]).unique(dim=1))


@pytest.mark.parametrize("unequal", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", PROGRAMS)
def test_values_and_gradients_are_those_of_the_order_of_keys(kind, dtype, unequal, monkeypatch):
    monkeypatch.setattr(gathers, "SMALL_ROWS", 0)
    found = []
    x = torch.randn(N, D, dtype=dtype, generator=torch.Generator().manual_seed(1)).requires_grad_()
    for without in ((), ("order by member",)):
        model = PROGRAMS[kind].compile(R.out, seed=0, fill=0.0, dtype=dtype, without=without)
        data = model.ground(edge=typed_edges(unequal))
        y = model.rows(data, x=x).data
        found.append([y, *torch.autograd.grad(y.float().sin().sum(), [x, *model.parameters()])])
        (step,) = data.built.values()
        (plan,) = step.plans.values()
        assert plan.passes.get("order by member", 0) == (1 if unequal and not without else 0)
    tolerance = {"atol": 5e-2, "rtol": 5e-2} if dtype == torch.bfloat16 else {}
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, **tolerance)
