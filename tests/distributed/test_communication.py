"""Plans for any number of ranks, computed: the shares of gathering all keys."""

import time

import numpy as np
import pytest
from graphs.strategies import expressions
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_cases import GRAPHS, N

from edgewise.distributed import RowSizes, Shards, best_shards, communication
from edgewise.distributed.local_graphs import local_rows
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
        (causal() & (window(256) | strided(64)), 8, 23.47),
        (causal() & (window(256) | strided(64)), 64, 3.15),
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


@st.composite
def any_shards(draw):
    """Tokens on ranks, in any of the orders that there are."""
    n, ranks = draw(st.integers(0, 70)), draw(st.sampled_from([1, 2, 3, 4, 8, 16]))
    cuts = st.lists(st.integers(0, n), min_size=ranks - 1, max_size=ranks - 1)
    orders = {
        "step": st.integers(1, 5),
        "paired": st.booleans(),
        "cuts": cuts.map(lambda found: tuple(sorted(found))),
    }
    order = draw(st.sampled_from([*orders, "even"]))
    return Shards(n, ranks, **({order: draw(orders[order])} if order in orders else {}))


@settings(max_examples=60)
@given(expressions, any_shards(), st.integers(1, 2), st.integers(1, 3), st.sampled_from([2, 8]))
def test_no_graph_receives_more_than_all_keys_or_some_heads(graph, shards, times, group, itemsize):
    """Wherever ranks divide the heads of keys, as Ulysses needs it."""
    shared = times * shards.ranks
    sizes = RowSizes(heads=group * shared, key_heads=shared, d=8, itemsize=itemsize)
    found = communication(graph, shards=shards, sizes=sizes)
    assert found.worst <= min(found.gathered, found.by_heads)
    if group == 1 and not shards.cuts and shards.n % shards.ranks == 0:
        assert found.worst * shards.ranks <= 2 * found.gathered
    assert found.pairs.sum() == graph.count(shards.n)


def test_a_rank_plans_a_million_tokens_at_once():
    strides = causal() & strided(64)
    for graph in (window(256) | global_tokens(16), bigbird(64, 3, seed=0), strides):
        shards = best_shards(graph, MILLION, 512)
        needs_of(graph, shards, 0)
        start = time.process_time()
        keys, mine = needs_of(graph, shards, 100).keys, shards.tokens(100)
        rows = local_rows(graph, MILLION, mine)
        assert rows(mine).m + rows(keys).m == MILLION // 512 + keys.count
        assert time.process_time() - start < 0.15


def test_causal_attention_is_balanced_by_pairs_of_pieces():
    skewed = communication(causal(), tokens=4096, ranks=4)
    even = communication(causal(), tokens=4096, ranks=4, shards=Shards(4096, 4, paired=True))
    assert skewed.imbalance > 1.7
    assert even.imbalance == pytest.approx(1.0)
