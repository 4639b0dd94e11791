"""What binds a variable, and what does not."""

import re

import pytest

from edgewise import EdgewiseError, Program, R, V, W
from edgewise.graphs import window

X, Y, Z, D = V.X, V.Y, V.Z, V.D


@pytest.mark.parametrize(
    "rule",
    [
        R.h(X) <= R.a(X),
        R.h(X) <= R._a(X),
        R.h(X, Y) <= (R.a(X), R._e(X, Y)),
        R.h(X, D) <= (R.a(X), R.special.add(X, 1, D)),
        R.h(X) <= (R.a(Y), R.special.sub(X, Y, 1)),
        R.h(X) <= (R.special.eq(X, 3), R._n),
        R.h(X, Z) <= (R.special.next(Y, Z), R.a(X), R.special.mul(X, 2, Y)),
        R.h(V.I) <= (R.a(V.I), R._a(V.J), R.special.leq(D, 5), R.special.sub(V.I, V.J, D)),
        R.h(X, D) <= (R.a(X), R.special.fn(lambda x: x + 1)(X, D)),
        R.h(V.I, V.J) <= (R.a(V.I), R.a(V.J), window(2)(V.I, V.J)),
        R.h(X) <= (R.a(X), R._e(X, Y), ~R.b(Y)),
        R.h(V.H, X) <= R.a(X)[W.w(V.H)[2, 2]],
        R.h(V.H, X)[W.w(V.H)[2, 2]] <= R.a(X),
        R.h(X) <= (R.a(X), R.special.add_eval(X, 1)),
    ],
    ids=lambda rule: re.sub(r" at 0x[0-9a-f]+", "", repr(rule)),
)
def test_bound(rule):
    Program([rule], domains={V.H: 2}).check()


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        (R.h(X, Y) <= R.a(X), "Y"),
        (R.h(X) <= ~R.a(X), "X"),
        (R.h(X) <= (R.a(X), ~R.e(X, Y)), "Y"),
        (R.h(X) <= (R.a(X), R.special.leq(X, Y)), "Y"),
        (R.h(X) <= (R.a(X), R.special.add_eval(X, Y)), "Y"),
        (R.h(X) <= (R.a(X), ~R.special.eq(X, Y)), "Y"),
        (R.h(D) <= (R.a(X), R.special.div(D, 2, X)), "D"),
        (R.h(D) <= (R.a(X), R.special.add(D, D, X)), "D"),
        (R.h(D) <= (R.a(X), R.special.fn(abs)(D, X)), "D"),
        (R.h(V.I) <= (R.a(V.J), window(2)(V.I, V.J)), "I"),
        (R.h(X)[W.w(V.H)[2, 2]] <= R.a(X), "H"),
    ],
    ids=lambda rule: re.sub(r" at 0x[0-9a-f]+", "", repr(rule)),
)
def test_unbound(rule, name):
    with pytest.raises(EdgewiseError, match=f"`{name}`") as caught:
        Program([rule], domains={V.H: 2}).check()
    assert caught.value.code == "unbound-variable"


def test_the_caret_is_on_the_variable():
    with pytest.raises(EdgewiseError) as caught:
        Program([R.h(X, V.Nowhere) <= R.a(X)]).check()
    span = caught.value.span
    assert span.text[span.column - 1 : span.end - 1] == "V.Nowhere"


def test_every_unbound_variable_is_reported_once():
    with pytest.raises(EdgewiseError) as caught:
        Program([R.h(X, Y) <= (R.special.leq(X, Y), R.special.leq(Y, Z))]).check()
    assert len(caught.value.errors) == 3
