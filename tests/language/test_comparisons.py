"""Comparisons of terms are conditions, in Python and in text."""

import operator

import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, V, W, graphs
from edgewise.passes.formula_patterns import formula_pattern

SIGNS = (operator.le, operator.lt, operator.ge, operator.gt, operator.eq, operator.ne)
SIDES = {
    "distance": lambda i, j: i - j,
    "back": lambda i, j: 2 + j - i,
    "apart": lambda i, j: abs(i - j),
    "mod": lambda i, j: (i - j) % 3,
    "apart mod": lambda i, j: abs(j - i) % 2,
    "sum": lambda i, j: i + 2 * j,
    "block": lambda i, j: i // 3 - j // 3,
    "rest": lambda i, j: i % j,
}
FACTS = [R.n(k)[float(k + 1)] for k in (-2, 0, 1, 2, 5, 7)] + [R.n("a")[1.0]]


def pairs(condition: object) -> Program:
    return Program([(R.h(V.I, V.J) <= (R.n(V.I), R.n(V.J), condition)) | [F.product]])


def by_python(sign, side, right) -> set[tuple[int, int]]:
    keys = (-2, 0, 1, 2, 5, 7)
    found = set()
    for i in keys:
        for j in keys:
            try:
                if sign(side(i, j), right):
                    found.add((i, j))
            except ZeroDivisionError:
                pass
    return found


@pytest.mark.parametrize("side", SIDES.values(), ids=SIDES)
@pytest.mark.parametrize("sign", SIGNS, ids=lambda sign: sign.__name__)
def test_a_comparison_holds_where_python_says_so(sign, side):
    for right in (-1, 0, 2):
        program = pairs(sign(side(V.I, V.J), right))
        expected = by_python(sign, side, right)
        solved = program.solve(FACTS)[R.h(V.X, V.Y)]
        assert {atom.terms for atom in solved} == expected
        model = program.compile(R.h)
        rows = model.rows(model.ground(facts=FACTS))
        assert {atom.terms for atom, _ in rows.items()} == expected
        assert Program.parse(program.text()) == program
        assert eval(repr(program), {"Program": Program, "R": R, "V": V, "F": F}) == program


@pytest.mark.parametrize("side", SIDES.values(), ids=SIDES)
@pytest.mark.parametrize("sign", SIGNS, ids=lambda sign: sign.__name__)
def test_a_pattern_of_a_formula_is_its_set(sign, side):
    i, j = torch.arange(9)[:, None], torch.arange(9)[None, :]
    for right in (-4, -1, 0, 1, 3):
        condition = sign(side(V.I, V.J), right)
        pattern = formula_pattern(condition.formula)
        if pattern is not None:
            pattern = pattern.T if condition.terms[0].name == "J" else pattern
            assert torch.equal(pattern.dense(9), sign(side(i, j), right))


