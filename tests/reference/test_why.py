"""Why an atom has its value: contributions re-aggregate to it, shares divide it."""

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise import EdgewiseError, F, Program, R, V, W, repeat
from edgewise.reference.evaluate import combine

AGGREGATIONS = [F.sum_agg, F.avg_agg, F.max_agg, F.min_agg, F.concat_agg, F.lse_agg, F.topk_agg(2)]
numbers = st.floats(-8, 8, allow_nan=False, width=32).filter(lambda x: x == 0 or abs(x) > 1e-3)


def column(values, aggregation, weight=None):
    """One head over the given values."""
    atom = R.a(V.Y) if weight is None else R.a(V.Y)[weight]
    program = Program([(R.h(V.X) <= (atom, R._edge(V.X, V.Y))) | [aggregation]])
    facts = [R.a(y)[value] for y, value in enumerate(values)]
    return program.solve([*facts, *(R.edge(0, y) for y in range(len(values)))])


def attention(n=4, d=3):
    program = Program(
        [
            R.q(V.I) <= R.x(V.I)[d, d],
            R.k(V.I) <= R.x(V.I)[d, d],
            R.d_k[1 / math.sqrt(d)].fixed(),
            (R.weights(V.I, V.J) <= (R.d_k, R.k(V.J).T, R.q(V.I)))
            | [F.product, F.softmax_agg(agg_terms=[V.J])],
            (R.out(V.I) <= (R.weights(V.I, V.J), R.x(V.J))) | [F.product],
        ]
    )
    torch.manual_seed(0)
    return program.solve([R.x(i)[torch.randn(d)] for i in range(n)], seed=0)


def shares(found):
    return [g.share for d in found.derivations for g in d.groundings]


@pytest.mark.parametrize("aggregation", AGGREGATIONS, ids=lambda f: f.name)
@given(values=st.lists(st.lists(numbers, min_size=2, max_size=2), min_size=1, max_size=5))
@settings(max_examples=20, deadline=None)
def test_contributions_reaggregate_and_shares_sum_to_one(aggregation, values):
    found = column(values, aggregation, weight=2.0).why(R.h(0))
    (derivation,) = found.derivations
    contributions = [g.contribution for g in derivation.groundings]
    torch.testing.assert_close(combine(aggregation, contributions), found.value)
    if aggregation.name in ("max_agg", "min_agg") or (
        aggregation.name != "lse_agg" and found.value.abs().sum() > 0
    ):
        assert sum(map(abs, shares(found))) == pytest.approx(1)


def test_the_share_of_a_sum_is_the_part_that_comes_from_it():
    assert shares(column([3.0, 2.0, -1.0], F.sum_agg).why(R.h(0))) == pytest.approx(
        [1 / 2, 1 / 3, -1 / 6]
    )
    assert shares(column([3.0, 1.0], F.avg_agg).why(R.h(0))) == [0.75, 0.25]
    assert shares(column([1.0, -1.0], F.sum_agg).why(R.h(0))) == [None, None]
    assert shares(column([5.0, 7.0], F.count_agg).why(R.h(0))) == [0.5, 0.5]


def test_the_winners_of_a_maximum_share_it_equally():
    assert shares(column([2.0, 2.0, 1.0], F.max_agg).why(R.h(0))) == [0.5, 0.5, 0]
    assert shares(column([0.0, 0.0, 1.0], F.min_agg).why(R.h(0))) == [0.5, 0.5, 0]
    assert shares(column([[3.0, 0.0], [0.0, 4.0]], F.max_agg).why(R.h(0))) == [9 / 25, 16 / 25]


def test_a_softmax_shows_its_group():
    solution = attention()
    (derivation,) = solution.why(R.weights(1, 2)).derivations
    assert [m.atom for m in derivation.group] == [R.weights(1, j) for j in range(4)]
    assert sum(m.weight.item() for m in derivation.group) == pytest.approx(1)
    assert derivation.weight.item() == pytest.approx(solution[R.weights(1, 2)].item())
    assert derivation.groundings[0].contribution == derivation.group[2].score
    used = [atom for atom, _ in derivation.groundings[0].used]
    assert used == [R.d_k, R.k(2), R.q(1)]


def test_a_softmax_without_terms_shares_by_weight():
    found = column([0.0, math.log(3.0)], F.softmax_agg).why(R.h(0))
    assert shares(found) == pytest.approx([0.25, 0.75])


def test_a_fact_is_a_fact():
    found = attention().why(R.x(1))
    assert not found.derivations
    assert repr(found).endswith("fact")


def test_several_rules_and_the_line():
    program = Program([R.h(V.X) <= R.a(V.X), R.h(V.X)[3.0] <= R.b(V.X), R.h / 1 | [F.sum, F.tanh]])
    found = program.solve([R.a(0)[1.0], R.b(0)[1.0]]).why(R.h(0))
    assert [d.value.item() for d in found.derivations] == [1, 3]
    assert [d.share for d in found.derivations] == [0.25, 0.75]
    assert math.tanh(4) == pytest.approx(found.value.item())
    assert "combined by R.h/1 | [F.sum, F.tanh]" in repr(found)


PATHS = [R.d(0)[0.0], R.e(0, 1)[1.0], R.e(1, 2)[1.0], R.e(0, 2)[5.0], R.e(2, 0)[1.0]]


