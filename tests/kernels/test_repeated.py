"""A repeated call is looked up: it gives the same, and mistakes are still found."""

import pytest
import torch

from edgewise.graphs import bigbird, cache, causal, full, window
from edgewise.graphs.cache import cache_of
from edgewise.kernels.attention import Prepared, attention
from edgewise.kernels.attention.errors import AttentionShape, KernelRefuses, PairsCountedOnce


@pytest.fixture(autouse=True)
def nothing_cached():
    cache.clear()


def prepared_for(graph, n=12):
    entries = cache_of(graph).at(n, n)
    return [found for found in entries.values() if isinstance(found, Prepared)]


def tensors(n=12, d=4, **options):
    random = torch.Generator().manual_seed(0)
    shape = (2, 3, n, d)
    return [torch.randn(shape, generator=random, requires_grad=True, **options) for _ in range(3)]


@pytest.mark.parametrize("graph", [window(2), causal(), None, bigbird(2, 1)], ids=repr)
@pytest.mark.parametrize("scale", [None, 0.5, -0.5])
def test_the_second_call_gives_what_the_first_gave(graph, scale):
    q, k, v = tensors()
    first, second = (attention(q, k, v, graph, scale=scale) for _ in range(2))
    assert torch.equal(first, second)
    grads = [torch.autograd.grad(out.square().sum(), (q, k, v)) for out in (first, second)]
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))
    assert len(prepared_for(full() if graph is None else graph)) == 1


def test_another_graph_scale_or_kernel_is_another_call():
    q, k, v = tensors()
    outs = [
        attention(q, k, v, graph, scale=scale, kernel=kernel)
        for graph in (window(1), window(2))
        for scale in (None, 0.1)
        for kernel in (None, "reference")
        for _ in range(2)
    ]
    assert [len(prepared_for(window(radius))) for radius in (1, 2)] == [4, 4]
    for a in range(0, 16, 2):
        assert torch.equal(outs[a], outs[a + 1])
        others = [outs[b] for b in range(0, 16, 4) if b // 4 != a // 4]
        assert all(not torch.allclose(outs[a], other) for other in others)


def test_mistakes_are_found_after_calls_that_went_well():
    q, k, v = tensors()
    attention(q, k, v, window(1))
    with pytest.raises(AttentionShape):
        attention(q, k[:, :, :-1], v, window(1))
    for _ in range(2):
        with pytest.raises(KernelRefuses):
            attention(q, k, v, window(1), kernel="dense")


def test_warnings_come_every_time():
    q, k, v = tensors(32)
    for _ in range(2):
        with pytest.warns(PairsCountedOnce):
            attention(q, k, v, bigbird(2, 3, variant="hf_eval"))


def test_autocast_is_asked_every_time():
    q, k, v = tensors()
    assert attention(q, k, v, window(1)).dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert attention(q, k, v, window(1)).dtype == torch.bfloat16
    assert attention(q, k, v, window(1)).dtype == torch.float32
