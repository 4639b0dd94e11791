"""The GPU kernels in Triton's interpreter: run by test_triton.py in a process of its own."""

from dataclasses import replace

import pytest
import torch
from cases import NAN_GRAPHS, TERMS, Call, assert_no_worse_than_reference, nan_rows

from edgewise.graphs import bigbird, causal, documents, global_tokens, strided, window
from edgewise.kernels.attention import attention, triton_csr, triton_tiles
from edgewise.kernels.attention.errors import KernelRefuses


@pytest.fixture(autouse=True)
def small_items(monkeypatch):
    """So that rows are split, too."""
    monkeypatch.setattr(triton_tiles, "LEAST", 2)
    monkeypatch.setattr(triton_csr, "LEAST", 4)


GRAPHS = [
    window(20) & causal(),
    global_tokens(1) | window(3),
    documents([40, 60]),
    bigbird(8, 1),
    strided(7) - causal(),
]


@pytest.mark.parametrize(
    ("graph", "dtype"),
    [*((graph, torch.float32) for graph in GRAPHS), (GRAPHS[0], torch.float16)],
    ids=repr,
)
def test_blocks_are_as_exact_as_the_reference(graph, dtype):
    call = Call(graph, (1,), 1, 2, 100, 100, 8, 4, dtype)
    assert_no_worse_than_reference(call, "triton_blocks")


@pytest.mark.parametrize("terms", [(), *((x,) for x in TERMS if "edge" not in x)])
def test_blocks_take_terms(terms):
    call = Call(window(20) & causal(), (1,), 1, 2, 70, 70, 8, 4, terms=terms)
    assert_no_worse_than_reference(replace(call, options={"dropout": 0.2}), "triton_blocks")


EDGE_CASES = [(window(2), (term,)) for term in TERMS]
EDGE_CASES += [
    (graph, some) for graph in (window(2), global_tokens(1)) for some in ((), TERMS[2:7])
]


@pytest.mark.parametrize(("graph", "terms"), EDGE_CASES)
def test_edges_are_as_exact_as_the_reference(graph, terms):
    call = Call(graph, (1,), 1, 2, 7, 7, 8, 4, terms=terms, options={"dropout": 0.2})
    assert_no_worse_than_reference(call, "triton_csr")


@pytest.mark.parametrize("kernel", ["triton_blocks", "triton_csr"])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (3, 70), (70, 3)])
def test_queries_and_keys_differ_in_number(kernel, n, m):
    call = Call(window(1), (), 1, 1, n, m, 4, 4)
    assert_no_worse_than_reference(call, kernel)


def test_dropout_is_the_same_as_on_a_cpu():
    q, k, v = (torch.randn(2, 9, 4) for _ in range(3))
    outs = []
    for kernel in ("triton_csr", "reference"):
        torch.manual_seed(0)
        outs.append(attention(q, k, v, window(3), dropout=0.4, kernel=kernel))
    torch.testing.assert_close(*outs)


@pytest.mark.parametrize("kernel", ["triton_blocks", "triton_csr"])
def test_it_says_what_it_does_not_compute(kernel):
    x = torch.zeros(1, 8, 4, dtype=torch.float64)
    with pytest.raises(KernelRefuses, match="float64"):
        attention(x, x, x, window(1), kernel=kernel)
    wide = torch.zeros(1, 8, 400)
    with pytest.raises(KernelRefuses, match="400 features"):
        attention(wide, wide, wide, window(1), kernel=kernel)


def test_blocks_read_any_layout():
    """Heads beside one another, keys that all heads share, and an odd place in memory."""
    torch.manual_seed(0)
    q = torch.randn(70, 3, 16).transpose(0, 1)
    k = torch.randn(70, 16).expand(3, 70, 16)
    v = torch.randn(3 * 70 * 16 + 1)[1:].view(3, 70, 16)
    found, right = (
        attention(q, k, v, window(5), kernel=kernel) for kernel in ("triton_blocks", "reference")
    )
    torch.testing.assert_close(found, right)


@pytest.mark.parametrize("graph", [x for x in NAN_GRAPHS if x is not None], ids=repr)
@pytest.mark.parametrize("kernel", ["triton_blocks", "triton_csr"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_is_not_a_number_stays_so(graph, kernel):
    nan_rows(graph, kernel, float("nan"), "q")
    if kernel == "triton_csr":
        nan_rows(graph, kernel, float("nan"), "edge_bias")
