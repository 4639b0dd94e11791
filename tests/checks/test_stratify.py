"""Negation around a cycle is refused; everything else is not."""

import pytest

from edgewise import EdgewiseError, Program, R, V

X, Y = V.X, V.Y


def test_negation_of_something_below_is_fine():
    Program(
        [
            R.reach(X) <= R._start(X),
            R.reach(Y) <= (R._reach(X), R._e(X, Y)),
            R.lost(X) <= (R._node(X), ~R.reach(X)),
            R.found(X) <= (R._node(X), ~R.lost(X)),
        ]
    ).check()


def test_recursion_without_negation_is_fine():
    Program([R.p(X) <= R.s(X), R.p(Y) <= (R.p(X), R._e(X, Y))]).check()


def test_soft_negation_is_a_value():
    Program([R.p(X) <= R.n(X) * -R.q(X), R.q(X) <= R.p(X)]).check()


def test_a_relation_that_denies_itself():
    with pytest.raises(EdgewiseError, match="`p` negates `p`"):
        Program([R.p(X) <= (R.n(X), ~R.p(X))]).check()


def test_a_long_cycle_is_told_in_order_and_once():
    rules = [
        R.a(X) <= (R.n(X), ~R.b(X)),
        R.b(X) <= R.c(X),
        R.c(X) <= (R._d(X), R._n(X)),
        R.d(X) <= (R.n(X), ~R.a(X)),
    ]
    story = "`a` negates `b`, which reads `c`, which reads `d`, which negates `a`"
    with pytest.raises(EdgewiseError, match=story) as caught:
        Program(rules).check()
    assert caught.value.code == "not-stratified"
    assert len(caught.value.errors) == 1
