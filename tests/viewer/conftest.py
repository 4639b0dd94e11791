"""What tests of pages share."""

import pytest
import torch

from edgewise import view
from edgewise.attention_graphs.calls import AttentionCall
from edgewise.attention_graphs.graph import AttentionGraph
from edgewise.graphs import full


@pytest.fixture(scope="session")
def base_sized():
    """512 tokens in 12 layers of 12 heads, and their page."""
    q = 1.6 * torch.randn(12, 12, 512, 16, generator=torch.manual_seed(0))
    calls = [AttentionCall(f"layer.{k}", x, x.flip(0), full(), 0.25) for k, x in enumerate(q)]
    graph = AttentionGraph(tuple(f"token{i}" for i in range(512)), tuple(calls))
    return graph, view(graph)
