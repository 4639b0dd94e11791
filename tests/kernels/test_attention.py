"""Every kernel computes what the reference computes."""

import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch
from cases import Call, assert_no_worse_than_reference, calls, graphs, radii, simple
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from edgewise.errors import EdgewiseError
from edgewise.graphs import (
    blocks,
    causal,
    dilated,
    documents,
    full,
    global_tokens,
    per_head,
    per_sample,
    prefix,
    random_edges,
    strided,
    tree,
    window,
)
from edgewise.kernels.attention import IMPLEMENTATIONS, attention, block_counts, case_of, choose
from edgewise.kernels.attention.block_counts import count_of
from edgewise.kernels.attention.errors import KernelRefuses
from edgewise.scores import softcap

KERNELS = [
    implementation.name
    for implementation in IMPLEMENTATIONS
    # test_triton.py, test_tiled.py, test_flash4.py
    if not implementation.name.startswith(("triton", "tiled", "flash4"))
]
NUMBA = pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed")
EACH = [pytest.param(name, marks=NUMBA) if name == "csr" else name for name in KERNELS]


def same_keys(low):
    """Runs of three queries that attend to themselves and to two keys more."""
    return blocks(3) | full().restrict(keys=(low, low + 2))


ACCEPTED = {
    "empty": st.builds(lambda a: a - full(), simple),
    "dense": st.sampled_from([full(), causal()]),
    "sliced": st.builds(
        lambda low, size: full().restrict(keys=(low, low + size)), radii, st.integers(1, 30)
    ),
    "rectangles": st.one_of(
        st.sampled_from([full(), causal()]), st.integers(1, 9).map(blocks), st.builds(prefix, radii)
    ),
    "slabs": st.one_of(st.just(full()), st.integers(1, 9).map(blocks), st.builds(same_keys, radii)),
    "permuted": st.one_of(
        st.integers(2, 5).map(strided),
        st.builds(dilated, radii, st.integers(2, 3)),
        st.integers(2, 5).map(lambda step: strided(step) & causal()),
    ),
    "union": st.builds(lambda a, b: a | b, simple, simple),
}


@pytest.mark.parametrize("kernel", EACH)
@given(data=st.data())
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_is_as_exact_as_the_reference(kernel, data):
    call = data.draw(calls(ACCEPTED.get(kernel, graphs)))
    try:
        assert_no_worse_than_reference(call, kernel)
    except KernelRefuses:
        assume(False)


LAYOUTS = {
    "features apart": lambda x: torch.stack([x, x + 1], -1)[..., 0],
    "features before tokens": lambda x: x.transpose(-1, -2).contiguous().transpose(-1, -2),
    "tokens before heads": lambda x: x.transpose(-2, -3).contiguous().transpose(-2, -3),
    "one sample for all": lambda x: x[:1, :1].expand(x.shape),
    "one token for all": lambda x: x[..., :1, :].expand(x.shape),
    "one feature for all": lambda x: x[..., :1].expand(x.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kernel", EACH)
@pytest.mark.parametrize("n", [7, 40])
def test_layouts_in_memory_do_not_matter(kernel, layout, n):
    """The output, with and without the log-sum-exp, and the gradients."""
    graph = {
        "dense": full(),
        "sliced": full().restrict(keys=(2, 6)),
        "permuted": strided(3),
        "empty": window(1) - window(1),
    }.get(kernel, blocks(16) | window(2) if kernel == "union" else blocks(16))
    random = torch.Generator().manual_seed(0)
    inputs = [LAYOUTS[layout](torch.randn(2, 2, n, 8, generator=random)) for _ in range(4)]

    def found(q, k, v, weight):
        for x in (q, k, v):
            x.requires_grad_()
        out, lse = attention(q, k, v, graph, kernel=kernel, return_lse=True)
        alone = attention(q, k, v, graph, kernel=kernel)
        grads = torch.autograd.grad((out, alone), (q, k, v), (weight, weight))
        return out, alone, lse, *grads

    ours, right = found(*inputs), found(*(x.detach().contiguous() for x in inputs))
    torch.testing.assert_close(ours, right)


@pytest.mark.parametrize("shared", ["k", "v", "kv"])
@pytest.mark.parametrize("kernel", ["blocks", pytest.param("csr", marks=NUMBA), "gather"])
def test_samples_may_share_keys_and_values_in_memory(kernel, shared):
    random = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 2, 40, 8, generator=random, dtype=torch.float64) for _ in range(3))
    k = k[:1, :1].expand(k.shape) if "k" in shared else k
    v = v[:1, :1].expand(v.shape) if "v" in shared else v

    def found(*inputs, kernel):
        inputs = [x.detach().requires_grad_() for x in inputs]
        out = attention(*inputs, blocks(16), kernel=kernel, score=softcap(2.0))
        return out, *torch.autograd.grad(out.square().sum(), inputs)

    right = found(q, k.contiguous(), v.contiguous(), kernel="reference")
    torch.testing.assert_close(found(q, k, v, kernel=kernel), right)


