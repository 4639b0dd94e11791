"""A node of many edges is no case for sums that a GPU does one after another."""

import pytest
import torch

from edgewise.graphs import global_tokens, random_edges, window
from edgewise.kernels.attention import Case, choose, union
from edgewise.kernels.attention.registry import IMPLEMENTATIONS

pytest.importorskip("triton")
N = 16_384


def case(graph):
    return Case(12, 1, N, N, 64, 64, torch.bfloat16, "cuda", graph, 0.125)


def test_global_tokens_are_not_gathered():
    chosen = choose(case(window(512) | global_tokens(1)))
    assert chosen.name == "union"
    parts, _ = union._plan(case(window(512) | global_tokens(1)))
    assert [kernel.name for kernel, _ in parts] == ["triton_blocks", "triton_csr"]


def test_hubs_cost_where_sums_wait_for_each_other():
    gather = next(kernel for kernel in IMPLEMENTATIONS if kernel.name == "gather")
    star, spread = global_tokens(1), random_edges(2, seed=0)
    on_cpu = [Case(**{**vars(case(graph)), "device": "cpu"}) for graph in (star, spread)]
    ratio = gather.cost(case(star)) / gather.cost(case(spread))
    assert ratio > 50 * gather.cost(on_cpu[0]) / gather.cost(on_cpu[1])
