"""Decoding on a GPU in Triton's interpreter: run by test_triton.py in a process of its own."""

import pytest
import torch
from cases import Call, assert_no_worse_than_reference

from edgewise.graphs import cache, causal, full, global_tokens, random_edges, strided, window
from edgewise.kernels.attention import attention, case_of, choose
from edgewise.kernels.attention.errors import KernelRefuses
from edgewise.kernels.attention.triton import decoding as triton_decoding

KERNEL = "triton_decoding"
CASES = [  # graph, offset, queries, heads that share keys
    (causal(), 150, 3, 2),
    (window(90) & causal(), 150, 1, 4),
    (window(40) | global_tokens(3), 120, 3, 2),
    (window(40) | global_tokens(3), 120, 1, 1),
    (strided(5) & causal(), 170, 1, 4),
    (strided(5) & causal(), 170, 2, 1),
    (full(), 0, 1, 1),
]


@pytest.fixture(autouse=True)
def fresh():
    cache.clear()


@pytest.mark.parametrize(("graph", "offset", "n", "shared"), CASES, ids=repr)
def test_rows_after_an_offset(graph, offset, n, shared):
    call = Call(graph, (2,), 2, shared, n, 180, 8, 4, options={"offset": offset})
    assert_no_worse_than_reference(call, KERNEL)


@pytest.mark.parametrize(("d", "dv"), [(20, 33), (80, 80)])
def test_in_half_precision_and_any_size(d, dv):
    call = Call(causal(), (1,), 1, 5, 1, 140, d, dv, torch.float16, options={"offset": 130})
    assert_no_worse_than_reference(call, KERNEL)


@pytest.mark.parametrize("term", ["bias", "key_bias", "softcap", "near", "relative", "places"])
def test_takes_terms(term):
    options = {"offset": 130}
    call = Call(window(90) & causal(), (2,), 1, 3, 2, 140, 8, 4, terms=(term,), options=options)
    assert_no_worse_than_reference(call, KERNEL)


@pytest.mark.parametrize("lengths", [[0, 65, 140], [140, 1, 139]])
def test_caches_of_different_lengths(lengths):
    """Blocks beyond the last key of a sample are not read: they may hold anything."""
    options = {"lengths": torch.tensor(lengths), "offset": 139}
    call = Call(window(120), (3,), 1, 2, 1, 140, 8, 4, terms=("softcap",), options=options)
    assert_no_worse_than_reference(call, KERNEL)


@pytest.mark.parametrize(("graph", "n"), [(full(), 1), (causal(), 3), (window(90), 1),
                                          (strided(5) & causal(), 1)], ids=repr)  # fmt: skip
@pytest.mark.parametrize("lead", [(3,), (3, 1)])
def test_lengths_are_read_by_the_kernel(graph, n, lead):
    """No mask is made; gradients, with keys that are masked, are the same."""
    lengths = torch.tensor([0, 65, 140]).reshape(lead)
    options = {"lengths": lengths, "offset": 140 - n}
    call = Call(graph, lead, 2, 2, n, 140, 8, 4, options=options)
    assert_no_worse_than_reference(call, KERNEL)
    q, k, v = torch.randn(3, 4, n, 8), *torch.randn(2, 3, 2, 140, 8)
    right = attention(q, k, v, graph, lengths=lengths.flatten(), offset=140 - n, kernel="reference")
    for at, length in enumerate(lengths.flatten()):
        k[at, :, length:], v[at, :, length:] = torch.nan, torch.nan  # never read
    found = attention(q, k, v, graph, lengths=lengths.flatten(), offset=140 - n, kernel=KERNEL)
    torch.testing.assert_close(found, right)


def test_a_cache_is_read_where_it_is():
    """Tokens before heads, and part of a longer buffer."""
    buffer = torch.full((2, 200, 2, 2, 24), torch.nan)
    buffer[:, :150, ..., :16] = torch.randn(2, 150, 2, 2, 16)
    k, v = (buffer[:, :150, :, at, :16].transpose(1, 2) for at in range(2))
    q = torch.randn(2, 6, 1, 16)
    found = attention(q, k, v, window(70), offset=149, kernel=KERNEL)
    right = attention(q, k, v, window(70), offset=149, kernel="reference")
    torch.testing.assert_close(found, right)
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    for kernel in (KERNEL, "reference"):
        out = attention(*leaves, window(70), offset=149, kernel=kernel)
        grads = torch.autograd.grad(out.square().sum(), leaves)
        right = grads if kernel == KERNEL else right
    torch.testing.assert_close(right, grads)


@pytest.mark.filterwarnings("ignore:All-NaN:RuntimeWarning")
def test_nan_and_empty_rows():
    q, k = torch.randn(1, 2, 2, 8), torch.randn(1, 1, 100, 8)
    q[0, 1, 0] = torch.nan
    out = attention(q, k, k, causal(), offset=90, kernel=KERNEL)
    assert out[0, 1, 0].isnan().all()
    assert out[0, 0].isfinite().all()
    some = full().restrict(queries=(1, 2))
    out, lse = attention(q[:, :1], k, k, some, kernel=KERNEL, return_lse=True)
    assert out[0, 0, 0].eq(0).all()
    assert lse[0, 0, 0] == -torch.inf


def test_what_it_refuses():
    q, k = torch.zeros(1, 4, 1, 8), torch.zeros(1, 1, 300, 8)
    for graph, queries, reason in (
        (causal(), torch.zeros(1, 4, 17, 8), "68 queries of heads that share keys are more"),
        (random_edges(20, seed=0), q, "its keys are scattered: 20 in "),
        (window(1) - window(1), q, "there are no pairs"),
    ):
        with pytest.raises(KernelRefuses, match=reason):
            attention(queries, k, k, graph, kernel=KERNEL)


def test_keys_are_split_and_read_once():
    case = case_of(torch.zeros(1, 8, 1, 8), *[torch.zeros(1, 1, 6400, 8)] * 2)
    made = triton_decoding.Decoding(case, "cpu")
    assert (made.splits, made.chunk, made.rows) == (8, 800, 16)
    near = (window(99) & causal()).shift(-6000, 0)
    assert triton_decoding.runs_of(near, 1, 6400).cover.tolist() == [[5901, 100, 1]]
    assert triton_decoding.runs_of(near, 1, 6400).blocks(64) == 2
    assert "triton_decoding" in choose(case).refusals
