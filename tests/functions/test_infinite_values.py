"""Aggregations of values that are −∞: the compiled model gives what the reference gives."""

import pytest
import torch

from edgewise import F, Program, R, V

INF = float("inf")
GROUPS = [[-INF, -INF, -INF], [-INF, 1.0], [2.0, 1.0, -1.0], [-INF]]
WANTED = {  # by the definitions: of an empty maximum there is no slope
    "lse": (F.lse_agg, [-INF, 1.0, 2.3490122, -INF]),
    "topk": (F.topk_agg(2), [-INF, -INF, 3.0, -INF]),
    "median": (F.median_agg, [-INF, -INF, 1.0, -INF]),
}


@pytest.mark.parametrize("shape", [(), (2,)])
@pytest.mark.parametrize("name", WANTED)
def test_values_and_gradients(name, shape):
    aggregation, wanted = WANTED[name]
    program = Program([(R.h(V.X) <= R.e(V.X, V.Y)) | [aggregation]])
    found = []
    for solved in (True, False):
        leaves = [
            (x, y, torch.full(shape, value, dtype=torch.float64, requires_grad=True))
            for x, group in enumerate(GROUPS)
            for y, value in enumerate(group)
        ]
        facts = [R.e(x, y)[leaf] for x, y, leaf in leaves]
        if solved:
            values = list(program.solve(facts)[R.h(V.X)].values())
        else:
            model = program.compile(R.h, dtype=torch.float64)
            values = [value for _, value in model.rows(model.ground(facts=facts)).items()]
        for value, right in zip(values, wanted, strict=True):
            right = torch.full(shape, right, dtype=torch.float64)
            torch.testing.assert_close(value, right, atol=1e-6, rtol=0)
        total = torch.stack(values).sum()
        found.append(torch.autograd.grad(total, [leaf for *_, leaf in leaves]))
    assert all(g.isfinite().all() for g in found[0])
    torch.testing.assert_close(found[1], found[0])