def test_comparisons_of_a_score_are_fused():
    body = (R.x(V.J).T, R.x(V.I), V.J <= V.I, V.I - V.J <= 2, V.I // 4 == V.J // 4)
    program = Program(
        [
            (R.w(V.I, V.J) <= body) | [F.product, F.softmax_agg(agg_terms=[V.J])],
            (R.o(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product],
        ]
    )
    pattern = graphs.causal() & graphs.window(2) & graphs.blocks(4)
    x = torch.arange(20.0).reshape(10, 2).sin()
    model = program.compile(R.o)
    assert f"{pattern.count(10)} pairs" in str(model.explain(x=x))
    weights = (x @ x.T).masked_fill(~pattern.dense(10), -torch.inf).softmax(1)
    torch.testing.assert_close(model(x=x), weights @ x)


def test_an_equation_computes_a_key():
    program = Program(
        [
            R.h(V.K) <= (R.x(V.I), V.K == V.I + 1),
            R.g(V.K) <= (R.x(V.I), 10 - V.K == 2 * V.I - 1),
        ]
    )
    facts = [R.x(k)[float(k)] for k in range(3)]
    for output, expected in ((R.h, {(1,), (2,), (3,)}), (R.g, {(11,), (9,), (7,)})):
        assert {a.terms for a in program.solve(facts)[output(V.K)]} == expected
        model = program.compile(output)
        assert {a.terms for a, _ in model.rows(model.ground(facts=facts)).items()} == expected


def test_numbers_beyond_64_bits_are_exact():
    big = 1 << 39
    program = Program([R.h(V.I) <= (R.x(V.I), big * big < V.I * V.I * V.I)])
    facts = [R.x(1), R.x(big)]
    model = program.compile(R.h)
    assert [a.terms for a, _ in model.rows(model.ground(facts=facts)).items()] == [(big,)]
    assert [a.terms for a in program.solve(facts)[R.h(V.I)]] == [(big,)]


def test_equal_variables_stay_equal_in_python():
    assert bool(V.I == V.I)
    assert bool(V.I != V.J)
    assert V.I in (V.J, V.I)
    assert (V.I, V.J) == (V.I, V.J) != (V.J, V.I)
    assert {V.I: 1}[V.I] == 1
    assert [V.I, V.J].index(V.J) == 1
    assert R.a(V.I) == R.a(V.I) != R.a(V.J)
    assert not bool(V.I == "I")


LOST = {  # Python drops one of the two
    "and": lambda: V.I != V.J and V.J != V.K,
    "or": lambda: V.I == 1 or V.I == 2,
    "not": lambda: not V.I == V.J,  # noqa: SIM201
    "if": lambda: V.I if V.J == V.K else V.J,
    "a filter": lambda: [v for v in (V.I, V.J) if v != V.I],
    "a chain": lambda: V.I != V.J != V.K,
    "a chain that ends in an order": lambda: V.I == V.J <= V.K,
    "terms": lambda: R.a(V.I and V.J),
    "no term": lambda: R.a(not V.I),
    "names of terms": lambda: F.softmax_agg(agg_terms=[V.I or V.J]),
    "functions": lambda: [F.product and F.tanh],
    "either function": lambda: [F.relu or F.tanh],
    "lines": lambda: [(R.h / 1 | [F.tanh]) and (R.g / 1 | [F.relu])],
    "programs": lambda: Program([R.a(1)]) and Program([R.b(1)]),
    "weights": lambda: R.a(V.I)[W.a[2, 2] or W.b[2, 2]],
}


@pytest.mark.parametrize("write", LOST.values(), ids=LOST)
def test_nothing_is_lost_in_the_truth_of_what_rules_are_made_of(write):
    with pytest.raises(EdgewiseError) as caught:
        write()
    assert caught.value.code == "no-truth-value"


def test_values_are_equal_where_neither_is_less():
    equal = (R.a(V.I) >= R.b(V.I), R.b(V.I) >= R.a(V.I))
    program = Program([R.h(V.I) <= (R.x(V.I), *equal)])
    facts = [R.x(i) for i in range(3)] + [R.a(i)[float(i)] for i in range(3)]
    facts += [R.b(i)[1.0] for i in range(3)]
    assert [atom.terms for atom in program.solve(facts)[R.h(V.I)]] == [(1,)]
    model = program.compile(R.h)
    assert [atom.terms for atom, _ in model.rows(model.ground(facts=facts)).items()] == [(1,)]


MISUSES = {
    "chained": (lambda: 0 <= V.I <= 5, "no-truth-value"),
    "chained equality": (lambda: R.h(V.I) <= (R.a(V.I), V.I == V.J == 3), "no-truth-value"),
    "and": (lambda: (V.I < 3) and (V.I > 1), "no-truth-value"),
    "&": (lambda: (V.I < 3) & (V.I > 1), "bad-operator"),
    "& of equalities": (lambda: (V.I == 3) & (V.J != 1), "bad-operator"),
    "& beside a value": (lambda: R.a(V.I) & R._e(V.I), "bad-operator"),
    "& under a product": (lambda: (R.h <= R.a(1) & R.a(2)) | [F.product], "bad-operator"),
    ">= of a rule": (lambda: Program([R.h(V.I) >= R.a(V.I)]), "bad-head"),
    ">= of a rule and a tuple": (lambda: R.h(V.I) >= (R.a(V.I), R.b(V.I)), "bad-body"),
    ">= with functions": (lambda: (R.h(V.I) >= R.a(V.I)) | [F.relu], "missing-parentheses"),
    "a value": (lambda: R.a(V.I) + V.I, "bad-body"),
    "an atom": (lambda: V.I - R.a(V.I) <= 2, "bad-term"),
    "a float": (lambda: V.I - 0.5 <= 2, "bad-term"),
    "compared with a float": (lambda: V.I <= 0.5, "bad-term"),
    "division": (lambda: V.I / 2 == 1, "bad-operator"),
    "a term": (lambda: R.a(V.I + 1), "bad-term"),
    "unbound": (lambda: Program([R.h(V.I) <= (R.a(V.I), V.J - 1 < 2)]).check(), "unbound-variable"),
    "text chain": (lambda: Program.parse("h(I) :- a(I), 0 <= I <= 5."), "no-truth-value"),
    "text of no term": (lambda: Program.parse("h(I) :- a(I), I - <= 5."), "syntax-error"),
}  # fmt: skip


@pytest.mark.parametrize(("wrong", "code"), MISUSES.values(), ids=MISUSES)
def test_misuse_is_our_error(wrong, code):
    with pytest.raises(EdgewiseError) as caught:
        wrong()
    assert caught.value.code == code
    assert "<=" in caught.value.help or not code.startswith("missing")


def test_values_joined_by_an_ampersand_are_a_sum():
    assert (R.h <= R.a(1) & R.a(2)) == (R.h <= R.a(1) + R.a(2))
    assert ((R.h <= R.a(1) & R.a(2)) | [F.sum, F.relu]).functions == (F.sum, F.relu)


def test_no_value_compares_with_nan():
    with pytest.raises(EdgewiseError, match="NaN"):
        Program([R.h(V.I) <= (R.x(V.I), R.x(V.I) > float("nan"))])
