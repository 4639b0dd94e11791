"""What is probably a mistake, and what only looks like one."""

import pytest

from edgewise import F, Program, R, V, W
from edgewise.graphs import window

X, Y, Z = V.X, V.Y, V.Z


def codes(rules, facts=(), **options):
    return [warning.code for warning in Program(rules, **options).check(facts)]


@pytest.mark.parametrize(
    "rule",
    [
        (R.w(V.I, V.J) <= (R.d_k, R.k(V.J).T, R.q(V.I)))
        | [F.product, F.softmax_agg(agg_terms=[V.J])],
        R.h(V.I) <= (R.a(V.J), R._a(V.I), R.special.leq(V.J, V.I)),
        R.h(V.I) <= (R.a(V.J), R._a(V.I), window(2)(V.I, V.J)),
        R.h(X) <= R.a(X, Y),
        R.h(X) <= (R.a(Y), R._e(X, Y)),
        R.h(X) <= (R.a(X), R._e(X, Y), R._f(Y, Z)),
        R.h <= (R.a(Y), R._e(X, Y)),
        (R.h(X) <= (R.a(X), R.e(X, Y))) | [F.product],
        (R.h(X) <= (R.a(X), R.e(X, Y))) | [F.max_agg],
        R.h(X) <= (R.a(X), R.e(X, V._Y)),
        R.h(X) <= (R.bias, R.e(X, Y)),
        R.h(V.Atom1) <= (R.a(V.Atom1), R._e(V.Atom1, V.Atom2)),
        (R.h(X) <= R.a(X)) | [F.max],
        (R.h(X) <= R.a(X, Y)) | [F.sum],
        (R.h(X) <= R.a(X, Y)) | [F.max, F.min_agg],
        R.h(V.H, X) <= R.a(X)[W.w(V.H)[2, 2]],
        R.h(X) <= R.a(V.H, X)[W.w(V.H)[2, 2]],
    ],
    ids=repr,
)
def test_quiet(rule):
    assert codes([rule], domains={V.H: 2}) == []


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (R.h(X) <= (R.a(X), R.b(Y)), "cartesian-product"),
        (R.h <= (R.a(X), R.b(Y)), "cartesian-product"),
        (R.h(X) <= (R.a(X), R._e(Y, Z)), "cartesian-product"),
        (R.h(X) <= (R.a(X), R.e(X, Y)), "singleton-variable"),
        (R.h(V.User) <= (R.a(V.User), R._e(V.User, V.Usr)), "singleton-variable"),
        ((R.h(X) <= R.a(X, Y)) | [F.max], "idle-combination"),
    ],
    ids=repr,
)
def test_warned(rule, code):
    assert codes([rule]) == [code]


def test_only_a_sum_counts_ones():
    facts = [R.a(1)[2.0], R.e(0, 1)]
    body = (R.a(Y), R.e(X, Y))
    assert codes([R.h(X) <= body], facts) == ["counts-as-one"]
    assert codes([R.h(X) <= R.a(Y) + R.e(X, Y)], facts) == ["counts-as-one"]
    assert codes([(R.h(X) <= body) | [F.product]], facts) == []
    assert codes([R.h(X) <= (R.a(Y), R.e(X, Y)[0.5])], facts) == []
    assert codes([R.h(X) <= body], [R.a(1)[2.0], R.e(0, 1)[3.0]]) == []
    assert codes([R.h(X) <= (R.e(X, Y), R.e(Y, Z))], [R.e(0, 1)]) == ["singleton-variable"]


def test_what_conditions_derive_counts_as_one():
    rules = [R.two(X, Y) <= (R._e(X, Z), R._e(Z, Y)), R.h(X) <= (R.a(Y), R.two(X, Y))]
    assert codes(rules) == ["counts-as-one"]
    assert codes([*rules, R.two(X, Y) <= R.e(X, Y)[2.0]]) == []


def test_relations_that_nothing_gives_are_told_with_data_only():
    rules = [R.h(X) <= (R.a(X), ~R.blocked(X), R._flag(X))]
    assert codes(rules) == []
    assert codes(rules, [R.a(1)[1.0]]) == ["unknown-relation"]
    assert codes(rules, [R.a(1)[1.0], R.flag(1), R.block(1)]) == ["unknown-relation"]


def test_outputs_and_facts_of_derived_relations_are_used():
    rules = [R.h(0) <= R.h0, R.h(V.T) <= (R.h(V.S), R._x(V.T), R.special.next(V.S, V.T))]
    assert codes(rules, [R.h0[1.0], R.x(1), R.h(7)[2.0]]) == []
    assert codes([], [R.a(1)[1.0]]) == []
