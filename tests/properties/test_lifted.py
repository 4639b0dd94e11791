"""Equal rows computed once: by class = row by row = the reference, values and gradients."""

import os
import warnings

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from edgewise import EdgewiseError, F, Program, R, V, W, ragged, rows
from edgewise.errors import EdgewiseWarning
from edgewise.language import nodes
from edgewise.language.statements import atoms
from tests.properties.evaluable import evaluable
from tests.properties.test_compiled import gradients, is_flat, outcome, solved
from tests.properties.test_inputs import GRAPHS

EXAMPLES = int(os.environ.get("EDGEWISE_FUZZ", "100"))
LIFT = "lift equal rows"
MORE = {  # beyond the programs over x and edges: order, families, numbers, facts, two groundings
    "in order": [(R.out(V.I) <= (R.x(V.J), R._edge(V.J, V.I), R._pair(V.I))) | [F.concat_agg]],
    "std": [(R.out(V.I) <= (R.x(V.J)[2, 2], R._edge(V.J, V.I))) | [F.std_agg]],
    "lse": [(R.out(V.I) <= (R.x(V.J)[2, 2], R._edge(V.J, V.I))) | [F.lse_agg]],
    "least": [(R.out(V.I) <= (R.x(V.J)[2, 2], R._edge(V.J, V.I))) | [F.min_agg]],
    "a family": [R.out(V.I) <= (R.x(V.I)[W.u(V.T)[3, 2]], R._kind(V.I, V.T))],
    "numbers": [
        (R.out(V.I) <= (R.x(V.J), R._edge(V.J, V.I), R.special.max_eval(V.I, 2))) | [F.product]
    ],
    "only conditions": [R.out(V.I)[3,] <= (R._edge(V.J, V.I), R._edge(V.I, V.J))],
    "deep": [
        (R.g(V.I)[2, 2] <= (R.x(V.J)[2, 2], R._edge(V.J, V.I))) | [F.tanh],
        R.g(V.I) <= R.x(V.I)[2, 2],
        R.g / 1 | [F.relu],
        (R.h(V.I) <= (R.g(V.J), R._edge(V.J, V.I))) | [F.max_agg],
        R.out(V.I) <= (R.h(V.J)[2, 2], R.g(V.I), R._edge(V.I, V.J)),
    ],
    "learnt facts": [
        R.bias(0)[2,], R.bias(1)[2,],
        R.out(V.I) <= (R.x(V.I), R.bias(V.T), R._kind(V.I, V.T)),
    ],
}  # fmt: skip


@st.composite
def symmetric(draw):
    """Facts of a few graphs with many equal nodes: cycles, stars, and copies of random ones."""
    facts, start = [], 0
    for _ in range(draw(st.integers(1, 3))):
        size = draw(st.integers(1, 5))
        shape = draw(st.sampled_from(["cycle", "star", "random"]))
        pairs = {
            "cycle": [(i, (i + 1) % size) for i in range(size)],
            "star": [(0, i) for i in range(size)],
            "random": draw(st.lists(st.tuples(*[st.integers(0, size - 1)] * 2), unique=True)),
        }[shape]
        kinds = draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))
        for _ in range(draw(st.integers(1, 3))):
            for node, kind in enumerate(kinds):
                facts.append(R.x(start + node)[[1.0, 0.5] if kind else [-0.25, 2.0]])
                facts.append(R.kind(start + node, kind))
            facts += [R.edge(start + a, start + b) for a, b in pairs]
            degree = {b: sum(b == other for _, other in pairs) for _, b in pairs}
            facts += [R.pair(start + node) for node, count in degree.items() if count == 2]
            start += size
    return facts


def program_of(name):
    return Program((GRAPHS | MORE)[name], domains={V.T: 2})


def run(program, weights, data, without=()):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EdgewiseWarning)
        output = nodes.Atom(program.rules[-1].head.relation)
        model = program.compile(output, dtype=torch.float64, without=without).eval()
    with torch.no_grad():
        for name in model._paths:
            if name in weights:
                model.weight(name).copy_(weights[name])
    values = dict(model.rows(model.ground(facts=data)))
    return values, gradients(values, [model.weight(n) for n in model._paths if n in weights])


