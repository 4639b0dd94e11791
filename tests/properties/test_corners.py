"""Corners: no facts, groups of one, repeated variables, one key twice."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise import EdgewiseError, F, Program, R, V
from edgewise.language import nodes
from edgewise.language.statements import atoms, is_added
from tests.properties.evaluable import answers, evaluable, with_gradients

pytestmark = pytest.mark.filterwarnings("ignore::edgewise.EdgewiseWarning")

AGGREGATIONS = (
    F.sum_agg,
    F.avg_agg,
    F.max_agg,
    F.min_agg,
    F.median_agg,
    F.lse_agg,
    F.topk_agg(1),
    F.topk_agg(9),
)


def replaced(program: Program, rounds: int) -> Program:
    statements, domains = list(program.statements), dict(program.domains)
    return Program(statements, aggregation=program.aggregation, domains=domains, rounds=rounds)


def key(terms, bound):
    return tuple(bound.get(t.name) if isinstance(t, nodes.Variable) else t for t in terms)


@given(evaluable(), st.booleans())
@settings(deadline=None, max_examples=80)
def test_every_grounding_satisfies_its_body(case, empty):
    """What a rule was applied to holds, what it denies does not; also where no facts are given.

    With enough rounds, that is: too few leave atoms without a value that conditions still see.
    """
    program = replaced(case.program, rounds=9)
    solution = program.solve([] if empty else case.facts, seed=0)
    holding = {nodes.Atom(*atom) for atom in solution.values_by_atom}
    for rules in solution.evaluator.rules.values():
        for rule in rules:
            for head, bounds in rule.heads.items():
                if not is_added(rule.rule.head.relation):  # a selection may select nothing
                    assert nodes.Atom(rule.rule.head.relation, head) in holding
                for bound in bounds:
                    assert_satisfied(rule.rule, bound, holding)


def assert_satisfied(rule, bound, holding) -> None:
    for atom in atoms(rule):
        if isinstance(atom, nodes.Atom) and None not in key(atom.terms, bound):
            found = nodes.Atom(atom.relation, key(atom.terms, bound)) in holding
            assert found != atom.negated


@given(evaluable())
@settings(deadline=None, max_examples=60)
def test_every_value_and_gradient_is_finite(case):
    facts, leaves = with_gradients(case.facts)
    solution = case.program.solve(facts, seed=0)
    values = answers(solution, case.queries).values()
    assert all(value.isfinite().all() for value in values)
    learnable = [*leaves, *solution.weights.values()]
    total = sum((value.sum() for value in values), torch.zeros(()))
    if total.requires_grad:
        found = torch.autograd.grad(total, learnable, allow_unused=True)
        assert all(gradient is None or gradient.isfinite().all() for gradient in found)


@given(evaluable(), st.integers(0, 99))
@settings(deadline=None, max_examples=40)
def test_solving_twice_gives_the_same(case, seed):
    first, second = (case.program.solve(case.facts, seed=seed) for _ in range(2))
    assert list(first) == list(second)
    assert all(torch.equal(first[atom], second[atom]) for atom in first)


@pytest.mark.parametrize("aggregation", AGGREGATIONS, ids=repr)
@pytest.mark.parametrize("value", [2.5, [1.0, -3.0], [[1.0, 2.0], [3.0, 4.0]]])
def test_a_group_of_one_is_itself(aggregation, value):
    solution = Program([(R.h(V.X) <= R.a(V.X, V.Y)) | [aggregation]]).solve([R.a(0, 1)[value]])
    torch.testing.assert_close(solution[R.h(0)], torch.tensor(value, dtype=torch.float64))


def test_a_group_of_one_has_no_spread_and_all_the_weight():
    def rule(aggregation):
        return (R.h(V.X, V.Y) <= R.a(V.X, V.Y)) | [aggregation]

    facts, (leaf,) = with_gradients([R.a(0, 1)[3.0]])
    for aggregation in (F.softmax_agg, F.sparsemax_agg):
        weight = Program([rule(aggregation(agg_terms=[V.Y]))]).solve(facts)[R.h(0, 1)]
        assert weight.item() == 1
    spread = Program([(R.h(V.X) <= R.a(V.X, V.Y)) | [F.std_agg]]).solve(facts)[R.h(0)]
    assert spread.item() == 0
    assert torch.autograd.grad(spread, leaf)[0].item() == 0
    assert Program([(R.h <= R.a(V.X, V.Y)) | [F.count_agg]]).solve(facts)[R.h].item() == 1


@given(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3))))
@settings(deadline=None, max_examples=30)
def test_a_repeated_variable_is_one_value(pairs):
    program = Program(
        [
            R.loop(V.X) <= R.e(V.X, V.X),
            R.twice(V.X, V.X) <= R._e(V.X, V.Y),
            R.same(V.X, V.Y) <= (R._e(V.X, V.Y), R.special.eq(V.X, V.Y)),
        ]
    )
    solution = program.solve([R.e(i, j)[i + 10.0 * j] for i, j in pairs])
    loops = {(i,) for i, j in pairs if i == j}
    assert {a.terms for a in solution[R.loop(V.X)]} == loops
    assert {a.terms for a in solution[R.twice(V.A, V.B)]} == {(i, i) for i, _ in pairs}
    assert {a.terms for a in solution[R.same(V.A, V.A)]} == {(i, i) for (i,) in loops}


@given(evaluable(), st.data())
@settings(deadline=None, max_examples=30)
def test_one_key_twice_is_refused(case, data):
    if not case.facts:
        return
    again = data.draw(st.sampled_from(case.facts))
    with pytest.raises(EdgewiseError) as caught:
        case.program.solve([*case.facts, again])
    assert {error.code for error in caught.value.errors} == {"duplicate-fact"}


def test_one_and_its_name_are_two_keys():
    solution = Program([R.h(V.X) <= R.a(V.X)]).solve([R.a(1)[1.0], R.a("1")[2.0], R.a(-1)[3.0]])
    assert [atom.terms for atom in solution[R.h(V.X)]] == [(-1,), (1,), ("1",)]


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        (R.special.eq(V.X, 2), [0, 1, 3]),
        (R.special.next(V.X, 2), [0, 2, 3]),
        (R.special.sub(V.X, 2, 1), [0, 1, 2]),
        (R.special.mod(3, 2, V.X), [0, 2, 3]),
    ],
    ids=["eq", "next", "sub", "mod"],
)
def test_a_negated_special_filters_and_computes_nothing(condition, kept):
    """A negated predicate that could compute its variable waits until an atom binds it."""
    solution = Program([R.h(V.X) <= (R.a(V.X), ~condition)]).solve([R.a(i) for i in range(4)])
    assert [atom.terms[0] for atom in solution[R.h(V.X)]] == kept
