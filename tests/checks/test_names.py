"""Names, arities, facts, weights and lists of functions."""

import pytest

from edgewise import C, EdgewiseError, F, Program, R, V, W

X, Y = V.X, V.Y


def refused(rules, facts=(), **options):
    """The errors of a program that is not accepted."""
    with pytest.raises(EdgewiseError) as caught:
        Program(rules, **options).check(facts)
    return caught.value.errors


def codes(rules, facts=(), **options):
    return [error.code for error in refused(rules, facts, **options)]


def test_all_places_of_a_wrong_arity_are_reported():
    rules = [R.h(X) <= R.a(X), R.g(X) <= R.a(X, X), R.f(X) <= R._a(X, X, X), R.h / 3 | [F.tanh]]
    assert codes(rules) == ["arity-mismatch"] * 3


def test_negated_atoms_and_operands_have_an_arity_too():
    assert codes([R.h(X) <= (R.a(X), ~R.a(X, X))]) == ["arity-mismatch"]
    assert codes([R.h(X) <= R.a(X) + F.relu(R.a(X, X))]) == ["arity-mismatch"]


def test_facts_have_the_arity_of_the_rules():
    rules = [R.h(X) <= R.a(X)]
    (error,) = refused(rules, [R.a(1, 2)[1.0]])
    assert error.message.startswith("`a` has 2 terms here and 1 term before (line ")


def test_errors_of_one_stage_come_together_and_hide_later_ones():
    rules = [
        (R.h(X, Y) <= R.a(X)) | [F.max, F.min],
        R.g <= R.h(X)["w"],
    ]
    assert set(codes(rules)) == {"arity-mismatch", "two-combinations", "undefined-weight"}


def test_hidden_and_scoped_facts_are_the_same_atom():
    rules = [R.h(X) <= R.a(X)]
    assert codes(rules, [R.a(1), R._a(1)]) == ["duplicate-fact"]
    assert codes(rules, [R.a("k"), R["a"](C.k)]) == ["duplicate-fact"]
    Program(rules).check([R.a(1), R.a("1")])


def test_program_facts_are_stated_once_but_data_may_replace_them():
    assert codes([R.a(1)[1.0], R.a(1)[2.0], R.h(X) <= R.a(X)]) == ["duplicate-fact"]
    Program([R.a(1)[1.0], R.h(X) <= R.a(X)]).check([R.a(1)[2.0]])


def test_one_fact_needs_no_list():
    assert Program([R.h(X) <= R.a(X)]).check(R.a(1)[1.0]) == []


def test_facts_may_come_from_a_generator():
    assert Program([R.h(X) <= R.a(X)]).check(R.a(i)[1.0] for i in range(3)) == []


@pytest.mark.parametrize(
    "fact",
    [R.a(1)["w"], R.a(1)[3,], ~R.a(1), R.a(1) + 1.0, R.special.leq(1, 2), "a(1)", 3, None, [1]],
    ids=repr,
)
def test_what_is_not_a_fact(fact):
    assert codes([R.h(X) <= R.a(X)], [fact]) == ["bad-fact"]


def test_a_named_value_is_data_like_any_other():
    Program([R.h(X) <= R.a(X)[3, 2]]).check([R.a(1)["mine" : [1.0, 2.0]]])


def test_one_name_is_one_shape():
    Program([R.h(X) <= R.a(X)["w":2, 2], R.g(X) <= R.h(X)["w" : [[1.0, 0.0], [0.0, 1.0]]]]).check()
    assert codes([R.h["w":2.0] <= R.a["w":2, 2]]) == ["shape-mismatch"]


def test_families_are_of_one_kind():
    domains = {V.H: 2, V.G: 3, V.K: 2}
    same = [R.q(V.H, X) <= R.x(X)[W.q(V.H)[2, 2]], R.k(V.K, X) <= R.x(X)[W.q(V.K)]]
    Program(same, domains=domains).check()
    for weight in (W.q[2, 2], W.q(V.H, V.G)[2, 2], W.q(V.G)[2, 2], W.q(0)[2, 2]):
        rules = [same[0], R.k(V.G, V.H, X) <= (R.x(X)[weight], R._n(V.G), R._n(V.H))]
        assert codes(rules, domains=domains) == ["family-mismatch"]


def test_a_domain_is_found_by_its_nearest_name():
    (error,) = refused([R.q(V.Head, X) <= R.x(X)[W.q(V.Head)[2, 2]]], domains={V.head: 2})
    assert error.code == "undeclared-domain"
    assert error.help == "did you mean `head`?"


def test_agg_terms_are_head_variables():
    rule = R.w(X, Y) <= R.a(X, Y)
    Program([rule | [F.softmax_agg(agg_terms=["Y"])], R.v(X) <= R.a(X, Y)]).check()
    Program([(R.w(X) <= R.a(X, Y)) | [F.softmax_agg]]).check()
    assert codes([rule | [F.softmax_agg(agg_terms=[V.Z, V.U])]]) == ["bad-agg-terms"]
    assert codes([rule | [F.sparsemax_agg(agg_terms=[])]]) == ["bad-agg-terms"]


def test_lists_after_a_line():
    rule = R.h(X) <= R.a(X)
    assert codes([rule, R.h / 1 | [F.max, F.min]]) == ["two-combinations"]
    assert codes([rule, R.h / 1 | [F.lse_agg]]) == ["bad-function"]
    assert codes([rule, R.h / 1 | [F.max], R.h / 1 | [F.tanh]]) == ["two-lines"]


@pytest.mark.parametrize(
    ("atom", "message"),
    [
        (R.special.add(X, 1), "`special.add` takes 3 terms, got 2"),
        (R.special.leq(X, 1, 2), "`special.leq` takes 2 terms, got 3"),
        (R.special._in(X), "`special.in` takes at least 2 terms, got 1"),
    ],
)
def test_specials_have_an_arity(atom, message):
    (error,) = refused([R.h(X) <= (R.a(X), atom)])
    assert (error.code, error.message) == ("arity-mismatch", message)
