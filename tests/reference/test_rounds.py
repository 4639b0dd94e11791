"""Recursion in rounds: what k rounds do not reach is absent, for every other rule too."""

import pytest

from edgewise import Program, R, V
from edgewise.language import nodes

pytestmark = pytest.mark.filterwarnings("ignore::edgewise.EdgewiseWarning")

RULES = [
    R.p(V.X) <= R.s(V.X),
    R.p(V.Y) <= (R.p(V.X), R._e(V.X, V.Y)),
    R.q(V.Y) <= R._p(V.Y),
    R.z(V.X) <= (R._n(V.X), ~R.p(V.X)),
]
CYCLE = [R.s(0)[1.0], *(R.e(i, (i + 1) % 3) for i in range(3)), *(R.n(i) for i in range(3))]


def keys(mapping):
    return [atom.terms[0] for atom in mapping]


@pytest.mark.parametrize(("rounds", "reached"), [(1, [0]), (2, [0, 1]), (3, [0, 1, 2])])
def test_each_round_reaches_one_step_further(rounds, reached):
    program = Program(RULES, rounds=rounds)
    solution = program.solve(CYCLE)
    assert keys(solution[R.p(V.X)]) == reached
    assert keys(solution[R.q(V.X)]) == reached
    assert keys(solution[R.z(V.X)]) == [i for i in range(3) if i not in reached]


@pytest.mark.parametrize("relation", ["p", "q", "z"])
@pytest.mark.parametrize("rounds", [1, 2, 3, 4])
def test_compiled_rounds_reach_the_same(relation, rounds):
    program = Program(RULES, rounds=rounds)
    model = program.compile(nodes.Atom(relation))
    found = model.rows(model.ground(facts=CYCLE))
    expected = program.solve(CYCLE)[nodes.Atom(relation, (V.X,))]
    assert {a: v.item() for a, v in found.items()} == {a: v.item() for a, v in expected.items()}


def test_a_sum_in_rounds_is_that_many_powers():
    rules = [R.h(V.X) <= R.x(V.X), R.h(V.X) <= (R.h(V.Y)[0.5], R._e(V.X, V.Y))]
    facts = [R.x(0)[1.0], R.x(1)[2.0], R.e(0, 1), R.e(1, 0)]
    values = [Program(rules, rounds=k).solve(facts)[R.h(0)].item() for k in (1, 2, 3)]
    assert values == [1.0, 2.0, 2.25]
