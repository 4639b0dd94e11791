"""Rounds count towards the limit of groundings."""

import pytest

from edgewise import Program, R, V
from edgewise.ground.join import PlanTooLarge

RULES = [R.h(V.X) <= R.a(V.X), R.h(V.Y) <= (R.h(V.X), R._edge(V.X, V.Y))]
FACTS = [R.a(0)[1.0], R.edge(0, 1), R.edge(1, 0)]


def test_too_many_rounds_are_refused() -> None:
    model = Program(RULES, rounds=10**9).compile(R.h)
    with pytest.raises(PlanTooLarge, match="1,000,000,000 rounds"):
        model.ground(facts=FACTS)


def test_a_limit_that_is_enough() -> None:
    model = Program(RULES, rounds=10).compile(R.h, limit=30)
    assert len(model.rows(model.ground(facts=FACTS))) == 2
    with pytest.raises(PlanTooLarge, match="10 rounds"):
        Program(RULES, rounds=10).compile(R.h, limit=29).ground(facts=FACTS)