def test_a_fixed_point():
    rule = (R.d(V.Y) <= (R.d(V.X), R.e(V.X, V.Y))) | [F.min_agg]
    solution = Program([rule, R.d / 1 | [F.min]]).solve(PATHS)
    found = solution.why(R.d(2))
    assert {g.assignment: g.share for g in found.derivations[0].groundings} == {
        (("Y", 2), ("X", 0)): 0,
        (("Y", 2), ("X", 1)): 1,
    }
    start = solution.why(R.d(0))
    assert (start.fact.item(), start.fact_share, start.derivations[0].share) == (0, 1, 0)


@pytest.mark.parametrize("rounds", [1, 2, 3, 4])
def test_rounds_are_explained_by_the_round_before(rounds):
    step = R.p(V.Y) <= (R.p(V.X)[2.0], R._e(V.X, V.Y))
    program = Program([R.p(V.Y) <= R.s(V.Y), step], rounds=rounds)
    solution = program.solve([R.s(1)[1.0], R.e(1, 2), R.e(2, 1)])
    for atom in solution[R.p(V.X)]:
        found = solution.why(atom)
        assert sum(d.value.item() for d in found.derivations) == found.value.item()


def test_recursion_level_by_level():
    rnn = (R.h(V.T) <= (R.h(V.S)[0.5], R.x(V.T), R.special.next(V.S, V.T))) | [F.tanh]
    solution = Program([rnn]).solve([R.h(0)[1.0], R.x(1)[1.0], R.x(2)[1.0]])
    (grounding,) = solution.why(R.h(2)).derivations[0].groundings
    assert [atom for atom, _ in grounding.used] == [R.h(1), R.x(2)]
    assert grounding.contribution == solution[R.h(2)]


def test_a_stack_is_asked_by_its_output():
    stack = repeat(lambda x: [R.h(V.I) <= x(V.I)[2.0]], 3)(R.x)
    found = Program([stack]).solve([R.x(1)[1.0]]).why(stack.out(1))
    assert found.atom == R["layer.2.h"](1)
    assert found.value.item() == 8


def test_a_rule_is_shown_as_written():
    rule = (R.h(V.X)[2.0] <= (R.a(V.X)[3.0], R._b(V.X))) | [F.relu]
    found = Program([R.h(V.X) <= R.b(V.X), rule]).solve([R.a(1)[1.0], R.b(1)[1.0]]).why(R.h(1))
    assert found.derivations[1].rule == rule
    assert repr(rule) in repr(found).splitlines()
    assert [d.value.item() for d in found.derivations] == [1, 6]


def test_text_html_and_data():
    found = column([float(x) for x in range(30)], F.sum_agg).why(R.h(0))
    lines = repr(found).splitlines()
    assert lines[0] == "R.h(0) = 435"
    assert lines[-1].strip() == "… 10 more"
    column_of_y = lines[3].index("Y")
    assert [line[column_of_y : column_of_y + 2] for line in lines[4:7]] == ["29", "28", "27"]
    data = json.loads(json.dumps(found.to_json()))
    assert data["derivations"][0]["groundings"][29]["used"] == [{"atom": "a(29)", "value": 29.0}]
    hostile = Program([R.h(V.X) <= R.a(V.X)]).solve([R.a("<script>")[1.0]]).why(R.h("<script>"))
    assert "<script>" not in hostile._repr_html_()
    assert attention().why(R.weights(0, 1))._repr_html_().count("<table") == 2


@pytest.mark.parametrize(
    ("query", "code"),
    [
        (R.out(9), "not-derivable"),
        (R.nothing(1), "not-derivable"),
        (R.out(1, 2), "arity-mismatch"),
        (R.out(V.X), "bad-query"),
        (R.nothing(V.X), "not-derivable"),
        ("out", "bad-query"),
    ],
)
def test_errors(query, code):
    with pytest.raises(EdgewiseError) as caught:
        attention().why(query)
    assert caught.value.code == code
    assert caught.value.help


def test_looking_changes_nothing():
    solution = attention()
    before = dict(solution.computed)
    solution.why(R.out(0))
    assert solution.computed == before
    solution[R.out(0)].sum().backward()
    assert all(w.grad is not None for w in solution.weights.values())


def test_the_weight_in_use_is_shown_not_the_one_it_starts_from():
    rule = R.h(V.X)[0.5] <= (R.a(V.X)["w":2.0], R.b(V.X)[[[1.0, 2.0]]], W.c(V.H)[3.0])
    program = Program([rule], domains={V.H: 2})
    facts = [R.a(0)[1.0], R.b(0)[[1.0, -2.0]]]
    weights = program.weights() | {"w": torch.tensor(2.71828), "h.head": torch.tensor(0.25)}
    shown = str(program.solve(facts, weights=weights).why(R.h(0))).splitlines()[1]
    assert shown == ('R.h(V.X)[0.25] <= (R.a(V.X)["w": 2.718], R.b(V.X)[[[1.0, 2.0]]], W.c(V.H))')
    model = program.compile(R.h)
    with torch.no_grad():
        model.weight("w").fill_(-1.5)
    assert '["w": -1.5]' in str(model.why(R.h(0), model.ground(facts=facts)))
