"""Slips in rules as people print them: a namesake, a trained constant, a quoted variable."""

import pytest
import torch

from edgewise import EdgewiseError, EdgewiseWarning, F, Program, R, V

ENCODER = [
    R.norm1(V.I) <= R.x(V.I)[4, 4],
    R.ffn(V.I) <= R.norm(V.I)[4, 4],
    R.norm2(V.I) <= (R.ffn(V.I), R.norm(V.I)),
]


def test_a_missing_relation_names_the_one_that_is_derived_before_it():
    with pytest.raises(EdgewiseError) as caught:
        Program(ENCODER).check()
    assert caught.value.code == "misspelt-relation"
    assert "R.norm1" in caught.value.help
    assert "norm2" not in caught.value.message + caught.value.help


@pytest.mark.parametrize(
    "rules",
    [
        [R.x1(V.I) <= R.x(V.I)[4, 4], R.x2(V.I) <= R.x1(V.I)[4, 4]],  # x is an input
        [R.h1(V.I) <= R.x(V.I), R.h2(V.I) <= R.h1(V.I)],
        [R.edge1(V.I) <= R.x(V.I), R.out(V.I) <= (R._edge(V.I, V.J), R.x(V.J))],  # other terms
        [R.x1(V.I) <= R.x(V.I)],
    ],
)
def test_inputs_may_have_the_stem_of_what_they_derive(rules):
    assert Program(rules).check() == []


def test_a_constant_that_would_be_trained_is_a_warning():
    rule = (R.h(V.I) <= (R.d_k, R.x(V.I))) | [F.product]
    (warning,) = Program([R.d_k[0.125], rule]).check()
    assert warning.code == "learnable-constant"
    assert "`R.d_k[0.125].fixed()`" in warning.help
    for fact in (R.d_k[0.125].fixed(), R.d_k["scale":0.125], R.d_k[1.0], R.d_k[[0.5, 0.5]]):
        assert Program([fact, rule]).check() == []


def test_compiling_warns_of_a_constant_that_would_be_trained():
    rules = [R.d_k[0.125], (R.h(V.I) <= (R.d_k, R.x(V.I))) | [F.product], R.g(V.I) <= R.typo(V.I)]
    with pytest.warns(EdgewiseWarning, match=r"(?s)learnable-constant.*fixed\(\)") as found:
        Program(rules).compile(R.h)
    assert (len(found), found[0].filename) == (1, __file__)
    Program([R.d_k[0.125].fixed(), *rules[1:]]).compile(R.h)  # warnings are errors here


@pytest.mark.parametrize(
    "write",
    [
        lambda a, b: R.h(V.I) <= (a, b) | F.product,
        lambda a, b: R.h(V.I) <= (a, b | [F.product]),
        lambda a, b: R.h(V.I) <= a | [F.product],
        lambda a, b: (R.h(V.I) <= a, b) | F.product,
    ],
)
def test_functions_of_something_that_is_not_a_rule(write):
    """A tuple or-ed with a list is between Python's own types: no object of ours sees it."""
    with pytest.raises(EdgewiseError) as caught:
        write(R.a(V.I), R.b(V.I))
    assert caught.value.code == "missing-parentheses"
    with pytest.raises(TypeError, match="'tuple' and 'list'"):
        (R.a(V.I), R.b(V.I)) | [F.product]


def test_a_string_with_the_name_of_a_variable_is_a_warning():
    (warning,) = Program([R.h(V.I) <= (R.x(V.I), R.y("I"))]).check()
    assert (warning.code, "V.I" in warning.help) == ("likely-variable", True)
    rules = Program([R.h(V.I) <= (R.x(V.I), R.y("a"))])
    assert rules.check() == []


def test_a_name_with_an_underscore_is_hidden():
    assert R["_edge"](V.I, V.J) == R._edge(V.I, V.J)
    assert R["edge"] == R.edge


def test_outputs_of_pairs_suggest_rows():
    model = Program([R.h(V.I, V.J) <= (R.x(V.I), R._x(V.J), V.I < V.J)]).compile(R.h)
    with pytest.raises(EdgewiseError, match=r"model.rows\(...\)"):
        model(x=torch.ones(3, 1))


def test_explain_shows_the_last_call_with_keys():
    model = Program([R.h(V.I) <= (R.x(V.J), R._e(V.I, V.J))]).compile(R.h, fill=0.0)
    model(x=torch.ones(4, 1), e=torch.tensor([[0, 1, 2], [1, 2, 3]]))
    assert "3 groundings" in str(model.explain(stage="kernels"))


def test_suggestions_are_python():
    with pytest.raises(EdgewiseError, match=r"R.special._in"):
        R.special.inn  # noqa: B018
    with pytest.raises(EdgewiseError, match=r'compile\(R\["a.h"\]\)'):
        Program([R["a.h"](V.X) <= R.x(V.X)]).compile(R["a.h"](V.X, V.Y))


def test_a_capital_letter_in_quotes_is_likely_a_variable():
    (first, _) = Program([R.h("I") <= R.x("I")]).check()
    assert (first.code, first.help) == ("likely-variable", "did you mean `V.I`?")
    assert not Program([R.h("I") <= R.x("I"), R.x("I")[1.0]]).check()  # it is a key
    assert not Program([R.h("ann") <= R.x("ann")]).check()
