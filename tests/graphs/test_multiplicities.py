"""Pairs that publications count more than once: told, and counted by a bias."""

import pytest
import torch

from edgewise.graphs import bigbird, full, per_head
from edgewise.kernels.attention import attention
from edgewise.kernels.attention.errors import PairsCountedOnce


def test_attention_says_that_pairs_count_once() -> None:
    x = torch.randn(1, 1, 1024, 4)
    graph = bigbird(variant="hf_eval")
    with pytest.warns(PairsCountedOnce):
        once = attention(x, x, x, graph)
    counted = attention(x, x, x, graph, edge_bias=graph.log_bias(1024))
    assert torch.equal(once, attention(x, x, x, graph & full()))  # an expression is a set
    weight = graph.multiplicities(1024).float().log()
    dense = torch.full((1024, 1024), -torch.inf)
    dense[*graph.edges(1024)] = weight
    wanted = torch.softmax(x @ x.mT / 2 + dense, -1) @ x
    torch.testing.assert_close(counted, wanted, rtol=1e-4, atol=1e-5)
    assert (once - counted).abs().max() > 1e-3


def test_a_head_among_others_is_told_of_too() -> None:
    x = torch.randn(1, 2, 64, 4)
    with pytest.warns(PairsCountedOnce):
        attention(x, x, x, per_head(full(), bigbird(4, 1, variant="hf_eval")))


def test_a_uniform_bigbird_counts_each_pair_once() -> None:
    assert (bigbird(4, 1).multiplicities(64) == 1).all()
    x = torch.randn(1, 2, 64, 4)
    attention(x, x, x, bigbird(4, 1))
