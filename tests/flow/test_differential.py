"""Programs compared on random data: equal ones have no counterexample, others a small one."""

import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, V, W

SOFTMAX = F.softmax_agg(agg_terms=[V.J])
SPLIT = Program([R.h(V.X) <= R.x(V.X), R.out(V.X) <= (R.h(V.Y), R._edge(V.X, V.Y))])
JOINED = Program([R.out(V.X) <= (R._edge(V.X, V.Y), R.x(V.Y))])
ATTENTION = [
    R.k(V.I) <= R.x(V.I)[W.k[2, 3]],
    (R.w(V.I, V.J) <= (R.k(V.J).T, R.x(V.I)[W.q[2, 3]])) | [F.product, SOFTMAX],
    (R.out(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product],
]
APART = [
    R.q(V.I) <= R.x(V.I)[W.q[2, 3]],
    R.k(V.I) <= R.x(V.I)[W.k[2, 3]],
    (R.w(V.I, V.J) <= (R.k(V.J).T, R.q(V.I))) | [F.product, SOFTMAX],
    (R.out(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product],
]


@pytest.mark.parametrize(("one", "other"), [(SPLIT, JOINED), (Program(ATTENTION), Program(APART))])
def test_equal_beyond_names(one, other):
    assert not one.equals(other)
    assert one.counterexample(other) is None


def test_a_difference_in_a_value_and_its_fewest_facts():
    other = Program([(R.h(V.X) <= R.x(V.X)) | [F.relu], *SPLIT.rules[1:]])
    found = SPLIT.counterexample(other)
    assert found.atom.relation == "out"
    assert {fact.relation for fact in found.facts} == {"edge", "x"}
    assert len(found.facts) == 2  # one edge, and what it reads: a negative number
    one, two = (p.solve(found.facts)[found.atom] for p in (SPLIT, other))
    torch.testing.assert_close((one, two), (found.one, found.other))
    assert (float(one) < 0, float(two)) == (True, 0.0)
    assert repr(found.atom) in repr(found)


def test_a_difference_in_what_holds():
    other = Program([R.out(V.X) <= (R._edge(V.Y, V.X), R.x(V.Y))])
    found = JOINED.counterexample(other)
    assert None in (found.one, found.other)
    assert "absent" in repr(found)


def test_an_error_of_one_alone_is_a_difference():
    plain = Program([R.out(V.X) <= R.x(V.X)])
    loop = [R.p(V.X) <= R.x(V.X), R.p(V.X) <= (R.p(V.X), R._again(V.X))]
    found = Program([*plain.rules, *loop]).counterexample(plain)
    assert found.atom is None
    assert found.one == "error cyclic-recursion"
    assert "solved" in repr(found)


def test_shapes_and_constants():
    one = Program([(R.out(V.X) <= (R.a(V.X, "b").T, R.a(V.X, "b"))) | [F.product]])
    assert one.counterexample(one, shapes={"a": (3,)}) is None
    other = Program([(R.out(V.X) <= (R.a(V.X, "b").T, R.a(V.X, "c"))) | [F.product]])
    assert one.counterexample(other, shapes={"a": (3,)}).atom is not None


@pytest.mark.parametrize(
    "other", [Program([R.y(V.X) <= R.x(V.X)]), Program([R.out(V.X) <= R.x(V.X)[W.w[2, 2]]])]
)
def test_other_outputs_or_weights_cannot_be_compared(other):
    with pytest.raises(EdgewiseError, match="not-comparable"):
        Program([R.out(V.X) <= R.x(V.X)]).counterexample(other)


@pytest.mark.parametrize(("other", "trials"), [("rules", 3), (SPLIT, 0), (SPLIT, "many")])
def test_bad_arguments(other, trials):
    with pytest.raises(EdgewiseError, match="not-comparable"):
        SPLIT.counterexample(other, trials=trials)
