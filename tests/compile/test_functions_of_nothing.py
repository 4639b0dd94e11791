"""`special.fn` with one term: a function of nothing."""

import pytest
import torch

from edgewise import Program, R, V
from edgewise.reference import solve


@pytest.mark.parametrize("value", [0, 1, 7])
def test_a_function_of_nothing(value: int) -> None:
    program = Program([R.h(V.I) <= (R.x(V.I), R.special.fn(lambda: value)(V.I))])
    facts = [R.x(i)[float(i + 1)] for i in range(3)]
    model = program.compile(R.h)
    found = model.rows(model.ground(facts=facts))
    wanted = {(value,): value + 1.0} if value < 3 else {}
    assert {atom.terms: v.item() for atom, v in found.items()} == wanted
    if wanted:
        assert solve(program, facts)[R.h(value)].item() == value + 1.0


def test_beside_another_rule_of_the_body() -> None:
    rule = R.h(V.J) <= (R.x(V.I), R.x(V.J), R.special.fn(lambda: 1)(V.I))
    model = Program([rule]).compile(R.h)
    found = model.rows(model.ground(facts=[R.x(i)[1.0] for i in range(3)]))
    assert found.index.tolist() == [[0, 1, 2]]


def test_as_a_condition() -> None:
    model = Program([R.h(V.I) <= (R.x(V.I), ~R.special.fn(lambda: 1)(V.I))]).compile(R.h)
    found = model.rows(model.ground(facts=[R.x(i)[1.0] for i in range(3)]))
    assert found.index.tolist() == [[0, 2]]


def test_arithmetic_as_a_condition() -> None:
    rule = R.h(V.I) <= (R.x(V.I), R.e(V.I, V.J), ~R.special.add(V.I, 1, V.J))
    model = Program([rule]).compile(R.h)
    facts = [*(R.x(i)[1.0] for i in range(3)), R.e(0, 1)[1.0], R.e(1, 0)[1.0]]
    assert model.rows(model.ground(facts=facts)).index.tolist() == [[1]]


def test_nothing_is_derived_of_values_with_gradients() -> None:
    model = Program([R.h(0) <= (R.a(V.Y)["w":2,], R._s)]).compile(R.h)
    value = torch.tensor(1.5, requires_grad=True)
    found = model.rows(model.ground(facts=[R.a(0)[value]]))
    assert len(found) == 0
    found.data.sum().backward()
    assert value.grad == 0
