"""CSR attention on a CPU: heads side by side, hubs in pieces, the same sums on any threads."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise.graphs import from_edges
from edgewise.kernels.attention import attention
from edgewise.kernels.attention.terms import edges_of

pytest.importorskip("numba", reason="numba is not installed")
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def hub(n, lot, seed=0):
    """Row 0 attends to `lot` keys and as many rows to key 0; the last row attends to none."""
    random = torch.Generator().manual_seed(seed)
    some = torch.randint(n - 1, (2, 3 * n), generator=random)
    i = torch.cat([some[0], torch.zeros(lot, dtype=torch.int64), torch.arange(lot)])
    j = torch.cat([some[1], torch.arange(lot), torch.zeros(lot, dtype=torch.int64)])
    return from_edges(torch.stack([i, j]))


def drawn(heads, n, widths, dtype, beside):
    random = torch.Generator().manual_seed(1)
    found = []
    for h, width in zip(heads, widths, strict=True):
        shape = (n, h, width) if beside else (h, n, width)
        x = torch.randn(shape, generator=random, dtype=torch.float64).to(dtype)
        found.append((x.transpose(0, 1) if beside else x).requires_grad_())
    return found


def results(tensors, graph, **options):
    out = attention(*tensors, graph, **options)
    terms = [x for x in options.values() if isinstance(x, torch.Tensor)]
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(2)).to(out.dtype)
    return [out, *torch.autograd.grad((out * weight).sum(), [*tensors, *terms])]


def errors(found, exact):
    return [(a.double() - b.double()).abs().max().item() for a, b in zip(found, exact, strict=True)]


def assert_as_exact(found, tensors, graph, **options):
    """No further from float64 than the reference in the same precision, and some rounding."""

    def same(x, dtype):
        return x.detach().to(dtype).requires_grad_() if isinstance(x, torch.Tensor) else x

    def reference(dtype):
        terms = {name: same(x, dtype) for name, x in options.items()}
        return results([same(x, dtype) for x in tensors], graph, **terms, kernel="reference")

    exact, kind = reference(torch.float64), tensors[0].dtype
    limits = zip(errors(found, exact), errors(reference(kind), exact), exact, strict=True)
    for mine, theirs, right in limits:
        assert mine <= 2 * theirs + 400 * torch.finfo(kind).eps * (1 + right.abs().max().item())


@given(
    st.integers(1, 5),
    st.integers(1, 2),
    st.sampled_from([2, 3, 30]),
    st.sampled_from([1, 3, 8, 16, 21]),
    st.sampled_from([1, 5, 16, 24]),
    st.sampled_from(DTYPES),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_heads_in_any_order(keys, shared, n, d, dv, dtype, beside, biased):
    graph = hub(n, min(n, 9))
    tensors = drawn((keys * shared, keys, keys), n, (d, d, dv), dtype, beside)
    edges = edges_of(graph, n, n, torch.device("cpu")).edges
    edge_bias = torch.randn(keys * shared, edges).to(dtype)
    edge_bias.requires_grad_()
    options = {"edge_bias": edge_bias} if biased else {}
    found = results(tensors, graph, **options, kernel="csr")
    assert_as_exact(found, tensors, graph, **options)


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_hub_is_cut_and_put_together(beside, dtype):
    n = 1300
    graph = hub(n, 1200)
    index = edges_of(graph, n, n, torch.device("cpu"))
    assert len(index.rows.split) == len(index.columns.split) == 1
    tensors = drawn((2, 2, 2), n, (5, 5, 9), dtype, beside)
    found = results(tensors, graph, kernel="csr")
    assert not found[0][:, -1].any()
    assert_as_exact(found, tensors, graph)


def test_what_is_not_a_number_in_a_part_of_a_hub_stays():
    n = 1300
    q, k, v = drawn((2, 2, 2), n, (4, 4, 4), torch.float32, True)
    k = k.detach().clone()
    k[0, 1100] = torch.nan
    out = attention(q, k, v, hub(n, 1200), kernel="csr")
    assert out[0, 0].isnan().all()
    assert not out[1].isnan().any()


def test_a_hub_that_its_bias_masks():
    n = 1300
    graph = hub(n, 1200)
    tensors = drawn((1, 1, 1), n, (4, 4, 4), torch.float32, False)
    i, _ = graph.edges(n)
    bias = torch.where(i == 0, -torch.inf, 0.0)[None]
    out = attention(*tensors, graph, edge_bias=bias, kernel="csr")
    assert not out[0, 0].any()
    assert torch.isfinite(out).all()


def test_the_same_sums_whatever_the_threads():
    n = 1300
    graph, before, found = hub(n, 1200), torch.get_num_threads(), []
    tensors = drawn((4, 4, 4), n, (16, 16, 16), torch.float32, True)
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(results(tensors, graph, kernel="csr"))
    torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))
