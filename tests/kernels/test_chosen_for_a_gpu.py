"""What is chosen for a GPU: hubs are split, and no kernel computes what its parts cannot."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from edgewise.graphs import cache, causal, from_edges, full, global_tokens, random_edges, window
from edgewise.graphs.cache import cache_of
from edgewise.kernels.attention import (
    Case,
    attention,
    choose,
    dense,
    prepare,
    union,
)
from edgewise.kernels.attention.contract import touched_blocks
from edgewise.kernels.attention.registry import IMPLEMENTATIONS
from edgewise.kernels.attention.triton import settings as triton_settings

pytest.importorskip("triton")
N = 16_384


def case(graph):
    return Case(12, 1, N, N, 64, 64, torch.bfloat16, "cuda", graph, 0.125)


def test_a_window_and_global_tokens_are_one_launch():
    """Merging two outputs takes longer than a few more blocks."""
    assert choose(case(window(512) | global_tokens(1))).name == "triton_blocks"


def test_the_keys_of_one_query_are_split():
    """By torch where its dispatch is left to choose, elsewhere by a kernel of ours: heads that
    share keys as rows of one product are computed by programs that walk past all keys."""
    one = replace(case(full()), b=8, g=4, n=1, m=65_536, d=128, dv=128)
    assert choose(one).name == "dense"
    assert choose(replace(one, features=frozenset({"lse"}))).name == "triton_decoding"
    assert choose(replace(one, dtype=torch.float32)).name == "triton_decoding"
    assert choose(replace(one, n=4)).name == "triton_decoding"
    assert choose(replace(one, n=512)).name == "dense"


def test_caches_of_different_lengths_are_read_by_a_kernel():
    q, k = (torch.empty(32, heads, n, 128, device="meta").bfloat16() for heads, n in
            ((32, 1), (8, 8192)))  # fmt: skip
    lengths = torch.empty(32, dtype=torch.int64, device="meta")
    call = prepare(q, k, k, lengths=lengths, device="cuda")
    assert (call.choice.name, type(call.inner).__name__) == ("triton_decoding", "RaggedCaches")


def test_global_tokens_are_not_gathered():
    parts = union._plan(case(window(512) | global_tokens(1))).parts
    assert [kernel.name for kernel, _ in parts] == ["triton_blocks", "triton_csr"]


def test_hubs_cost_where_sums_wait_for_each_other():
    gather = next(kernel for kernel in IMPLEMENTATIONS if kernel.name == "gather")
    star, spread = global_tokens(1), random_edges(2, seed=0)
    on_cpu = [replace(case(graph), device="cpu") for graph in (star, spread)]
    ratio = gather.cost(case(star)) / gather.cost(case(spread))
    assert ratio > 50 * gather.cost(on_cpu[0]) / gather.cost(on_cpu[1])


def test_classes_are_not_dense_in_a_precision_that_fused_attention_lacks():
    """On a GPU it gives the log-sum-exp in 16 bits only; in 32 it gives no numbers at all."""
    from edgewise.graphs import causal, strided
    from edgewise.kernels.attention import permuted

    for dtype, allowed in ((torch.float32, False), (torch.bfloat16, True)):
        strides = replace(case(strided(64) & causal()), dtype=dtype)
        assert all((p[2].name == "dense") == allowed for p in permuted._plan(strides))
        full = replace(case(causal()), dtype=dtype, features=frozenset({"lse"}))
        assert (choose(full).name == "dense") == allowed
        assert choose(replace(full, features=frozenset())).name == "dense"


def test_float32_is_rounded_where_torch_allows_it():
    """By either of torch's settings, and another setting is another call."""
    from edgewise.kernels.attention.contract import allows_tf32

    before = torch.get_float32_matmul_precision()
    try:
        for setting, allowed in (("highest", False), ("high", True)):
            torch.set_float32_matmul_precision(setting)
            assert allows_tf32(torch.float32, "cuda") == allowed
            assert not allows_tf32(torch.float32, "cpu")
            assert not allows_tf32(torch.bfloat16, "cuda")
            tensors = torch.empty(3, 1, 2, 64, 8, device="meta")
            call = prepare(*tensors, window(9), device="cuda")
            assert call.inner.case.tf32 == allowed
            precision = triton_settings.precision_of(call.inner.case)
            assert precision == ("tf32" if allowed else "tf32x3")
    finally:
        torch.set_float32_matmul_precision(before)


