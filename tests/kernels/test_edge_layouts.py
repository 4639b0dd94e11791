"""Kernels along edges on a CPU take any strides, any integers and any repetition of edges."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from segment_cases import KINDS

from edgewise.graphs import from_edges
from edgewise.kernels.attention import attention
from edgewise.kernels.attention.errors import KernelRefuses
from edgewise.kernels.edges import additive_attention, edge_index, index, segment_index

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-10, torch.float16: 2e-2, torch.bfloat16: 1e-1}


def strided(x, layout):
    """The same numbers with other strides."""
    if layout == "transposed":
        return x.mT.contiguous().mT
    if layout == "every second":
        return x.repeat_interleave(2, -1)[..., ::2]
    if layout == "rows apart":
        return torch.cat([x, x], -1)[..., : x.shape[-1]]
    if layout == "offset":
        return torch.cat([x[..., :1, :], x], -2)[..., 1:, :]
    if layout == "heads side by side" and x.ndim == 3:
        return x.transpose(0, 1).contiguous().transpose(0, 1)
    return x


layouts = st.sampled_from(
    ["contiguous", "transposed", "every second", "rows apart", "offset", "heads side by side"]
)


def reduced(kind, which, x):
    return with_gradients(partial(KINDS[kind], which=which), x)


def attended(which, q, k, v, vector=None, slope=1.0):
    leaves = [x for x in (q, k, v, vector) if x is not None]

    def run(q, k, v, vector=None):
        return additive_attention(q, k, v, which, vector=vector, slope=slope)

    return with_gradients(run, *leaves)


def edges(seed, count, n, m, kind=torch.int64):
    random = torch.Generator().manual_seed(seed)
    i, j = (torch.randint(size, (count,), generator=random) for size in (n, m))
    return i.sort().values.to(kind), j.to(kind)


def with_gradients(run, *leaves):
    out = run(*leaves)
    finite = torch.where(out.isinf(), 0, out)
    return out, *torch.autograd.grad(finite.square().sum(), leaves)


def numbers(shape, dtype, seed=0):
    random = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=random, dtype=torch.float64).to(dtype)


def assert_same(found, expected, dtype):
    near = {"atol": TOLERANCE[dtype], "rtol": TOLERANCE[dtype]}
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, **near, check_stride=False)


@pytest.mark.parametrize("kind", KINDS)
@given(
    layouts,
    st.sampled_from(DTYPES),
    st.sampled_from([torch.int32, torch.int64]),
    st.sampled_from([0, 1, 40]),
    st.sampled_from([1, 3, 16]),
)
@settings(max_examples=15, deadline=None)
def test_segments_of_any_layout(kind, layout, dtype, integers, count, d):
    x = numbers((7, d), dtype).requires_grad_()
    plain = edge_index(*edges(1, count, 5, 7), 5, 7)
    other = edge_index(*edges(1, count, 5, 7, integers), 5, 7)
    found = with_gradients(lambda x: KINDS[kind](strided(x, layout), other), x)
    assert_same(found, reduced(kind, plain, x), dtype)


@given(layouts, layouts, layouts, st.sampled_from(DTYPES), st.booleans(), st.sampled_from([1, 5]))
@settings(max_examples=25, deadline=None)
def test_attention_of_any_layout(for_q, for_k, for_v, dtype, shared, dv):
    graph = from_edges(torch.stack(edges(2, 30, 6, 6)))
    q, k, v = numbers((4, 6, 3), dtype), numbers((2 if shared else 4, 6, 3), dtype, 1), None
    v = numbers((len(k), 6, dv), dtype, 2)
    leaves = [x.requires_grad_() for x in (q, k, v)]

    def run(kernel, *how):
        def attend(*tensors):
            read = [strided(x, layout) for x, layout in zip(tensors, how, strict=True)]
            return attention(*read, graph, kernel=kernel)

        return with_gradients(attend, *leaves)

    expected = run("reference", *["contiguous"] * 3)
    pytest.importorskip("numba", reason="numba is not installed")
    assert_same(run("csr", for_q, for_k, for_v), expected, dtype)


@given(st.integers(2, 4), st.booleans(), st.sampled_from([0.0, 0.5]))
@settings(max_examples=10, deadline=None)
def test_edges_that_are_all_repeated_change_no_mean(times, vector, slope):
    """Softmax over copies of each edge gives the same output and gradients."""
    i, j = edges(3, 20, 5, 6)
    once = edge_index(i, j, 5, 6)
    again = edge_index(i.repeat_interleave(times), j.repeat_interleave(times), 5, 6)
    d = 3 if vector else 1
    leaves = [numbers((2, n, d), torch.float64, n).requires_grad_() for n in (5, 6)]
    leaves.append(numbers((2, 6, 4), torch.float64).requires_grad_())
    if vector:
        leaves.append(numbers((2, 1, d), torch.float64).requires_grad_())
    found, expected = (attended(which, *leaves, slope=slope) for which in (again, once))
    assert_same(found, expected, torch.float64)
    x = numbers((6, 4), torch.float64).requires_grad_()
    for kind in ("mean", "max", "min"):
        assert_same(reduced(kind, again, x), reduced(kind, once, x), torch.float64)
    torch.testing.assert_close(KINDS["sum"](x, again), times * KINDS["sum"](x, once))


@pytest.mark.parametrize("n", [0, 1, 5])
def test_segments_of_one_edge_are_their_row(n):
    x = numbers((n, 3), torch.float32)
    own = segment_index(torch.arange(n), n)
    for kind in KINDS.values():
        assert torch.equal(kind(x, own), x)
    value = numbers((2, n, 4), torch.float32)
    score = numbers((2, n, 1), torch.float32)
    torch.testing.assert_close(additive_attention(score, score, value, own), value)


@pytest.mark.parametrize("hub", [0, 700])
def test_numbers_beyond_int32(monkeypatch, hub):
    """Sizes decide: rows, segments, edges, and copies of all of them."""
    i, j = edges(4, 30, 5, 6)
    i = torch.cat([torch.zeros(hub, dtype=torch.int64), i])
    j = torch.cat([torch.arange(hub) % 6, j])
    small = edge_index(i, j, 5, 6)
    monkeypatch.setattr(index, "SMALL", 2 * len(i))
    assert {x.dtype for x in small.repeated(2).tensors} == {torch.int64}
    monkeypatch.setattr(index, "SMALL", 7)
    large = edge_index(i, j, 5, 6)
    assert {x.dtype for x in large.tensors} == {torch.int64}
    x = numbers((6, 3), torch.float64).requires_grad_()
    for kind in KINDS:
        assert_same(reduced(kind, large, x), reduced(kind, small, x), torch.float64)
    leaves = [numbers((2, n, 1), torch.float64, n).requires_grad_() for n in (5, 6)]
    leaves.append(numbers((2, 6, 4), torch.float64).requires_grad_())
    assert_same(attended(large, *leaves), attended(small, *leaves), torch.float64)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_graph_without_edges(dtype):
    graph = from_edges(torch.zeros(2, 0, dtype=torch.int64))
    q, k, v = (numbers((2, 4, 3), dtype, seed).requires_grad_() for seed in range(3))
    found = with_gradients(lambda *leaves: attention(*leaves, graph), q, k, v)
    assert not any(x.any() for x in found)
    with pytest.raises(KernelRefuses, match="there are no pairs"):
        attention(q, k, v, graph, kernel="csr")