@given(call=calls())
@settings(max_examples=40, deadline=None)
def test_what_is_chosen_is_as_exact_as_the_reference(call):
    assert_no_worse_than_reference(call, None)


@pytest.mark.parametrize("kernel", EACH)
def test_gradients_are_those_of_the_function(kernel):
    special = {
        "empty": window(3) - full(),
        "dense": causal(),
        "sliced": full().restrict(keys=(1, 4)),
        "rectangles": prefix(2),
        "slabs": same_keys(1),
        "permuted": strided(2),
    }
    graph = special.get(kernel, window(1) | strided(3))
    call = Call(graph, heads=1, shared=2, n=6, m=6, d=3, dv=2, dtype=torch.float64)
    assert_gradients(call, kernel)


def assert_gradients(call, kernel):
    names, tensors = zip(*call.tensors().items(), strict=True)

    def run(*inputs):
        out, lse = call.run(dict(zip(names, inputs, strict=True)), kernel, return_lse=True)
        return out, torch.where(lse == -torch.inf, 0, lse)

    assert torch.autograd.gradcheck(run, [x.requires_grad_() for x in tensors], fast_mode=True)


@pytest.mark.parametrize("graph", [None, full(), causal()])
def test_dense_graphs_are_sdpa(graph):
    q, k, v = (torch.randn(2, 3, 9, 4) for _ in range(3))
    expected = scaled_dot_product_attention(q, k, v, is_causal=graph == causal())
    assert torch.equal(attention(q, k, v, graph), expected)


def test_a_bias_counts_only_on_the_pairs_of_the_graph():
    q, k, v = (torch.randn(2, 3, 9, 4) for _ in range(3))
    bias = torch.randn(3, 9, 9)
    graph = window(2)
    expected = scaled_dot_product_attention(
        q, k, v, attn_mask=bias.masked_fill(~graph.dense(9), -torch.inf)
    )
    torch.testing.assert_close(attention(q, k, v, graph, bias=bias), expected)


def test_an_offset_continues_a_sequence():
    q, k, v = (torch.randn(2, 9, 4) for _ in range(3))
    graph = causal() & window(3)
    whole = attention(q, k, v, graph)
    torch.testing.assert_close(attention(q[:, 7:], k, v, graph, offset=7), whole[:, 7:])


