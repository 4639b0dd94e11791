"""Shapes that a check refuses are shapes that evaluation refuses."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

import edgewise.reference as reference
from edgewise import F, Program
from edgewise.checks.shapes import mismatched_shapes
from edgewise.language import nodes
from tests.properties.evaluable import Case, evaluable

FUNCTIONS = [
    [F.product], [F.elproduct], [F.concat], [F.concat(axis=0)], [F.cossim], [F.softmax_comb],
    [F.crossum], [F.count], [F.max], [F.transp], [F.slice(rows=(0, 2))], [F.slice(cols=(1, 2))],
    [F.reshape((2, 1))], [F.reshape(6)], [F.softmax_agg], [F.concat_agg], [F.count_agg], [],
]  # fmt: skip
VALUES = [2.0, (1.0, 2.0), ((1.0, 2.0),), ((1.0, 2.0), (3.0, 4.0)), ((1.0, 0.0, 2.0),) * 2]


@st.composite
def broken(draw: Any) -> Case:
    """A program that evaluated, with other functions in some rules and other values of weights."""
    case = draw(evaluable())

    def other(item: Any) -> Any:
        weight = getattr(item, "weight", None)
        if isinstance(weight, nodes.Weight) and not weight.keys and draw(st.booleans()):
            fresh = nodes.Weight(value=draw(st.sampled_from(VALUES)), place=item.place)
            item = replace(item, weight=fresh)
        if isinstance(item, nodes.Apply):
            item = replace(item, operands=tuple(map(other, item.operands)))
        return item

    def changed(statement: Any) -> Any:
        if not isinstance(statement, nodes.Rule):
            return statement
        rule = replace(statement, body=tuple(map(other, statement.body)))
        if draw(st.integers(0, 2)) == 0:
            rule = replace(rule, functions=tuple(draw(st.sampled_from(FUNCTIONS))))
        return rule

    program = Program(
        [changed(statement) for statement in case.program.flat],
        aggregation=case.program.aggregation,
        domains=dict(case.program.domains),
        rounds=8,  # enough for every rule on a cycle to be evaluated
    )
    return Case(program, case.facts, case.queries)


@settings(max_examples=60)
@given(broken())
def test_rules_that_evaluate_have_no_shape_errors(case: Case) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "check", lambda program, facts: [])
        try:
            solution = case.program.solve(case.facts)
        except Exception:  # whatever evaluation refuses, a check may refuse
            reject()
    fired = [
        rule.rule for rules in solution.evaluator.rules.values() for rule in rules if rule.heads
    ]
    program = Program(
        [*fired, *case.program.facts, *case.program.lines],
        aggregation=case.program.aggregation,
        domains=dict(case.program.domains),
    )
    assert list(mismatched_shapes(program, tuple(case.facts))) == []
    assert list(mismatched_shapes(program, ())) == []
