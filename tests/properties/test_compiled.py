"""Random programs: compiled = reference, values and gradients.

`EDGEWISE_FUZZ=10000` is the long profile of CI: that many programs.
"""

import json
import os
import warnings

import pytest
import torch
from hypothesis import given, settings

from edgewise import EdgewiseError
from edgewise.errors import EdgewiseWarning
from edgewise.language import nodes
from edgewise.passes import ON_RULES
from edgewise.pipeline import PASSES
from edgewise.plan.lower import lower
from tests.properties.evaluable import evaluable

EXAMPLES = int(os.environ.get("EDGEWISE_FUZZ", "100"))
os.environ.setdefault("EDGEWISE_CHECK", "1")  # every plan, after every pass


def outcome(compute):
    """What a computation gives: its values, or the code of its error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EdgewiseWarning)
            return compute()
    except EdgewiseError as error:
        return error.code


def solved(program, facts, weights, relation, arity):
    query = nodes.Atom(relation, tuple(nodes.Variable(f"X{i}") for i in range(arity)))
    solution = program.solve(facts, weights=weights)
    if arity:
        return dict(solution[query])
    return {query: solution[query]} if query in solution else {}


def compiled(program, facts, weights, relation, arity, without=()):
    model = program.compile(nodes.Atom(relation), dtype=torch.float64, without=without).eval()
    for name in model._paths:
        if name in weights:
            with torch.no_grad():
                model.weight(name).copy_(weights[name])
    data = model.ground(facts=facts)
    first = dict(model.rows(data))
    dict(model.rows(data))  # written down here, read from there on
    values = dict(model.rows(data))
    for atom, value in first.items():
        torch.testing.assert_close(values[atom], value, atol=0, rtol=0, equal_nan=True)
    return values, model


def gradients(values, leaves):
    total = sum((v.sum() for v in values.values()), torch.zeros((), dtype=torch.float64))
    if not total.requires_grad:
        return [None] * len(leaves)
    return torch.autograd.grad(total, leaves, allow_unused=True)


def is_flat(program, facts, weights):
    """Whether a standard deviation is of values equal up to rounding: its gradient is noise."""
    spread = {
        rule.head.relation: (len(rule.head.terms), rule.head.weight is not None)
        for rule in program.rules
        if any(f.name == "std_agg" for f in (*rule.functions, program.aggregation))
    }
    lined = {line.relation for line in program.lines}
    return any(
        weighted
        or relation in lined
        or any(v.abs().min() < 1e-6 for v in solved(program, facts, weights, relation, n).values())
        for relation, (n, weighted) in spread.items()
    )


def assert_same(case, without=()):
    program, facts, _ = case
    relation, arity = next((r.head.relation, len(r.head.terms)) for r in reversed(program.rules))
    weights = program.weights(seed=0)
    expected = outcome(lambda: solved(program, facts, weights, relation, arity))
    found = outcome(lambda: compiled(program, facts, weights, relation, arity, without))
    if isinstance(expected, str) or isinstance(found, str):
        if isinstance(expected, str) and not isinstance(found, str):
            return  # the error lies in a relation that the output does not need
        if found == "shape-mismatch":
            return  # a compiled relation has values of one shape
        assert found == expected
        return
    values, model = found
    assert list(values) == list(expected)
    for atom, value in expected.items():
        torch.testing.assert_close(values[atom], value, atol=1e-9, rtol=1e-9, equal_nan=True)
    if outcome(lambda: is_flat(program, facts, weights)):
        return
    names = [n for n in model._paths if n in weights]
    ours = gradients(values, [model.weight(n) for n in names])
    theirs = gradients(expected, [weights[n] for n in names])
    for name, a, b in zip(names, ours, theirs, strict=True):
        a = torch.zeros_like(weights[name]) if a is None else a
        b = torch.zeros_like(weights[name]) if b is None else b
        torch.testing.assert_close(a, b, atol=1e-8, rtol=1e-8, equal_nan=True)


def compare_many(examples, without=()):
    """How many random programs were compared."""
    count = 0

    @given(evaluable())
    @settings(deadline=None, max_examples=examples)
    def compare(case):
        nonlocal count
        count += 1
        assert_same(case, without)

    compare()
    return count


def test_compiled_is_the_reference(capsys):
    count = compare_many(EXAMPLES)
    with capsys.disabled():
        print(f"\n{count:,} random programs: compiled = reference, values and gradients")


@pytest.mark.parametrize("name", [step.name for step in PASSES])
def test_without_a_pass_it_is_the_reference(name):
    compare_many(EXAMPLES // 5, without=(name,))


@given(evaluable())
@settings(deadline=None, max_examples=EXAMPLES // 2)
def test_a_pass_changes_nothing_the_second_time(case):
    plan = lower(case.program, nodes.Atom(case.program.rules[-1].head.relation))
    for step in ON_RULES:
        plan = step.run(plan)
        assert step.run(plan) == plan, f"{step.name} twice"


@given(evaluable())
@settings(deadline=None, max_examples=EXAMPLES // 5)
def test_what_is_said_about_it_is_what_it_computes(case):
    program, facts, _ = case
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EdgewiseWarning)
        relation = nodes.Atom(program.rules[-1].head.relation)
        model = program.compile(relation, dtype=torch.float64).eval()
    try:
        data = model.ground(facts=facts)
        values = dict(model.rows(data))
    except EdgewiseError:
        return
    assert json.dumps(model.explain(data, json=True))
    assert repr(model.explain(data)) == repr(model.explain(data))
    assert repr(model.profile(data, backward=True))
    for atom in list(values)[:1]:
        torch.testing.assert_close(
            model.why(atom, data).value, values[atom].detach(), equal_nan=True
        )
