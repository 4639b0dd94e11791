"""Tasks that are alike copy the nodes of the first: the same values, by far fewer runs of rules."""

import pytest
import torch

from edgewise import F, Program, R, V, W
from edgewise.physical.rule import RuleStep

NEXT, BEFORE = R.special.next(V.Y, V.X), R.special.next(V.Z, V.Y)
PROGRAMS = {
    "recurrence": [
        R.h(0) <= R.x(0)["i":3, 2],
        (R.h(V.X) <= (R.h(V.Y)["h":3, 3], R.x(V.X)["i":3, 2], NEXT)) | [F.tanh],
    ],
    "two relations": [
        R.h(0) <= R.x(0)["i":3, 2],
        (R.g(V.X) <= (R.h(V.Y)["u":3, 3], R.x(V.X)["v":3, 2], NEXT)) | [F.sigmoid],
        (R.h(V.X) <= (R.g(V.X), R.h(V.Y), NEXT)) | [F.elproduct, F.tanh],
    ],
    "a family": [
        R.h(0) <= R.x(0)["i":2, 2],
        (R.p(V.K, V.X) <= (R.h(V.Y)[W.w(V.K)[2, 2]], R.x(V.X)["i":2, 2], NEXT)) | [F.tanh],
        R.h(V.X) <= R.p(V.K, V.X),
    ],
    "the last two steps": [
        R.h(0) <= R.x(0)["i":2, 2],
        R.h(1) <= R.x(1)["i":2, 2],
        (R.h(V.X) <= (R.h(V.Y)["a":2, 2], R.h(V.Z)["b":2, 2], R._x(V.X), NEXT, BEFORE)) | [F.tanh],
    ],
    "a mean of all before": [
        R.h(0) <= R.x(0)["i":2, 2],
        (R.h(V.X) <= (R.h(V.Y)["a":2, 2], R.x(V.X), R.special.lt(V.Y, V.X))) | [F.tanh, F.avg_agg],
    ],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients_are_those_of_the_reference(name):
    torch.manual_seed(0)
    program = Program(PROGRAMS[name], domains={V.K: 3} if name == "a family" else {})
    model = program.compile(R.h, seed=0, dtype=torch.float64)
    x = torch.randn(9, 2, dtype=torch.float64)
    out = model(x=x)
    weights = {n: w.detach().clone().requires_grad_() for n, w in model.named_parameters()}
    found = program.solve([R.x(i)[row] for i, row in enumerate(x)], weights=weights)[R.h(V.I)]
    right = torch.stack(list(found.values()))
    torch.testing.assert_close(out, right)
    factor = torch.randn_like(out)
    ours = torch.autograd.grad((out * factor).sum(), list(model.parameters()))
    theirs = torch.autograd.grad((right * factor).sum(), list(weights.values()))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)


def test_rules_of_a_recurrence_run_a_few_times(monkeypatch):
    runs, own = [], RuleStep.__call__

    def counted(step, state):
        runs.append(step)
        return own(step, state)

    monkeypatch.setattr(RuleStep, "__call__", counted)
    model = Program(PROGRAMS["recurrence"]).compile(R.h, seed=0)
    model(x=torch.randn(50, 2))
    assert len(runs) < 6


def test_every_step_of_a_recurrence_drops_its_own():
    rules = [R.h(0) <= R.x(0), (R.h(V.X) <= (R.h(V.Y), R._x(V.X), NEXT)) | [F.dropout(0.5)]]
    model = Program(rules).compile(R.h, seed=0).train()
    torch.manual_seed(0)
    out = model(x=torch.ones(4, 64))
    kept = out != 0
    assert bool((kept[1:] <= kept[:-1]).all())  # dropped once, dropped for good
    assert 0 < kept[3].sum() < kept[2].sum() < kept[1].sum() < 64
