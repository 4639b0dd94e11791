"""T5's buckets as a predicate: compiled as by the reference, and those of T5 itself."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from edgewise import Program, R, V
from edgewise.reference.arithmetic import bucket
from edgewise.scores import t5_buckets

KEYS = st.sampled_from([-2, 0, 1, 2, 3, 9, 40, 5000, "s"])


@settings(max_examples=50, deadline=None)
@given(
    keys=st.sets(KEYS, min_size=1),
    buckets=st.integers(-1, 12),
    far=st.integers(-1, 20),
    before=st.booleans(),
    bound=st.booleans(),
)
def test_it_is_the_reference(keys, buckets, far, before, bound):
    near = R.special.bucket_before if before else R.special.bucket
    last = 1 if bound else V.B
    head = R.h(V.I, V.J) if bound else R.h(V.I, V.J, V.B)
    program = Program([head <= (R.a(V.I), R.a(V.J), near(V.I, V.J, buckets, far, last))])
    facts = [R.a(key)[1.0] for key in keys]
    model = program.compile(R.h)
    found = model.rows(model.ground(facts=facts))
    expected = program.solve(facts)[head]
    assert list(found) == list(expected)


@pytest.mark.parametrize("both", [True, False])
def test_they_are_those_of_the_scores(both):
    expected = t5_buckets(32, 128, both=both)
    found = [bucket(-d, 32, 128, both=both) for d in range(-128, 129)]
    assert torch.tensor(found).equal(expected)
