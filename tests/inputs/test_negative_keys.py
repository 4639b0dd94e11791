"""Patterns count from 0; comparisons of rules do not, and keys may be negative."""

import pytest

from edgewise import Program, R, V


@pytest.mark.parametrize(
    "condition",
    [R.special.leq(V.J, V.I), R.special.lt(V.J, V.I), R.special.neq(V.J, V.I)],
    ids=repr,
)
def test_comparisons_hold_below_zero(condition):
    program = Program([R.h(V.I) <= (R.a(V.J), R._a(V.I), condition)])
    facts = [R.a(-2)[1.0], R.a(0)[10.0], R.a(3)[100.0]]
    model = program.compile(R.h)
    found = model.rows(model.ground(facts=facts))
    expected = program.solve(facts)[R.h(V.I)]
    assert {a: v.item() for a, v in found.items()} == {a: v.item() for a, v in expected.items()}