def assert_equal(one, other):
    assert list(one[0]) == list(other[0])
    for a, b in zip(one[0].values(), other[0].values(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-9, rtol=1e-9, equal_nan=True)
    for a, b in zip(one[1], other[1], strict=True):
        a, b = (torch.zeros(()) if t is None else t for t in (a, b))
        torch.testing.assert_close(
            *torch.broadcast_tensors(a.double(), b.double()), atol=1e-8, rtol=1e-8, equal_nan=True
        )


@pytest.mark.parametrize("name", [*GRAPHS, *MORE])
@given(facts=symmetric())
@settings(deadline=None, max_examples=max(EXAMPLES // 10, 5))
def test_graphs_by_class_are_graphs_row_by_row(name, facts):
    program = program_of(name)
    bodies = [atoms(rule) for rule in program.rules]
    used = {a.relation for body in bodies for a in body if isinstance(a, nodes.Atom)}
    facts = [fact for fact in facts if fact.relation in used]
    weights = program.weights(seed=0)
    lifted = run(program, weights, facts)
    assert_equal(lifted, run(program, weights, facts, [LIFT]))
    head = program.rules[-1].head
    found = outcome(lambda: solved(program, facts, weights, head.relation, len(head.terms)))
    if name != "std":  # a deviation of equal values has no stable gradient
        assert_equal(lifted, (found, gradients(found, list(weights.values()))))


@given(evaluable(), st.integers(2, 4))
@settings(deadline=None, max_examples=EXAMPLES)
def test_a_batch_of_twins_is_the_same_by_class(case, copies):
    """Random programs on samples that are all the same: every row has twins."""
    program, facts, _ = case
    weights = program.weights(seed=0)
    batch = ragged([facts] * copies)
    by_class = outcome(lambda: run(program, weights, batch))
    by_row = outcome(lambda: run(program, weights, batch, [LIFT]))
    if isinstance(by_class, str) or isinstance(by_row, str):
        assert by_class == by_row
    elif outcome(lambda: is_flat(program, facts, weights)):
        assert list(by_class[0]) == list(by_row[0])
    else:
        assert_equal(by_class, by_row)


@given(st.lists(st.sampled_from([0.5, -1.0, 2.0]), min_size=1, max_size=12))
@settings(deadline=None, max_examples=EXAMPLES // 4)
def test_values_that_need_gradients_keep_their_own(values):
    """A gradient for every row, never the sum of a class on one of its members."""
    program = Program([(R.h(V.I) <= R.x(V.I)[2.0]) | [F.tanh], R.out <= R.h(V.I)])
    model = program.compile(R.out, dtype=torch.float64)
    x = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    data = model.ground(x=rows(torch.arange(len(values)), x))
    model(data).backward()
    expected = 2 * (1 - torch.tanh(2 * x.detach()) ** 2)
    torch.testing.assert_close(x.grad, expected)


def test_gradients_may_be_asked_for_after_grounding():
    model = Program([R.out <= R.x(V.I)[2.0]]).compile(R.out)
    x = torch.ones(6)
    data = model.ground(x=rows(torch.arange(6), x))
    model(data)
    x.requires_grad_()
    model(data).backward()
    torch.testing.assert_close(x.grad, torch.full((6,), 2.0))


def test_values_changed_in_place_are_seen():
    model = Program([R.out(V.I) <= R.x(V.I)[2.0]]).compile(R.out)
    x = torch.ones(6)
    data = model.ground(x=rows(torch.arange(6), x))
    assert model(data).data.tolist() == [2.0] * 6
    x[2] = 5.0
    assert model(data).data.tolist() == [2.0, 2.0, 10.0, 2.0, 2.0, 2.0]


def test_values_made_for_inference_are_constant():
    model = Program([R.out(V.I) <= R.x(V.I)[2.0]]).compile(R.out)
    with torch.inference_mode():
        x = torch.ones(6)
    data = model.ground(x=rows(torch.arange(6), x))
    assert model(data).data.tolist() == model(data).data.tolist() == [2.0] * 6


def test_an_error_is_the_same_by_class():
    program = Program([(R.out(V.I) <= (R.x(V.J), R._edge(V.J, V.I))) | [F.concat_agg]])
    facts = [R.x(0)[1.0], R.x(1)[1.0], R.edge(0, 0), R.edge(0, 1), R.edge(1, 1)]
    for without in ([], [LIFT]):
        model = program.compile(R.out, without=without)
        with pytest.raises(EdgewiseError) as caught:
            model(model.ground(facts=facts))
        assert caught.value.code == "shape-mismatch"
