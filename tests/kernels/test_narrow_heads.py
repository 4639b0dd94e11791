"""Heads of few features over many keys: PyTorch's kernel gets more, of zeros."""

import pytest
import torch

from edgewise import attention
from edgewise.graphs import causal, full
from edgewise.kernels.attention import flash
from edgewise.kernels.attention.errors import SecondDerivative

KEYS = flash.LONG


def written_out(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    return scores.masked_fill(~mask, -torch.inf).softmax(-1) @ v


@pytest.mark.parametrize("kernel", ["dense", "rectangles"])
@pytest.mark.parametrize("graph", [full(), causal()], ids=repr)
@pytest.mark.parametrize(("d", "dv"), [(1, 1), (2, 2), (8, 8), (15, 3), (8, 24), (17, 9)])
def test_values_and_gradients(kernel, graph, d, dv):
    torch.manual_seed(d)
    sides = [torch.randn(2, 3, KEYS, size) for size in (d, d, dv)]
    given = [side.clone().requires_grad_() for side in sides]
    exact = [side.double().requires_grad_() for side in sides]
    mask = torch.ones(KEYS, KEYS, dtype=torch.bool)
    right = written_out(*exact, mask.tril() if graph == causal() else mask)
    found = attention(*given, graph, kernel=kernel)
    assert found.shape == right.shape
    torch.testing.assert_close(found.double(), right, atol=2e-6, rtol=1e-5)
    weight = torch.randn_like(right)
    mine = torch.autograd.grad(found, given, weight.float())
    for one, other in zip(mine, torch.autograd.grad(right, exact, weight), strict=True):
        torch.testing.assert_close(one.double(), other, atol=1e-5, rtol=1e-4)


def test_in_other_precisions_and_without_a_second_derivative():
    q, k, v = (torch.randn(1, 1, KEYS, 8, dtype=torch.bfloat16) for _ in range(3))
    right = attention(q.float(), k.float(), v.float(), full())
    torch.testing.assert_close(attention(q, k, v, full()).float(), right, atol=1e-2, rtol=1e-2)
    given = q.float().requires_grad_()
    out = attention(given, k.float(), v.float(), full(), kernel="dense")
    with pytest.raises(SecondDerivative):
        torch.autograd.grad(out.sum(), given, create_graph=True)
