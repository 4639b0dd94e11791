"""A row whose scores are all -∞ has no key to attend to: 0 everywhere, values and gradients."""

import contextlib

import pytest
import torch
from cases import NAN_GRAPHS as GRAPHS
from cases import minus_infinite_row

from edgewise import F, Program, R, V
from edgewise.kernels.attention import IMPLEMENTATIONS
from edgewise.kernels.attention.errors import KernelRefuses

KERNELS = [None, *(kernel.name for kernel in IMPLEMENTATIONS)]
X, Y = V.X, V.Y
ATTENTION = Program(
    [
        (R.s(X, Y) <= (R.k(Y).T, R.q(X))) | [F.product],
        (R.w(X, Y) <= (R.s(X, Y), R.b(X, Y))) | [F.sum, F.softmax_agg(agg_terms=[Y])],
        (R.o(X) <= (R.w(X, Y), R.v(Y))) | [F.product],
    ]
)


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel(kernel):
    ran = 0
    for graph in GRAPHS:
        for term in ("bias", "edge_bias")[: 1 if graph is None else 2]:
            with contextlib.suppress(KernelRefuses):
                minus_infinite_row(graph, kernel, term)
                ran += 1
    takes_no_bias = ("empty", "dense", "sliced", "slabs", "permuted", "tiled")
    assert bool(ran) == (
        kernel not in takes_no_bias and not (kernel or "").startswith(("triton", "flash4"))
    )


@pytest.mark.parametrize("without", [[], ["fuse attention"]], ids=["fused", "listed"])
@pytest.mark.parametrize("ragged", [False, True])
def test_rules_and_the_reference(without, ragged):
    random = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(4, 3, generator=random, dtype=torch.float64) for _ in range(3))
    b = torch.zeros(4, 4, dtype=torch.float64)
    b[1], b[2, 1:] = -torch.inf, -torch.inf
    model = ATTENTION.compile(R.o, without=without, dtype=torch.float64)
    leaves = [x.requires_grad_() for x in (q, k, v, b)]
    known = {(i, j) for i in range(4) for j in range(4)} - ({(0, 3)} if ragged else set())
    facts = [R.b(i, j)[b[i, j]] for i, j in sorted(known)]
    for relation, rows in ((R.q, q), (R.k, k), (R.v, v)):
        facts += [relation(i)[row] for i, row in enumerate(rows)]
    solved = ATTENTION.solve(facts)
    out = model(model.ground(facts=facts)).data if ragged else model(q=q, k=k, v=v, b=b)
    wanted = torch.stack([solved[R.o(i)] for i in range(4)])
    torch.testing.assert_close(out, wanted)
    assert out[1].eq(0).all()
    for found, expected in zip(
        torch.autograd.grad(out.square().sum(), leaves, materialize_grads=True),
        torch.autograd.grad(wanted.square().sum(), leaves, materialize_grads=True),
        strict=True,
    ):
        assert expected.isfinite().all()
        torch.testing.assert_close(found, expected)


def test_functions_of_one_value():
    low = [-torch.inf, -torch.inf]
    program = Program([(R.h <= R.x) | [F.softmax], (R.c <= (R.a, R.b)) | [F.softmax_comb]])
    solution = program.solve([R.x[low], R.a[low[0]], R.b[low[1]]])
    assert solution[R.h].tolist() == solution[R.c].tolist() == [0.0, 0.0]
    assert program.compile(R.h)(x=torch.tensor(low)).tolist() == [0.0, 0.0]
    scalars = {"a": torch.tensor(low[0]), "b": torch.tensor(low[1])}
    assert program.compile(R.c)(**scalars).tolist() == [0.0, 0.0]
