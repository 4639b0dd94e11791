"""Programs that are equal but for names and order, and those that are not."""

import pytest

from edgewise import F, Program, R, V, W, zoo

SOFTMAX = F.softmax_agg(agg_terms=[V.J])
ATTENTION = [
    R.k(V.I) <= R.x(V.I)[2, 2],
    (R.w(V.I, V.J) <= (R.k(V.J).T, R.x(V.I), R.special.leq(V.J, V.I), R._ok(V.J)))
    | [F.product, SOFTMAX],
    (R.out(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product],
]
OTHER = [
    (R.out(V.A) <= (R.score(V.A, V.B), R.x(V.B))) | [F.product],
    (R.score(V.A, V.B) <= (R._ok(V.B), R.key(V.B).T, R.special.leq(V.B, V.A), R.x(V.A)))
    | [F.product, F.softmax_agg(agg_terms=[V.B])],
    R.key(V.Z) <= R.x(V.Z)[W.mine[2, 2]],
]


def test_names_and_order():
    assert Program(ATTENTION).equals(Program(OTHER))
    assert Program(OTHER).equals(Program(ATTENTION))
    assert not Program(ATTENTION).equals("program")


def changed(at, rule):
    return Program([rule if n == at else r for n, r in enumerate(OTHER)])


@pytest.mark.parametrize(
    "other",
    [
        changed(0, (R.out(V.A) <= (R.x(V.B), R.score(V.A, V.B))) | [F.product]),
        changed(0, (R.output(V.A) <= (R.score(V.A, V.B), R.x(V.B))) | [F.product]),
        changed(2, R.key(V.Z) <= R.x(V.Z)[W.mine[2, 3]]),
        changed(2, R.key(V.Z) <= R.y(V.Z)[W.mine[2, 2]]),
        changed(2, R.key(V.Z) <= R._x(V.Z)),
        changed(2, (R.key(V.Z) <= R.x(V.Z)[W.mine[2, 2]]) | [F.relu]),
        changed(1, (R.score(V.A, V.B) <= (R._ok(V.A), R.key(V.B).T, R.x(V.A),
                    R.special.leq(V.B, V.A))) | [F.product, F.softmax_agg(agg_terms=[V.B])]),
        changed(1, (R.score(V.A, V.B) <= (R._ok(V.B), R.key(V.B).T, R.x(V.A),
                    R.special.leq(V.B, V.A))) | [F.product, F.softmax_agg(agg_terms=[V.A])]),
        Program([*OTHER, R.out(V.I) <= R.x(V.I)]),
        Program(OTHER[:2]),
        Program(OTHER, aggregation=F.avg_agg),
    ],
    ids=range(11),
)  # fmt: skip
def test_differences(other):
    assert not Program(ATTENTION).equals(other)
    assert not other.equals(Program(ATTENTION))


def test_shared_weights_are_shared_in_both():
    tied = Program([R.h(V.I) <= R.x(V.I)[W.a], R.out(V.I) <= R.h(V.I)[W.a[2, 2]]])
    apart = Program([R.h(V.I) <= R.x(V.I)[W.a[2, 2]], R.out(V.I) <= R.h(V.I)[W.b[2, 2]]])
    assert not tied.equals(apart)
    assert not apart.equals(tied)
    assert tied.equals(Program([R.g(V.J) <= R.x(V.J)[W.c], R.out(V.J) <= R.g(V.J)[W.c[2, 2]]]))


def test_domains_facts_and_lines():
    rules = [R.h(V.H, V.X) <= R.x(V.X)[W.f(V.H)[2, 2]], R.c[0.5].fixed(), R.h / 2 | [F.relu],
             R.out(V.X) <= (R.h(V.H, V.X), R.c)]  # fmt: skip
    again = [R.out(V.X) <= (R.g(V.K, V.X), R.d), R.g(V.K, V.X) <= R.x(V.X)[W.g(V.K)[2, 2]],
             R.g / 2 | [F.relu], R.d[0.5].fixed()]  # fmt: skip
    assert Program(rules, domains={V.H: 3}).equals(Program(again, domains={V.K: 3}))
    assert not Program(rules, domains={V.H: 3}).equals(Program(again, domains={V.K: 4}))
    other = [R.d[0.25].fixed() if n == 3 else rule for n, rule in enumerate(again)]
    assert not Program(rules, domains={V.H: 3}).equals(Program(other, domains={V.K: 3}))
    plain = [rule for n, rule in enumerate(again) if n != 2]
    assert not Program(rules, domains={V.H: 3}).equals(Program(plain, domains={V.K: 3}))


def test_recursion_that_nothing_else_reads():
    rules = [R.p(V.X, V.Y) <= R.e(V.X, V.Y), R.p(V.X, V.Z) <= (R.p(V.X, V.Y), R.e(V.Y, V.Z))]
    other = [R.p(V.A, V.C) <= (R.p(V.A, V.B), R.e(V.B, V.C)), R.p(V.U, V.W) <= R.e(V.U, V.W)]
    turned = [R.p(V.X, V.Y) <= R.e(V.X, V.Y), R.p(V.X, V.Z) <= (R.p(V.Y, V.X), R.e(V.Y, V.Z))]
    assert Program(rules).equals(Program(other))
    assert not Program(rules).equals(Program(turned))
    out = R.out(V.I) <= R.x(V.I)
    assert Program([out, *rules]).equals(Program([*other, out]))
    assert not Program([out, *rules]).equals(Program([*turned, out]))


def test_models_of_the_zoo():
    gpt2 = zoo.gpt2.program(zoo.gpt2.Config())
    assert gpt2.equals(zoo.gpt2.program(zoo.gpt2.Config()))
    assert not gpt2.equals(zoo.gpt2.program(zoo.gpt2.Config(layers=11)))
    assert not gpt2.equals(zoo.bert.program(zoo.bert.Config()))


def test_a_comparison_may_be_turned():
    def program(*condition):
        return Program([R.out(V.I) <= (R.x(V.J), R._x(V.I), *condition)])

    assert program(V.J <= V.I).equals(program(V.I >= V.J))
    assert program(V.J < V.I).equals(program(V.I > V.J))
    assert not program(V.J <= V.I).equals(program(V.I <= V.J))