@pytest.mark.parametrize("graph", [full(), causal(), window(2), window(1) | strided(4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_keys_beyond_the_length_do_not_exist(graph, dtype):
    q, k, v = (torch.randn(3, 2, 9, 4).to(dtype) for _ in range(3))
    lengths = torch.tensor([9, 4, 0])
    out, lse = attention(q, k, v, graph, lengths=lengths, return_lse=True)
    for b, length in enumerate(lengths.tolist()):
        cut = attention(q[b], k[b, :, :length], v[b, :, :length], graph.restrict(keys=(0, length)))
        torch.testing.assert_close(
            out[b], cut, atol=2e-3 if dtype != torch.float32 else 1e-5, rtol=0.02
        )
    assert (lse[2] == -torch.inf).all()
    assert (out[2] == 0).all()


@pytest.mark.parametrize("graph", [full(), window(2), random_edges(4, seed=0)], ids=repr)
@pytest.mark.parametrize("low", ["bias", "edge_bias", "scores"])
def test_keys_beyond_the_length_get_nothing_where_all_others_are_low(graph, low):
    q, k, v = (torch.rand(1, 2, 9, 4, dtype=torch.float64) + 1 for _ in range(3))
    pairs = graph.edges(9)[1]
    more = {
        "bias": {"bias": torch.zeros(9, 9).index_fill(1, torch.arange(5), -torch.inf)},
        "edge_bias": {"edge_bias": torch.where(pairs < 5, -torch.inf, 0.0)},
        "scores": {},
    }[low]
    if low == "scores":
        k[:, :, :5] *= -1e6
    q, k, v = (x.requires_grad_() for x in (q, k, v))
    lengths = torch.tensor([5])
    out, weights = attention(q, k, v, graph, lengths=lengths, return_weights=True, **more)
    first = torch.full((9,), 9).scatter_reduce(0, *graph.edges(9), "amin")
    heard = 1.0 if low == "scores" else 0.0
    total = torch.zeros(9, dtype=torch.float64).index_add(0, graph.edges(9)[0], weights[0, 0])
    torch.testing.assert_close(total, torch.where(first < 5, heard, 0.0).double())
    assert (weights[..., pairs >= 5] == 0).all()
    assert heard or (out == 0).all()
    grads = torch.autograd.grad(out.sum(), (q, k, v))
    assert all(grad.isfinite().all() for grad in grads)
    assert (grads[2][:, :, 5:] == 0).all()


def test_weights_come_per_pair_and_carry_gradients():
    q, k, v = torch.randn(2, 4, 9, 3), torch.randn(2, 2, 9, 3), torch.randn(2, 2, 9, 5)
    q.requires_grad_()
    graph, lengths = window(2) & causal(), torch.tensor([9, 4])
    bias = torch.randn(4, graph.count(9))
    out, weights = attention(q, k, v, graph, edge_bias=bias, lengths=lengths, return_weights=True)
    dense = torch.zeros(2, 4, 9, 9)
    i, j = graph.edges(9)
    dense[..., i, j] = weights
    torch.testing.assert_close(dense @ v.repeat_interleave(2, 1), out)
    assert (dense[1, :, :, 4:] == 0).all()
    (grad,) = torch.autograd.grad((weights**2).sum(), q)
    assert grad.abs().sum() > 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("kernel", [None, "reference", "csr", "blocks"])
def test_weights_of_large_scores_are_shares(kernel, dtype):
    random = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, 20, 8, generator=random).to(dtype) for _ in range(3))
    graph, lengths = window(3).restrict(keys=(2, 18)), torch.tensor([20, 7])
    for size in (1, 30, 1000):
        asked = dict(lengths=lengths, return_weights=True)
        _, weights = attention(q * size, k, v, graph, kernel=kernel, **asked)
        _, exact = attention(*(x.double() for x in (q * size, k, v)), graph, **asked)
        assert ((weights >= 0) & (weights <= 1)).all()
        i, _ = graph.edges(20)
        total = torch.zeros(2, 3, 20).index_add(-1, i, weights)
        right = torch.zeros(2, 3, 20, dtype=torch.float64).index_add(-1, i, exact)
        torch.testing.assert_close(total, right.float(), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(weights.double(), exact, rtol=0, atol=1e-6 * (1 + size))


@pytest.mark.parametrize("kernel", [None, "reference", "traced"])
@pytest.mark.parametrize(("n", "m"), [(0, 5), (5, 0), (0, 0)])
def test_nothing_has_gradients_that_are_zero(n, m, kernel):
    def run(q, k, v, graph, **more):
        return attention(q, k, v, graph, **more)

    if kernel == "traced":
        torch.compiler.reset()
        run = torch.compile(run, fullgraph=True, backend="aot_eager")
    for graph in (None, causal(), window(2), strided(2), per_head(window(1), full())):
        q, k, v = (torch.randn(1, 2, size, 4, requires_grad=True) for size in (n, m, m))
        out = run(q, k, v, graph, kernel=None if kernel == "traced" else kernel)
        assert out.shape == q.shape
        out.sum().backward()
        for x in (q, k, v):
            assert x.grad is not None
            assert x.grad.shape == x.shape
            assert (x.grad == 0).all()


@pytest.mark.parametrize("scale", [-0.7, 0.0, 3.0])
def test_any_scale_is_allowed(scale):
    q, k, v = (torch.randn(2, 9, 4) for _ in range(3))
    graph, lengths = window(3), torch.tensor(6)
    mask = graph.dense(9) & (torch.arange(9) < 6)
    expected = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    torch.testing.assert_close(attention(q, k, v, graph, scale=scale, lengths=lengths), expected)


def test_each_head_may_have_its_own_graph():
    q, k, v = torch.randn(2, 4, 9, 4), torch.randn(2, 2, 9, 4), torch.randn(2, 2, 9, 4)
    graph = per_head(window(1), causal(), window(1), full())
    out = attention(q, k, v, graph)
    for head, pattern in enumerate(graph):
        one = attention(q[:, head], k[:, head // 2], v[:, head // 2], pattern)
        torch.testing.assert_close(out[:, head], one)


def test_dropout_keeps_the_mean_and_is_reproducible():
    q, k = torch.zeros(1, 64, 4), torch.zeros(1, 64, 4)
    v = torch.ones(1, 64, 1, requires_grad=True)
    torch.manual_seed(0)
    out = attention(q, k, v, window(20), dropout=0.5)
    assert 0.9 < out.mean().item() < 1.1
    torch.manual_seed(0)
    assert torch.equal(out, attention(q, k, v, window(20), dropout=0.5))
    (grad,) = torch.autograd.grad(out.sum(), v)
    assert grad.sum().item() == pytest.approx(out.sum().item(), rel=1e-5)


@pytest.mark.parametrize(
    ("graph", "kernel"),
    [
        (full(), "dense"),
        (causal(), "dense"),
        (window(64), "blocks"),
        (strided(64) & causal(), "permuted"),
        (dilated(64, 4), "permuted"),
        (documents([1000, 2096, 1000]) & causal(), "rectangles"),
        (tree([-1, *range(2047), 2047 // 2, *range(2048, 4095)]), "rectangles"),
        pytest.param(random_edges(8, seed=0), "csr", marks=NUMBA),
        pytest.param(window(64) | random_edges(2, seed=0), "union", marks=NUMBA),
        (window(3) - full(), "empty"),
    ],
)
def test_the_planner_knows_what_a_graph_is(graph, kernel):
    x = torch.zeros(1, 2, 4096, 64)
    assert choose(case_of(x, x, x, graph)).name == kernel


@pytest.mark.parametrize(("n", "m"), [(0, 5), (1, 1), (300, 300), (513, 700)])
def test_blocks_are_counted_without_being_listed(n, m):
    for graph in (
        window(40),
        strided(70) & causal(),
        window(3) | global_tokens(2),
        full() - full(),
    ):
        for block in (32, 64, 128, 256):
            assert count_of(graph, n, m, block) == graph.blocks(n, m, block=block).count


def test_blocks_of_large_graphs_are_counted_without_being_listed(monkeypatch):
    """Two triangles of 40,000 tokens have 390,000 blocks of 64, but few rows of blocks."""
    n = 80_000
    graph = documents([n // 2, n // 2]) & causal()
    monkeypatch.setattr(block_counts, "blocks_of", None)
    assert count_of(graph, n, n, 64) == 2 * (625 * 626 // 2)
    x = torch.zeros(1, 1, n, 8)
    assert choose(case_of(x, x, x, graph)).name == "rectangles"


def test_a_long_window_needs_little_memory():
    q, k, v = (torch.randn(1, 1, 16384, 16, requires_grad=True) for _ in range(3))
    graph = causal() & window(64)
    with torch.profiler.profile(profile_memory=True, acc_events=True) as profile:
        torch.autograd.grad(attention(q, k, v, graph).sum(), (q, k, v))
    most = max(event.cpu_memory_usage for event in profile.key_averages())
    assert most < 64 * q.numel() * q.element_size()  # all pairs would take 1024 times that of q


def test_the_choice_says_why_not_the_others():
    x = torch.zeros(1, 2, 4096, 64)
    choice = choose(case_of(x, x, x, window(64)))
    assert choice.name == "blocks"
    assert "not dense: the graph is neither full nor causal: 3.12%" in str(choice)
    assert "not csr: about" in str(choice)


x = torch.zeros(1, 2, 8, 4)
WRONG = [
    (lambda: attention(x, x[..., :3], x), "attention-shape", "features of `q` and `k` differ: 4"),
    (lambda: attention(x, x, x[:, :, :5]), "attention-shape", "`k` and `v` differ"),
    (lambda: attention(x, x[0], x), "attention-shape", "(2, 8, 4)"),
    (lambda: attention(x, x.repeat(2, 1, 1, 1), x.repeat(2, 1, 1, 1)), "attention-shape", "batch"),
    (lambda: attention(x.repeat(1, 2, 1, 1)[:, :3], x, x), "attention-shape", "heads"),
    (lambda: attention(x, x, x, documents([3, 4])), "graph-length", "covers 7 tokens"),
    (lambda: attention(x, x, x, per_head(full())), "graph-length", "1 patterns, `q` has 2 heads"),
    (lambda: attention(x, x, x, "causal"), "not-a-pattern", "got str"),
    (lambda: attention(x.long(), x, x), "unsupported-dtype", "`q` is int64"),
    (lambda: attention(x, x.double(), x), "unsupported-dtype", "`k` is float64, `q` is float32"),
    (lambda: attention(x.to("meta"), x, x), "unsupported-device", "`q` is on meta"),
    (lambda: attention(x, x, x, kernel="blokcs"), "unknown-kernel", "`blokcs`"),
    (lambda: attention(x, x, x, window(1), kernel="dense"), "kernel-refuses", "neither full nor"),
    (lambda: attention(x, x, x, bias=torch.zeros(9, 8)), "attention-shape", "(9, 8)"),
    (lambda: attention(x, x, x, edge_bias=torch.zeros(9)), "attention-shape", "(9,)"),
    (lambda: attention(x[0, 0], x[0, 0], x[0, 0], per_head(full())), "graph-length", "no axis of"),
    (lambda: attention(x, x, x, per_sample(full(), full())), "graph-length", "for 2 samples"),
    (lambda: attention(x[0], x[0], x[0], per_sample(full())), "graph-length", "(2, 8, 4)"),
    (lambda: attention(x, x, x, per_sample(per_head(full()))), "graph-length", "`q` has 2 heads"),
    (lambda: attention(x, x, x, per_sample(documents([3]))), "graph-length", "covers 3 tokens"),
    (lambda: attention(x, x, x, [full()]), "not-a-pattern", "got list"),
    (lambda: attention(x, x, x, dropout=1.0), "bad-option", "got 1.0"),
    (lambda: attention(x, x, x, lengths=torch.tensor([9])), "bad-option", "from 0 to 8"),
    (lambda: attention(x, x, x, lengths=torch.tensor([1, 2])), "attention-shape", "(2,)"),
    (lambda: attention(x, x, x, offset=-1), "bad-size", "offset"),
]


@pytest.mark.parametrize(("call", "code", "text"), WRONG, ids=[case[2] for case in WRONG])
def test_mistakes_have_a_code_and_a_next_step(call, code, text):
    with pytest.raises(EdgewiseError) as caught:
        call()
    assert caught.value.code == code
    assert text in caught.value.message
    assert caught.value.help
    assert __file__ in str(caught.value)


def test_triton_and_numba_are_loaded_only_where_they_run():
    code = """
import sys, torch
from edgewise.graphs import window
from edgewise.kernels.attention import attention
x = torch.zeros(1, 2, 300, 16)
attention(x, x, x, window(100), kernel="blocks")
assert "triton" not in sys.modules and "numba" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
