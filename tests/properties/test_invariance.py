"""What must not matter: the order of facts, the names of constants, conditions that hold."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from edgewise import Program, R
from edgewise.language import nodes
from edgewise.language.statements import atoms
from edgewise.language.terms import variables
from tests.properties.evaluable import INPUTS, Case, Drawn, answers, evaluable, with_gradients
from tests.properties.evaluable_conditions import Conditions

pytestmark = pytest.mark.filterwarnings("ignore::edgewise.EdgewiseWarning")


def assert_same(found: dict[nodes.Atom, Tensor], expected: dict[nodes.Atom, Tensor]) -> None:
    """The same atoms in the same order, with values equal to the last bit."""
    assert list(found) == list(expected)
    for atom, value in found.items():
        assert torch.equal(value, expected[atom]), atom


def gradients(case: Case, facts: list[nodes.Atom]) -> dict[nodes.Atom, Tensor]:
    """The gradient of the sum of all answers, by fact."""
    made, leaves = with_gradients(facts)
    valued = [nodes.Atom(a.relation, a.terms) for a in made if a.weight is not None]
    solution = case.program.solve(made, seed=0)
    total = sum((v.sum() for v in answers(solution, case.queries).values()), torch.zeros(()))
    if not leaves or not total.requires_grad:
        return {}
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    return {a: g for a, g in zip(valued, found, strict=True) if g is not None}


@given(evaluable(), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=100)
def test_permuting_facts_changes_nothing(case, random):
    shuffled = list(case.facts)
    random.shuffle(shuffled)
    ours, theirs = (case.program.solve(facts, seed=0) for facts in (case.facts, shuffled))
    assert_same(answers(ours, case.queries), answers(theirs, case.queries))
    before, after = gradients(case, case.facts), gradients(case, shuffled)
    assert set(before) == set(after)
    for atom, gradient in before.items():
        torch.testing.assert_close(gradient, after[atom])


# the keys of the cases in their order, and other constants in the same order
CONSTANTS = (-2, 0, 1, 2, 3, 4, 9, "a", "b", "p", "q")
NAMES = st.sets(st.integers(-9, 99), min_size=7, max_size=7).map(sorted)
MIXED = st.sets(st.integers(-9, 99), min_size=2, max_size=2).map(sorted)
STRINGS = st.sets(st.text("abcXYZ_é", max_size=3), min_size=9, max_size=9).map(sorted)
renamings = st.one_of(
    NAMES.map(lambda names: [*names, "c", "x", "y", "z"]),
    st.tuples(MIXED, STRINGS).map(lambda pair: [*pair[0], *pair[1]]),
)


def renamed(node, names: dict):
    """The node with every constant that is a key renamed."""
    match node:
        case tuple() | list():
            return type(node)(renamed(item, names) for item in node)
        case nodes.Atom() | nodes.SpecialAtom():
            return replace(node, terms=tuple(names.get(t, t) for t in node.terms))
        case nodes.Apply():
            return replace(node, operands=renamed(node.operands, names))
        case nodes.Rule():
            return replace(node, head=renamed(node.head, names), body=renamed(node.body, names))
        case nodes.Fact():
            return nodes.Fact(renamed(node.atom, names))
    return node


@given(evaluable(arithmetic=False), renamings)
@settings(deadline=None, max_examples=100)
def test_renaming_constants_in_their_order_changes_nothing(case, others):
    names = dict(zip(CONSTANTS, others, strict=True))
    ranges = {k: range(v) if isinstance(v, int) else v for k, v in case.program.domains}
    domains = {name: [names[c] for c in domain] for name, domain in ranges.items()}
    program = replaced(case.program, renamed(case.program.statements, names), domains)
    ours = case.program.weights(seed=0)
    theirs = dict(zip(program.weights(), ours.values(), strict=True))  # that of `g(1)` is renamed
    before = answers(case.program.solve(case.facts, weights=ours), case.queries)
    after = answers(program.solve(renamed(case.facts, names), weights=theirs), case.queries)
    assert_same(after, {renamed(atom, names): value for atom, value in before.items()})


def replaced(program: Program, statements, domains=None) -> Program:
    return Program(
        list(statements),
        aggregation=program.aggregation,
        domains=domains or dict(program.domains),
        rounds=program.rounds,
    )


def groundings(program: Program, facts: list[nodes.Atom], relation: str) -> set:
    """Rule by rule, the groundings of a relation."""
    solution = program.solve(facts, seed=0)
    return {
        (at, tuple(bound.items()))
        for at, rule in enumerate(solution.evaluator.rules[relation])
        for bounds in rule.heads.values()
        for bound in bounds
    }


@given(st.data())
@settings(deadline=None, max_examples=100)
def test_a_condition_never_adds_groundings(data):
    case = data.draw(evaluable(most_rules=3))
    statements = list(case.program.statements)
    rules = [at for at, s in enumerate(statements) if isinstance(s, nodes.Rule)]
    if not rules:
        return
    at = data.draw(st.sampled_from(rules))
    rule = statements[at]
    known = {v.name for a in atoms(rule) if isinstance(a, nodes.Atom) for v in variables(a.terms)}
    drawn = Conditions(Drawn(data.draw), list(INPUTS), bound={name: True for name in sorted(known)})
    more = data.draw(st.sampled_from([drawn.hidden, drawn.negated, drawn.compared, drawn.computed]))
    statements[at] = replace(rule, body=(*rule.body, *more()))
    relation = rule.head.relation
    before = groundings(case.program, case.facts, relation)
    after = groundings(replaced(case.program, statements), case.facts, relation)
    assert after <= before


@given(evaluable())
@settings(deadline=None, max_examples=60)
def test_a_condition_that_always_holds_changes_nothing(case):
    """`R._yes` is a fact: beside every body it neither adds nor removes anything."""
    more = [
        replace(s, body=(*s.body, R._yes(7))) if isinstance(s, nodes.Rule) else s
        for s in case.program.statements
    ]
    before = answers(case.program.solve(case.facts, seed=0), case.queries)
    program = replaced(case.program, [*more, R.yes(7)[1.0].fixed()])
    assert_same(answers(program.solve(case.facts, seed=0), case.queries), before)