def test_another_stride_compiles_no_other_score():
    """How far apart the tokens of a class are is a number that kernels read."""
    from edgewise.graphs import causal, strided
    from edgewise.kernels.attention import permuted
    from edgewise.kernels.attention.triton.score import functions, spaced
    from edgewise.scores import I, J, S, alibi

    score, found = (S + alibi(2)).node, []
    for step in (1, 3, 5):
        graph = strided(step) & causal()
        asked = replace(case(graph), features=frozenset({"score"}), score=score)
        inner = [p[1].score for p in permuted._plan(asked)] if step > 1 else [score]
        assert {spaced(one)[1] for one in inner} == {step}
        found += map(functions, inner)
    assert len(set(found)) == 1
    mixed = (S + I * 3 - J * 2).node
    assert spaced(mixed) == (mixed, 1)


def test_classes_of_odd_lengths_need_no_plan_of_cudnn():
    from edgewise.graphs import causal, strided
    from edgewise.kernels.attention import permuted

    for n, name in ((N, "dense"), (N - 64, "triton_blocks"), (N - 1, "triton_blocks")):
        strides = replace(case(strided(64) & causal()), n=n, m=n)
        assert {part[2].name for part in permuted._plan(strides)} == {name}
    wide = replace(strides, d=320, dv=320)
    assert {part[2].name for part in permuted._plan(wide)} == {"dense"}


def test_what_is_clearly_dearer_is_not_planned():
    """Planning a union, or all blocks of a random graph, takes longer than attention itself."""
    for graph, best, other, left_out in (
        (window(512) | global_tokens(2), "triton_blocks", "union", "_plan"),
        (random_edges(4, seed=1), "triton_csr", "triton_blocks", "blocks_of"),
        (window(100) | random_edges(2, seed=1), "union", "triton_blocks", "blocks_of"),
    ):
        cache.clear()
        asked = case(graph)
        found = choose(asked)
        assert found.name == best
        assert found.refusals[other].startswith("at least")
        made = [key[0].__name__ for key in cache_of(graph).at(asked.n, asked.m)]
        assert left_out not in made
        costs = {x.name: x.cost(case(graph)) for x in IMPLEMENTATIONS if x.name in (best, other)}
        assert costs[best] < costs[other]


def neighbourhood(side, radius):
    """All pairs of pixels at most `radius` apart in both directions."""
    y, x = (z.flatten() for z in torch.meshgrid(*[torch.arange(side)] * 2, indexing="ij"))
    edges = []
    for step in range(-radius, radius + 1):
        for along in range(-radius, radius + 1):
            inside = (y + step >= 0) & (y + step < side) & (x + along >= 0) & (x + along < side)
            i = (y * side + x)[inside]
            edges.append(torch.stack([i, i + step * side + along]))
    return from_edges(torch.cat(edges, 1))


def test_neighbourhoods_of_pixels_are_blocks():
    """They have many pieces, but in each block row the same blocks."""
    graph = neighbourhood(128, 6)
    assert choose(case(graph)).name == "triton_blocks"
    blocks = graph.blocks(N, N, block=64).count
    assert touched_blocks(graph, N, N, 64) == pytest.approx(blocks, rel=0.1)
    scattered = case(random_edges(64, seed=0))
    assert choose(scattered).name == "triton_csr"
    assert "scattered over about 6" in choose(scattered).refusals["triton_blocks"]


def test_shared_keys_are_read_once_where_torch_can():
    grouped = replace(case(full()), b=8, g=4, n=1)
    assert dense.takes_groups(grouped)
    for other in ({"dtype": torch.float32}, {"d": 96}, {"d": 12, "dv": 12}, {"device": "cpu"}):
        assert not dense.takes_groups(replace(grouped, **other))


@pytest.mark.parametrize("lead", [(2, 8), (8,)], ids=str)
@pytest.mark.parametrize("graph", [full(), causal()], ids=repr)
def test_torch_groups_heads_as_we_do(lead, graph, monkeypatch):
    """On a CPU too, where nothing is gained by it; and where torch may not, keys are repeated."""
    monkeypatch.setattr(dense, "takes_groups", lambda case: True)
    cache.clear()
    q = torch.randn(*lead, 20, 16, dtype=torch.float64, requires_grad=True)
    k, v = (torch.randn(*lead[:-1], 2, 20, 16).double().requires_grad_() for _ in range(2))
    found = []
    for kernel, backend in (
        ("dense", SDPBackend.FLASH_ATTENTION), ("dense", SDPBackend.MATH), ("reference", None)
    ):  # fmt: skip
        with nullcontext() if backend is None else sdpa_kernel(backend):
            out = attention(q, k, v, graph, kernel=kernel)
        found.append([out, *torch.autograd.grad(out.square().sum(), (q, k, v))])
    for mine, right in [*zip(found[0], found[2], strict=True), *zip(*found[1:], strict=True)]:
        torch.testing.assert_close(mine, right)
    cache.clear()
