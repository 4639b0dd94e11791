"""Attention on several ranks is that of one process, and sends what its plan predicts."""

import pytest
import torch
from rank_cases import (
    every_graph,
    every_term,
    graphs_of_heads,
    half_precision,
    in_blocks,
    mistakes,
    moved_queries,
    one_rank_needs_no_gradient,
    order_of_events,
)
from rank_harness import RANKS, on_ranks

from edgewise import attention
from edgewise.distributed import Shards
from edgewise.distributed.errors import BadMesh
from edgewise.graphs import window

ORDERS = [{}, {"step": 3}, {"paired": True}]


CASES = [
    case
    for ranks in RANKS
    for case in (
        [(2, (4, 2), ORDERS)]
        if ranks == 2
        else [(ranks, (heads, heads), ORDERS[:1]) for heads in (1, 2, ranks)]
    )
]


@pytest.mark.parametrize(("ranks", "heads", "orders"), CASES)
def test_every_graph_gives_what_one_process_gives(ranks, heads, orders):
    ways = on_ranks(every_graph, ranks, heads, orders)
    assert all(one == ways[0] for one in ways)
    kinds = {kind for kind, _ in ways[0]}
    assert "exchange" in kinds
    assert ("heads" in kinds) == (ranks > 2 and heads[1] > 1)  # on two ranks they are no cheaper


@pytest.mark.parametrize("ranks", RANKS)
def test_heads_with_graphs_of_their_own_receive_no_more_than_all_keys_or_some_heads(ranks):
    for found in on_ranks(graphs_of_heads, ranks):
        assert max(far for far, _, _ in found.values()) <= 1e-12, found
        assert max(share for _, share, _ in found.values()) <= 1, found
        assert len({together for _, _, together in found.values()}) == 2


@pytest.mark.parametrize("ranks", RANKS)
def test_queries_may_be_computed_on_other_ranks(ranks):
    found = on_ranks(moved_queries, ranks)
    assert max(far for one in found for far, _ in one.values()) <= 1e-12, found
    if ranks > 2:
        moved = {name for one in found for name, (_, other) in one.items() if other}
        assert len({graph for graph, *_ in moved}) >= 5, moved


@pytest.mark.parametrize("ranks", RANKS)
def test_blocks_of_queries_and_keys_are_merged(ranks):
    for found in on_ranks(in_blocks, ranks):
        assert len(found) == 30
        assert max(found.values()) <= 1e-12, found


def test_rows_are_sent_before_anything_is_computed():
    for found in on_ranks(order_of_events, 4):
        near, strides = found.values()
        for events in (near, strides):
            forward = events[: events.index("|")]
            first = forward.index("forward")
            assert {"send keys", "send queries", "send other order"} & set(forward[:first])
            assert not any(event.startswith("wait") for event in forward[:first])
        assert near.index("send queries") < near.index("forward") < near.index("wait keys")
        backward = near[near.index("|") :]
        sent, waited = backward.index("send keys back"), backward.index("wait keys back")
        assert "backward" in backward[sent:waited]  # of own keys, while gradients travel


@pytest.mark.parametrize(
    ("ranks", "heads"), [(ranks, (4, 2) if ranks == 2 else (ranks, ranks)) for ranks in RANKS]
)
def test_biases_and_scores_are_those_of_tokens(ranks, heads):
    for found in on_ranks(every_term, ranks, heads, 7):
        assert len(found) > 12
        assert max(found.values()) <= 1e-12, found


def test_a_rank_whose_inputs_need_no_gradient_does_not_stop_the_others():
    assert on_ranks(one_rank_needs_no_gradient, 2)[0] > 0


def test_a_mistake_on_one_rank_is_an_error_on_all():
    first, second = on_ranks(mistakes, 2)
    assert first["graphs"] == second["graphs"] == ("ranks-differ", True)
    assert first["dtypes"][0] == "ranks-differ"
    assert (first["a rank's tensors"][0], second["a rank's tensors"][0]) == (
        "ranks-differ",
        "attention-shape",
    )
    for one in (first, second):
        assert one["tokens"][0] == "attention-shape"
        assert one["ranks"][0] == "bad-shards"
        assert one["lengths"][0] == "bad-option"
        for what in ("other lengths", "functions", "gradient mode"):
            assert one[what][0] == "ranks-differ"
        for refused in ("offset", "return_lse", "kernel", "edge_bias"):
            assert one[refused][0] == "not-distributed"
    of_one = {"no tensor": "unsupported-dtype", "no shards": "bad-shards", "one": "not-distributed"}
    of_one["another device"] = "bad-mesh"
    for what, code in of_one.items():
        assert (first[what][0], second[what][0]) == ("ranks-differ", code)
    assert "the same function" not in first


def test_half_precision_is_as_near_as_on_one_process():
    for far, near in on_ranks(half_precision, 2):
        assert far <= 2 * near + 1e-2


@pytest.mark.parametrize("mesh", [4, "cp", object()])
def test_what_is_no_mesh_is_refused(mesh):
    x = torch.zeros(1, 2, 8, 4)
    with pytest.raises(BadMesh):
        attention(x, x, x, window(1), mesh=mesh)


def test_shards_need_a_mesh():
    x = torch.zeros(1, 2, 8, 4)
    with pytest.raises(BadMesh):
        attention(x, x, x, window(1), shards=Shards(8, 1))
