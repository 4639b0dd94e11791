"""What is not a number stays so: a query that is NaN is not a query that hears nobody."""

import contextlib

import pytest
import torch
from additive_cases import KINDS
from cases import NAN_GRAPHS as GRAPHS
from cases import nan_rows

from edgewise import F, Program, R, V
from edgewise.graphs import bigbird, from_edges, random_edges, strided, tree
from edgewise.kernels.attention import IMPLEMENTATIONS, attention
from edgewise.kernels.attention.errors import KernelRefuses
from edgewise.kernels.edges.operators import attend_along

NAN, INF = float("nan"), float("inf")
KERNELS = [None, *(kernel.name for kernel in IMPLEMENTATIONS)]


@pytest.mark.parametrize("graph", GRAPHS, ids=repr)
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_row_of_nan_is_nan_and_others_are_not(graph, kernel):
    ran = 0
    for value, term in ((NAN, "q"), (INF, "q"), (-INF, "q"), (NAN, "edge_bias")):
        if term == "edge_bias" and graph is None:
            continue
        with contextlib.suppress(KernelRefuses):
            nan_rows(graph, kernel, value, term)
            ran += 1
    assert ran or kernel is not None
    assert not ran or kernel not in ("empty", "triton_blocks", "triton_csr")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("n", range(1, 18))
def test_few_keys(n, dtype):
    """PyTorch's fused attention gives 0 there."""
    for graph in GRAPHS[:3]:
        q, k, v = (torch.randn(2, n, 4, dtype=dtype) for _ in range(3))
        q[:, n // 2] = NAN
        for out in (attention(q, k, v, graph), attention(q, k, v, graph, return_lse=True)[0]):
            assert out.isnan().any(-1)[0].nonzero().tolist() == [[n // 2]]


@pytest.mark.parametrize(
    "make",
    [
        lambda n: None,
        lambda n: bigbird(),
        lambda n: strided(3),
        lambda n: tree([-1, *((i - 1) // 2 for i in range(1, n))]),
        lambda n: random_edges(3, seed=0),
        lambda n: from_edges(torch.arange(n).expand(2, n).clone()),
    ],
)
def test_long_sequences(make):
    n = 4000
    q, k, v = (torch.randn(n, 4) for _ in range(3))
    q[1234] = NAN
    assert attention(q, k, v, make(n)).isnan().any(-1).nonzero().tolist() == [[1234]]


@pytest.mark.parametrize("kind", KINDS)
def test_additive_scores(kind):
    call = KINDS[kind]
    leaves, index = call.leaves(torch.float32), call.index()
    row = int(index.rows.ids[0])
    with torch.no_grad():
        leaves[0][:, row] = NAN
    out = attend_along(*call.inputs(leaves), index=index)[0]
    assert out.isnan().all(-1)[0].nonzero().flatten().tolist() == [row]
    (dv,) = torch.autograd.grad(out.sum(), leaves[2])
    read = index.rows.index[index.rows.ids == row].long()
    assert dv[:, read].isnan().all()


@pytest.mark.parametrize("agg", [F.max_agg, F.min_agg, F.sum_agg, F.avg_agg], ids=str)
def test_aggregations_of_rules(agg):
    program = Program([(R.h(V.I) <= (R._edge(V.I, V.J), R.x(V.J))) | [F.product, agg]])
    x = torch.tensor([[1.0], [NAN], [3.0], [2.0]])
    out = program.compile(R.h)(x=x, edge=torch.tensor([[0, 0, 1, 1], [0, 1, 2, 3]]))
    assert out.data.isnan().flatten().tolist() == [True, False]


@pytest.mark.parametrize(
    "condition", [(), (R.special.leq(V.J, V.I),), (R._edge(V.I, V.J),)], ids=repr
)
@pytest.mark.parametrize("n", [5, 20])
def test_attention_of_rules(condition, n):
    scores = (R.k(V.J).T, R.q(V.I), *condition)
    weights = (R.w(V.I, V.J) <= scores) | [F.product, F.softmax_agg(agg_terms=[V.J])]
    program = Program([weights, (R.y(V.I) <= (R.w(V.I, V.J), R.v(V.J))) | [F.product]])
    inputs = {name: torch.randn(n, 3) for name in "qkv"}
    inputs["q"][2] = NAN
    if condition and "edge" in repr(condition):
        inputs["edge"] = torch.stack([torch.arange(n), torch.arange(n).flip(0)])
    out = program.compile(R.y)(**inputs)
    assert out.isnan().any(-1).flatten().nonzero().flatten().tolist() == [2]
