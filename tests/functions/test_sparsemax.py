"""Sparsemax of what is no number: by the reference and compiled."""

import pytest
import torch

from edgewise import F, Program, R, V
from edgewise.functions import values
from edgewise.functions.columns import sparsemax


@pytest.mark.parametrize("odd", [torch.inf, torch.nan])
def test_what_is_no_number_stays_one(odd):
    x = torch.tensor([[1.0, odd, 0.0], [1.0, 1.4, 0.2]])
    found = sparsemax(x, 1)
    assert found[0].isnan().all()
    torch.testing.assert_close(found[1], torch.tensor([0.3, 0.7, 0.0]))
    assert values.sparsemax(x[0]).isnan().all()
    torch.testing.assert_close(values.sparsemax(x[1]), found[1])


def test_an_overflow_is_the_same_compiled_and_by_the_reference():
    program = Program([R.h(V.X) <= F.sparsemax(F.inverse(R.a(V.X)))])
    facts = [R.a(0)[[0.0, 1.0]], R.a(1)[[2.0, 4.0]]]
    solved = program.solve(facts)
    model = program.compile(R.h, dtype=torch.float64)
    found = dict(model.rows(model.ground(facts=facts)))
    for atom in (R.h(0), R.h(1)):
        torch.testing.assert_close(found[atom], solved[atom], equal_nan=True)
    assert found[R.h(0)].isnan().all()
    assert not found[R.h(1)].isnan().any()
