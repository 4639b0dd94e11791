"""Dot products along edges, whose rows are not gathered, are those of the reference."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise import F, Program, R, V, rows
from edgewise.graphs import causal, window
from edgewise.physical.passes import dots

I, J, K = V.I, V.J, V.K  # noqa: E741


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """However few groundings there are, and never as products of matrices."""
    monkeypatch.setattr(dots, "MANY", 0)
    monkeypatch.setattr(dots, "dots_of", lambda *_: None)


def attending(*condition, of=F.sigmoid):
    return Program([
        R.q(I) <= R.x(I)["q":3, 3],
        (R.w(I, J) <= (R.x(J).T, R.q(I), *condition)) | [F.product, of],
        (R.out(I) <= (R.w(I, J), R.x(J))) | [F.product],
    ])  # fmt: skip


PROGRAMS = {
    "edges": attending(R._edge(I, J)),
    "edges turned": attending(R._edge(J, I), of=F.relu),
    "two hops": attending(R._edge(I, K), R._edge(K, J), of=F.tanh),
    "a pattern": attending(window(1)(I, J), R._edge(J, J)),
    "scores of edges": Program([
        R.a(I) <= R.x(I)["a":4, 3],
        R.b(I) <= R.x(I)["b":4, 3],
        R.out(I, J) <= F.sigmoid(R.a(I).T @ R.b(J)) + R.edge(I, J),
    ]),
    "of itself": Program([(R.out(I) <= (R.x(J).T, R.x(J), R._edge(I, J))) | [F.product]]),
}  # fmt: skip


def used(model):
    plans = [plan for step in model._cache.built.values() for plan in step.plans.values()]
    return sum(plan.passes.get("dots along edges", 0) for plan in plans)


pairs = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, unique=True)


@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=12, deadline=None)
@given(pairs, st.integers(0, 99))
def test_as_the_reference_computes_them(name, pairs, seed):
    """Whatever the order of the edges, with hubs and nodes without any."""
    program = PROGRAMS[name]
    torch.manual_seed(seed)
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    edge = torch.randn(len(pairs), 1, dtype=torch.float64)
    model = program.compile(R.out, seed=seed, dtype=torch.float64)
    keyed = {"edge": rows(torch.tensor(pairs).T, edge)}
    found = model.rows(model.ground(**keyed), x=x)
    facts = [R.edge(*pair)[float(v)] for pair, v in zip(pairs, edge, strict=True)]
    facts += [R.x(i)[row] for i, row in enumerate(x)]
    weights = {k: model.weight(k) for k in model._paths}
    solved = program.solve(facts, weights=weights)
    expected = solved[R.out(I, J)] if name == "scores of edges" else solved[R.out(I)]
    keys = [tuple(key.tolist()) for key in found.index.T]
    by_key = {atom.terms: value for atom, value in expected.items()}
    assert set(keys) == by_key.keys()
    if not keys:
        return
    right = torch.stack([by_key[key].reshape(-1) for key in keys])
    mine = found.data.reshape(len(keys), -1)
    torch.testing.assert_close(mine, right)
    wanted = [x, *(w for w in weights.values() if w.requires_grad)]
    ours = torch.autograd.grad(mine.square().sum(), wanted, allow_unused=True)
    theirs = torch.autograd.grad(right.square().sum(), wanted, allow_unused=True)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(
            torch.zeros(()) if a is None else a, torch.zeros(()) if b is None else b
        )


@pytest.mark.parametrize("batch", [None, 1, 3])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_it_is_used_and_changes_nothing(batch, dtype):
    program = attending(causal()(I, J), window(3)(I, J))
    model = program.compile(R.out, seed=0, dtype=dtype)
    plain = program.compile(R.out, seed=0, dtype=dtype, without=["dots along edges"])
    x = torch.randn(*([] if batch is None else [batch]), 9, 3).to(dtype).requires_grad_()
    found, expected = model(x=x), plain(x=x)
    near = {"rtol": 2e-2, "atol": 2e-2} if dtype.itemsize == 2 else {}
    torch.testing.assert_close(found, expected, **near)
    for a, b in zip(
        torch.autograd.grad(found.float().sum(), x),
        torch.autograd.grad(expected.float().sum(), x),
        strict=True,
    ):
        torch.testing.assert_close(a, b, **near)
    assert used(model)
    assert not used(plain)


def test_one_side_is_shared_by_the_batch():
    program = Program([
        (R.w(I, J) <= (R.x(J).T, R.q(I), window(1)(I, J))) | [F.product, F.sigmoid],
        (R.out(I) <= (R.w(I, J), R.x(J))) | [F.product],
    ])  # fmt: skip
    model = program.compile(R.out, dtype=torch.float64)
    x, q = (torch.randn(*n, 6, 3, dtype=torch.float64) for n in ([4], []))
    found = model(x=x, q=q)
    for sample, one in zip(x, found, strict=True):
        torch.testing.assert_close(one, model(x=sample, q=q))
    assert used(model)


def test_gradients_of_gradients_and_compiled():
    program = attending(window(1)(I, J))
    model = program.compile(R.out, seed=0, dtype=torch.float64)
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: model(x=x), x)
    compiled = torch.compile(model, fullgraph=True)
    torch.testing.assert_close(compiled(x=x), model(x=x))
    assert used(model)
