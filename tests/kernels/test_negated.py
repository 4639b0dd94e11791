"""Views that are negated when they are read count as the numbers that they show."""

import contextlib

import pytest
import torch
from additive_cases import KINDS as ADDITIVE
from cases import Call

from edgewise import F, Program, R, V, ragged, rows
from edgewise.graphs import from_edges, random_edges, strided, window
from edgewise.kernels.attention import IMPLEMENTATIONS, attention
from edgewise.kernels.attention.errors import KernelRefuses
from edgewise.kernels.edges import edge_index, segment_extreme, segment_mean, segment_sum
from edgewise.kernels.edges.operators import attend_along
from edgewise.kernels.small_products import Products

EDGES = torch.tensor([[0, 1, 2, 2, 3, 3], [1, 2, 0, 1, 3, 0]])
WHICH = edge_index(torch.tensor([0, 0, 1, 2]), torch.tensor([2, 0, 2, 1]), 3, 3)
KERNELS = [None, *(kernel.name for kernel in IMPLEMENTATIONS)]


def negated(x):
    found = torch._neg_view(-x)
    assert found.is_neg()
    return found


def imaginary(x):
    found = torch.complex(torch.zeros_like(x), -x).conj().imag
    assert found.is_neg()
    return found


def assert_same(run, tensors, view=negated):
    """The output and all gradients, also where the gradient of the output is such a view."""
    results = []
    for shown in (lambda x: x, view):
        leaves = [x.detach().clone().requires_grad_() for x in tensors]
        out = run(*(shown(x) for x in leaves))
        weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape)
        results.append([out, *torch.autograd.grad(out, leaves, shown(weight), allow_unused=True)])
    for plain, found in zip(*results, strict=True):
        torch.testing.assert_close(found, plain)


@pytest.mark.parametrize("view", [negated, imaginary])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("terms", [(), ("bias",), ("edge_bias", "edge_scale"), ("edge_key",)])
def test_attention(kernel, terms, view):
    for graph in (window(2), strided(3), random_edges(3, seed=0)):
        call = Call(graph, n=20, m=20, terms=terms)
        tensors = call.tensors()

        def run(*given, call=call, names=tuple(tensors)):
            return call.run(dict(zip(names, given, strict=True)), kernel)

        with contextlib.suppress(KernelRefuses):
            assert_same(run, tensors.values(), view)


def test_attention_in_a_trace():
    run = torch.compile(
        lambda q, k, v: attention(q, k, v, window(2)), fullgraph=True, backend="aot_eager"
    )
    tensors = [torch.randn(2, 9, 4) for _ in range(3)]
    torch.testing.assert_close(run(*map(negated, tensors)), attention(*tensors, window(2)))


@pytest.mark.parametrize(
    "run",
    [
        lambda x, scale: segment_sum(x, WHICH),
        lambda x, scale: segment_sum(x, WHICH, scale),
        lambda x, scale: segment_mean(x, WHICH),
        lambda x, scale: segment_extreme(x, WHICH, largest=True),
        lambda x, scale: segment_extreme(x, WHICH, largest=False),
    ],
)
def test_aggregation(run):
    assert_same(run, [torch.randn(3, 5), torch.randn(4)])


@pytest.mark.parametrize("kind", ADDITIVE)
def test_additive_attention(kind):
    call = ADDITIVE[kind]
    index = call.index()
    assert_same(
        lambda *leaves: attend_along(*call.inputs(leaves), index=index)[0],
        call.leaves(torch.float32),
    )


def test_products_of_a_few_rows():
    matrix, row = torch.randn(200, 200), torch.randn(2, 200)
    wanted = Products([matrix])(row)[0]
    torch.testing.assert_close(Products([matrix])(negated(row))[0], wanted)
    torch.testing.assert_close(Products([negated(matrix)])(row)[0], wanted)


PROGRAMS = {
    "linear": [R.h(V.I) <= R.x(V.I)["w":4, 4], R.out(V.I) <= R.h(V.I)],
    "largest": [(R.out(V.I) <= (R.x(V.J), R._edge(V.I, V.J))) | [F.max_agg]],
    "mean": [(R.out(V.I) <= (R.x(V.J), R._edge(V.I, V.J))) | [F.avg_agg]],
    "attention": [
        (R.p(V.I, V.J) <= (R.x(V.I).T, R.x(V.J), R._edge(V.I, V.J)))
        | [F.product, F.softmax_agg(agg_terms=[V.J])],
        (R.out(V.I) <= (R.p(V.I, V.J), R.x(V.J))) | [F.product],
    ],
}


@pytest.mark.parametrize("given", ["dense", "rows", "ragged"])
@pytest.mark.parametrize("rules", PROGRAMS.values(), ids=PROGRAMS)
def test_programs(rules, given):
    model = Program(rules).compile(R.out, seed=0, fill=0.0)
    edge = {"edge": negated(EDGES)} if "edge" in model.inputs else {}

    def run(x):
        asked = {"x": rows(negated(torch.arange(4)), x) if given == "rows" else x, **edge}
        if given == "ragged":
            asked = {name: ragged([item, item]) for name, item in asked.items()}
        found = model(**asked)
        return found if isinstance(found, torch.Tensor) else found.data

    for _ in range(3):
        assert_same(run, [torch.randn(4, 4)])


def test_edges():
    assert from_edges(negated(EDGES)) == from_edges(EDGES)
