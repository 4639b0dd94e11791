"""Recursion that counts without end is refused in seconds; a bound in data or rules ends it."""

import pytest
import torch

from edgewise import Program, R, V
from edgewise.checks.evaluation import TooManyGroundings

S, T = V.S, V.T
next_, add, leq = R.special.next, R.special.add, R.special.leq
ENDLESS = {
    "next": [R.h(T) <= (R.h(S), next_(S, T))],
    "mutual": [R.h(T) <= (R.p(S), next_(S, T)), R.p(T) <= (R.h(S), next_(S, T))],
    "other atoms": [R.h(T) <= (R.h(S), next_(S, T), R._x(V.X))],
}


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_recursion_is_refused_in_seconds(name):
    program = Program(ENDLESS[name])
    facts = [R.h(0)[1.0], *([R.x(5)] if name == "other atoms" else [])]
    with pytest.raises(TooManyGroundings, match="counts beyond all integers"):
        program.compile(R.h).ground(facts=facts)


def test_long_counts_that_end_are_evaluated():
    """Beyond 1,000 rounds; and beyond every constant, where the bound is a sum of two."""
    bound = (add(V.A, V.B, V.C), leq(T, V.C), R._a(V.A), R._b(V.B))
    rules = [R.h(T) <= (R.h(S), next_(S, T), *bound)]
    model = Program(rules).compile(R.h)
    found = model(model.ground(facts=[R.h(0)[1.0], R.a(700), R.b(800)]))
    assert len(found.data) == 1501
    assert torch.equal(found.data.unique(), torch.ones(1))
