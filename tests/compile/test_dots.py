"""Dot products that groundings read of matrix products are those of the reference."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise import F, Program, R, V, W, numbers
from edgewise.graphs import causal, window
from edgewise.physical.passes import dots
from edgewise.zoo import deberta

H, X, Y, D = V.H, V.X, V.Y, V.D


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """However few groundings there are, and however many numbers the products have."""
    monkeypatch.setattr(dots, "MANY", 0)
    monkeypatch.setattr(dots, "MORE", 1 << 20)


def far(*more):
    """Scores of pairs by how far they are apart, and what comes of their sum."""
    score = R.score(H, X, Y) <= (R.place(H, D).T, *more, R._x(Y), R.special.add(Y, D, X))
    return Program(
        [
            R.q(H, X) <= R.x(X)[W.q(H)[3, 4]],
            R.place(H, D) <= R.r(D)[W.p(H)[3, 4]],
            score | [F.product],
            (R.out(X) <= (R.score(H, X, Y), R.x(Y))) | [F.product],
        ],
        domains={H: 2},
    )


def near(*more):
    """Dot products that are a part of what is added up, in a softmax over pairs that are near."""
    dot = R.k(H, Y).T @ R.q(H, X)
    return Program(
        [
            R.q(H, X) <= R.x(X)[W.q(H)[9, 4]],
            R.k(H, X) <= R.x(X)[W.p(H)[9, 4]],
            (R.score(H, X, Y) <= (dot, *more, window(1)(X, Y)))
            | [F.sum, F.softmax_agg(agg_terms=[Y])],
            (R.out(X) <= (F.square(R.score(H, X, Y)), R.x(Y))) | [F.product],
        ],
        domains={H: 2},
    )


ITEMS = {
    "one atom": (R.q(H, X),),
    "with a number": (R.q(H, X)[0.5].fixed(),),
    "with a matrix": (R.q(H, X)["m":3, 3],),
    "of two atoms": (R.q(H, X) + R.u(H),),
    "a function of it": (F.tanh(R.q(H, X)),),
}


def used(model, data=None):
    """How many dot products are read of matrix products."""
    plans = [plan for step in model._cache.built.values() for plan in step.plans.values()]
    return sum(plan.passes["dots as products"] for plan in plans)


PROGRAMS = {name: far(*items) for name, items in ITEMS.items()}
PROGRAMS |= {"in a sum": near(R.s(Y)), "weighed": near(R.s(Y) * (R.k(H, Y).T @ R.k(H, X)))}


@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=5)
@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 99))
def test_as_the_reference_computes_them(name, n, reach, seed):
    program = PROGRAMS[name]
    model = program.compile(R.out, seed=seed, dtype=torch.float64)
    torch.manual_seed(seed)
    sizes = {"x": (n, 4), "r": (reach, 4), "u": (2, 3), "s": (n,)}
    given = {k: torch.randn(sizes[k], dtype=torch.float64) for k in model.inputs}
    found = model(**given)
    facts = [R[k](i)[row.tolist()] for k, rows in given.items() for i, row in enumerate(rows)]
    weights = {k: model.weight(k).detach().clone().requires_grad_() for k in model._paths}
    solved = torch.stack(list(program.solve(facts, weights=weights)[R.out(X)].values()))
    found = torch.stack(list(found.values())) if not isinstance(found, torch.Tensor) else found
    torch.testing.assert_close(found, solved)
    leaves = [k for k in model._paths if model.weight(k).requires_grad]
    ours = torch.autograd.grad(found.square().sum(), [model.weight(k) for k in leaves])
    theirs = torch.autograd.grad(solved.square().sum(), [weights[k] for k in leaves])
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", PROGRAMS)
def test_they_are_used_and_change_nothing(name):
    program = PROGRAMS[name]
    model = program.compile(R.out, seed=0, dtype=torch.float64)
    plain = program.compile(R.out, seed=0, dtype=torch.float64, without=["dots as products"])
    x, r = (torch.randn(3, n, 4, dtype=torch.float64) for n in (7, 5))
    s = torch.randn(3, 7, 1, dtype=torch.float64)
    given = {"x": x, "r": r, "u": torch.randn(2, 3, dtype=torch.float64), "s": s}
    given = {k: given[k] for k in model.inputs}
    found, expected = (m.rows(**given) for m in (model, plain))
    torch.testing.assert_close(found.data, expected.data)
    assert used(model)


def test_what_meets_all_is_left_as_it_is(monkeypatch):
    monkeypatch.setattr(dots, "MORE", 1)
    model = far(R.q(H, X)).compile(R.out, seed=0)
    model(x=torch.randn(4, 4), r=torch.randn(400, 4))  # products would be mostly unread
    assert not used(model)


@pytest.mark.parametrize("width", [8, 64])
def test_how_much_is_unread_goes_by_the_length_of_rows(monkeypatch, width):
    """Three keys of twelve are read: four numbers for each, which is less than 64 features."""
    monkeypatch.setattr(dots, "MORE", 2)
    score = (R.k(X).T, R.q(Y), window(1)(X, Y))
    program = Program([(R.out(X, Y) <= score) | [F.product]])
    model = program.compile(R.out, dtype=torch.float64)
    k, q = torch.randn(2, 12, width, dtype=torch.float64)
    found = model.rows(k=k, q=q)
    assert bool(used(model)) == (width == 64)
    expected = (k @ q.T)[found.index.long().unbind()]
    torch.testing.assert_close(found.data, expected)


def test_numbers_and_outer_products_are_no_dot_products():
    rules = [
        (R.a(X, Y) <= (R.s(Y), R.x(X), causal()(X, Y))) | [F.product],
        (R.b(X, Y) <= (R.x(Y), R.x(X).T, causal()(X, Y))) | [F.product],
        (R.out(X) <= (R.b(X, Y), R.a(X, Y))) | [F.product],
    ]
    program = Program(rules)
    x, s = torch.randn(5, 4, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    found = program.compile(R.out, dtype=torch.float64)(x=x, s=s)
    lower = torch.ones(5, 5, dtype=torch.float64).tril()
    expected = torch.einsum("ij,jd,ie,j,ie->id", lower, x, x, s, x)
    torch.testing.assert_close(found, expected)


def test_deberta_scores_by_products():
    config = deberta.Config(20, 6, 2, 12, 1, 4, dropout=0.0)
    program = deberta.program(config)
    model = program.compile(R.out, seed=0, dtype=torch.float64)
    plain = program.compile(R.out, seed=0, dtype=torch.float64, without=["dots as products"])
    inputs = {
        "token": numbers(torch.randint(0, 20, (3, 9))),
        "mask": torch.ones(3, 9, 1, dtype=torch.float64),
    }
    found, expected = model(**inputs), plain(**inputs)
    torch.testing.assert_close(found, expected)
    assert used(model) >= 2
    leaves = [p for p in model.parameters() if p.requires_grad]
    others = [p for p in plain.parameters() if p.requires_grad]
    a = torch.autograd.grad(found.square().sum(), leaves, allow_unused=True)
    b = torch.autograd.grad(expected.square().sum(), others, allow_unused=True)
    for one, other in zip(a, b, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)
