"""Comparisons of values that come apart, against all pairs: the same pairs, whatever is rounded."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise import EdgewiseError, F, Program, R, V, W, ragged
from edgewise.ground import value_runs
from edgewise.plan.value_ranks import PairwiseComparison, RankedComparison

I, J = V.I, V.J  # noqa: E741
A, B = R.a(I), R.b(J)
APART = {
    "plain": A >= B,
    "a sum": A + B > 0.3,
    "a difference": B - A < 0.1,
    "both are scaled": 0.1 * A - 3.0 * B >= -0.2,
    "a scaled sum": -0.3 * (A + B) > 0.1,
    "turned": F.reverse(A + B) >= 0.7,
    "apart by at most": abs(A - B) <= 0.3,
    "apart by more": abs(A - B) > 0.3,
    "equal": abs(A - B) <= 0.0,
    "different": abs(A - B) > 0.0,
    "a radius of the query": abs(A - B) < R.c(I),
    "a radius of the key": R.c(J) >= abs(A - B),
    "three numbers of the query": A + B + R.c(I) > 2.0 * R.d(I),
    "a learnt threshold": W.t[0.25] < A + B,
    "the larger": F.max(A, B) > 0.2,
    "the larger of a sum": F.max(A + B, R.c(I)) <= 0.4,
    "functions of each": F.tanh(A) + F.exp(B) > R.c(I) * R.d(I),
}
DX, DY = R.a(I) - R.a(J), R.b(I) - R.b(J)
TESTED = {
    "a product": A * B > 0.1,
    "two numbers of both": R.c(I) + R.d(J) < A + B,
    "a distance in the plane": DX * DX + DY * DY <= 0.3,
    "a function of both": F.tanh(A * B) + R.c(I) >= F.max(R.d(J), A - B),
    "a learnt factor": W.t[0.25] * R.c(J) < A * B,
    "the key first": R.c(J) * R.d(I) >= R.b(J),
}
LISTED = {
    "a number of a pair": R.p(I, J) < A + B,
    "functions that are not elementwise": R.c(I) * R.d(J) > F.product(A, B),
}


def compiled(condition, dtype=torch.float32):
    return Program([R.h(I, J) <= (R._n(I), R._n(J), condition)]).compile(R.h, dtype=dtype)


def by_pairs(condition, dtype=torch.float32):
    """The value of the comparison for all pairs."""
    compare = F.greater_equal if condition.sign.endswith("=") else F.greater
    sides = (condition.left, condition.right)[:: 1 if condition.sign[0] == ">" else -1]
    return Program([R.h(I, J) <= compare(*sides)]).compile(R.h, dtype=dtype)


def pairs(found):
    return {
        tuple(key) for key, value in zip(found.index.T.tolist(), found.data, strict=True) if value
    }


def inputs_of(condition, tables):
    text = repr(condition)
    return {name: table for name, table in tables.items() if f"R.{name}(" in text}


NUMBERS = st.one_of(
    st.sampled_from(
        [0.0, 0.1, 0.2, 0.3, -0.1, 0.7, 1.0, -1.0, 1e30, -1e30, math.inf, -math.inf, math.nan]
    ),
    st.floats(-1, 1, width=32),
)


@pytest.mark.parametrize("name", {**APART, **TESTED})
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_the_same_pairs_are_found(name, data):
    condition = {**APART, **TESTED}[name]
    dtype = data.draw(
        st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16])
    )
    n = data.draw(st.integers(1, 9))
    columns = {k: data.draw(st.lists(NUMBERS, min_size=n, max_size=n)) for k in "abcd"}
    tables = {
        k: torch.tensor(v, dtype=torch.float64).to(dtype)[:, None] for k, v in columns.items()
    }
    own = inputs_of(condition, tables)
    model, every = compiled(condition, dtype), by_pairs(condition, dtype)
    (one, _) = model.stages["split"].values()
    assert isinstance(one, PairwiseComparison if name in TESTED else RankedComparison)
    found = model.rows(n=torch.arange(n)[None], **own)
    assert pairs(found) == pairs(every.rows(**own))


@pytest.mark.parametrize("name", LISTED)
def test_other_comparisons_are_computed_for_all_pairs(name):
    assert not compiled(LISTED[name]).stages["split"]


def test_comparisons_are_tested_for_some_pairs_at_a_time(monkeypatch):
    """The pairs that hold are in memory, no others; more than the limit are refused."""
    monkeypatch.setattr(value_runs, "AT_ONCE", 20)
    x = torch.randn(23, 1, generator=torch.Generator().manual_seed(0))
    shapes = []
    inner = value_runs._value
    monkeypatch.setattr(
        value_runs, "_value", lambda *a: (found := inner(*a), shapes.append(found.shape))[0]
    )
    found = compiled(A * B > 0.1).rows(n=torch.arange(23)[None], a=x, b=x)
    assert max(shape.numel() for shape in shapes) <= 23
    assert pairs(found) == {tuple(key) for key in (x * x.mT > 0.1).nonzero().tolist()}
    small = Program([R.h(I, J) <= (R._n(I), R._n(J), A * B > 0.1)]).compile(R.h, limit=1000)
    with pytest.raises(EdgewiseError, match="more than the limit of 1000 B") as error:
        small.rows(n=torch.arange(23)[None], a=x, b=x)
    assert error.value.code == "plan-too-large"


def attention(condition):
    body = (R.k(J).T, R.q(I), condition, J <= I)
    return Program([
        (R.w(I, J) <= body) | [F.product, F.softmax_agg(agg_terms=[J])],
        (R.o(I) <= (R.w(I, J), R.k(J))) | [F.product],
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (abs(A - B) <= 0.8, lambda a, b: (a - b).abs() <= 0.8),
        (abs(A - B) > 0.8, lambda a, b: (a - b).abs() > 0.8),
        (~(A + B > 0.2), lambda a, b: ~(a + b > 0.2)),
        (A * B > 0.1, lambda a, b: a * b > 0.1),
        (~(A * B > 0.1), lambda a, b: ~(a * b > 0.1)),
    ],
)
@pytest.mark.parametrize("batched", [False, True])
def test_a_mask_of_numbers_has_the_gradients_of_one_by_a_matrix(condition, holds, batched):
    torch.manual_seed(0)
    shape = (3, 17) if batched else (17,)
    q, k = (torch.randn(*shape, 4, requires_grad=True) for _ in "qk")
    a, b = torch.randn(*shape, 1), torch.randn(*shape, 1)
    mask = holds(a, b.mT) & torch.ones(17, 17).tril().bool()
    scores = (q @ k.mT).masked_fill(~mask, -torch.inf)
    expected = scores.softmax(-1).nan_to_num(0.0) @ k
    found = attention(condition).compile(R.o, fill=0.0)(q=q, k=k, a=a, b=b)
    torch.testing.assert_close(found, expected)
    weight = torch.randn_like(expected)
    for one in zip(
        torch.autograd.grad(found, (q, k), weight, retain_graph=True),
        torch.autograd.grad(expected, (q, k), weight.masked_fill(~mask.any(-1)[..., None], 0.0)),
        strict=True,
    ):
        torch.testing.assert_close(one[0], one[1].nan_to_num(0.0), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("condition", [abs(A - B) <= 0.8, A * B > 0.1])
def test_each_sample_of_a_ragged_batch_has_its_own_pairs(condition):
    model = attention(condition).compile(R.o, fill=0.0)
    torch.manual_seed(0)
    widths = {"q": 4, "k": 4, "a": 1, "b": 1}
    columns = {k: [torch.randn(n, d) for n in (5, 0, 1, 9)] for k, d in widths.items()}
    found = model.rows(**{name: ragged(own) for name, own in columns.items()})
    for at in (0, 2, 3):
        one = model.rows(**{name: own[at] for name, own in columns.items()})
        own = found.index[0] == at
        assert torch.equal(found.index[1:, own], one.index)
        torch.testing.assert_close(found.data[own], one.data)


def test_a_condition_over_another_key_is_existential():
    model = Program([R.h(I) <= (R.a(I), A + B > 1.5)]).compile(R.h)
    found = model.rows(a=torch.tensor([[0.1], [0.9], [2.0]]), b=torch.tensor([[0.7], [-1.0]]))
    assert found.index.tolist() == [[1, 2]]
    assert found.data.tolist() == pytest.approx([0.9, 2.0])


def test_strings_and_facts():
    facts = [
        R.a("x")[0.4],
        R.a("y")[-0.4],
        R.b("u")[0.0],
        R.b("x")[1.0],
        R.n("x"),
        R.n("y"),
        R.n("u"),
    ]
    for condition in (A + B > 0.3, abs(A + B) > 0.39):
        model = compiled(condition)
        found = {atom.terms for atom in model.rows(model.ground(facts=facts))}
        assert found - {("y", "u")} == {("x", "u"), ("x", "x"), ("y", "x")}
    model = compiled(A * B + R.a(I) >= 0.4)
    assert set(model.rows(model.ground(facts=facts))) == {R.h("x", "u"), R.h("x", "x")}
    both = model.rows(model.ground(facts=ragged([facts, facts[1:]])))
    assert set(both.index[0].tolist()) == {0}
    assert both.index.shape[1] == 2


def test_values_that_are_no_numbers_are_refused():
    for condition in (A + B > 0.3, A * B > 0.3):
        with pytest.raises(EdgewiseError, match="not scalars"):
            compiled(condition).rows(
                n=torch.arange(2)[None], a=torch.ones(2, 3), b=torch.ones(2, 3)
            )
