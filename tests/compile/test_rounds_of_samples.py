"""Rounds count towards the limit of groundings, and each sample of a batch has its own."""

import pytest
import torch

from edgewise import F, Program, R, V, ragged
from edgewise.ground.joins.join import PlanTooLarge

RULES = [R.h(V.X) <= R.a(V.X), R.h(V.Y) <= (R.h(V.X), R._edge(V.X, V.Y))]
FACTS = [R.a(0)[1.0], R.edge(0, 1), R.edge(1, 0)]


def test_too_many_rounds_are_refused() -> None:
    model = Program(RULES, rounds=10**9).compile(R.h)
    with pytest.raises(PlanTooLarge, match="1,000,000,000 rounds"):
        model.ground(facts=FACTS)


def test_a_limit_that_is_enough() -> None:
    model = Program(RULES, rounds=10).compile(R.h, limit=240)
    assert len(model.rows(model.ground(facts=FACTS))) == 2
    with pytest.raises(PlanTooLarge, match="10 rounds"):
        Program(RULES, rounds=10).compile(R.h, limit=239).ground(facts=FACTS)


def test_each_sample_of_a_ragged_batch_has_its_own_rounds() -> None:
    """A sample without a cycle is computed to its end, beside one that has k rounds."""
    rules = [R.h(V.X) <= R.x(V.X), R.h(V.Y) <= (R.h(V.X)[0.5], R._edge(V.X, V.Y))]
    program = Program(rules, rounds=2)
    chain = [R.x(0)[1.0], *(R.edge(n, n + 1) for n in range(5))]
    cycle = [R.x(0)[3.0], R.edge(0, 1), R.edge(1, 2), R.edge(2, 0)]
    model = program.compile(R.h, seed=0)
    found = model.rows(model.ground(facts=ragged([chain, cycle, [R.x(4)[2.0], R.edge(3, 4)]])))
    expected = {}
    for number, facts in enumerate([chain, cycle, [R.x(4)[2.0], R.edge(3, 4)]]):
        solution = program.solve(facts, seed=0)
        for atom, value in solution[R.h(V.X)].items():
            expected[number, atom.terms[0]] = value.item()
    assert {atom.terms: value.item() for atom, value in found.items()} == expected
    assert (0, 5) in expected
    assert (1, 2) not in expected


def test_a_fixed_point_under_torch_compile() -> None:
    shortest = Program(
        [(R.far(V.Y) <= (R.far(V.X), R.road(V.X, V.Y))) | [F.min_agg], R.far / 1 | [F.min]]
    ).compile(R.far)
    roads = [R.road(0, 1)[1.0], R.road(1, 2)[1.0], R.road(2, 0)[1.0], R.road(0, 2)[5.0]]
    data = shortest.ground(facts=[R.far(0)[0.0], *roads])
    assert torch.compile(shortest)(data).data.tolist() == [0.0, 1.0, 2.0]
