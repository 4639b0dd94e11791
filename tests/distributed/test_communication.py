"""Plans for any number of ranks, computed: the shares of gathering all keys."""

import time

import numpy as np
import pytest
from rank_cases import GRAPHS, N

from edgewise.distributed import RowSizes, Shards, best_shards, communication
from edgewise.distributed.needs import needs_of
from edgewise.graphs import bigbird, causal, global_tokens, strided, window

MILLION = 1 << 20
SIZES = RowSizes(heads=8, d=64)


@pytest.mark.parametrize(
    ("graph", "ranks", "most"),
    [
        (window(256), 8, 0.06),
        (window(256), 64, 0.05),
        (window(256) | global_tokens(16), 64, 0.06),
        (bigbird(64, 3, seed=0), 64, 4.7),
        (causal() & strided(64), 64, 0.0),
    ],
)
def test_the_worst_rank_receives_a_small_share(graph, ranks, most):
    shards = best_shards(graph, MILLION, ranks)
    found = communication(graph, tokens=MILLION, ranks=ranks, sizes=SIZES, shards=shards)
    assert round(100 * found.share, 2) <= most
    assert sum(found.received.values(), np.zeros(ranks)).max() == found.worst


@pytest.mark.parametrize("heads", [1, 8])
@pytest.mark.parametrize("ranks", [1, 2, 8])
@pytest.mark.parametrize("graph", GRAPHS, ids=repr)
def test_no_way_is_better_than_the_one_chosen(graph, ranks, heads):
    found = communication(graph, tokens=N, ranks=ranks, sizes=RowSizes(heads=heads, d=8))
    assert found.worst <= found.gathered
    if heads % ranks == 0:
        assert found.worst <= found.by_heads
    assert found.worst <= min(found.decision.others.values(), default=found.worst)
    assert found.pairs.sum() == graph.count(N)
    assert found.imbalance >= 1 - 1e-9
    assert found.memory > 0
    assert found.seconds(bandwidth=1e9) >= 0
    assert found.to_json()["worst"] == found.worst


def test_a_rank_plans_a_million_tokens_at_once():
    graphs = [window(256) | global_tokens(16), bigbird(64, 3, seed=0)]
    for graph in graphs:
        needs_of(graph, Shards(MILLION, 512), 0)
        start = time.process_time()
        needs_of(graph, Shards(MILLION, 512), 100)
        assert time.process_time() - start < 0.15


def test_causal_attention_is_balanced_by_pairs_of_pieces():
    skewed = communication(causal(), tokens=4096, ranks=4)
    even = communication(causal(), tokens=4096, ranks=4, shards=Shards(4096, 4, paired=True))
    assert skewed.imbalance > 1.7
    assert even.imbalance == pytest.approx(1.0)
