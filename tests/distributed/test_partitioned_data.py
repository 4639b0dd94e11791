"""Graph networks on a partition of their nodes give what they give on one process."""

import pytest
import torch
from partition_cases import every_program, keys_beyond, mistakes, ranks_that_differ
from rank_cases import every_graph_model, refused_partitions
from rank_harness import RANKS, on_ranks

from edgewise.distributed import partition_of, quality
from edgewise.distributed.errors import BadShards

pytest.importorskip("pymetis", reason="pymetis is not installed")


@pytest.mark.parametrize("ranks", RANKS)
def test_networks_give_what_they_give_on_one_process(ranks):
    for found in on_ranks(every_graph_model, ranks):
        assert len(found) == 15
        assert max(found.values()) <= 1e-12, found


@pytest.mark.parametrize("ranks", RANKS)
def test_bodies_of_every_kind_give_what_they_give_on_one_process(ranks):
    for found in on_ranks(every_program, ranks):
        assert len(found) == 64
        assert max(found.values()) <= 1e-12, found


def test_recursion_and_bad_partitions_are_refused_on_all_ranks():
    for found in on_ranks(refused_partitions, 2):
        assert found == ["not-distributed", *["bad-shards"] * 3]


def test_keys_beyond_the_nodes_have_rows():
    assert on_ranks(keys_beyond, 2) == [([[1, 7]], [4.0, 2.0])] * 2


def test_a_mistake_on_one_rank_is_an_error_on_all():
    first, second = on_ranks(mistakes, 2)
    both = {"values": "ranks-differ", "gradient mode": "ranks-differ"}
    assert first == both | {"rows": "ranks-differ", "rows, later": "ranks-differ"}
    assert second == both | {"rows": "bad-shards", "rows, later": "bad-shards"}


@pytest.mark.parametrize("ranks", RANKS)
def test_ranks_that_differ_are_told_on_all_ranks_and_go_on(ranks):
    differ = ["ranks-differ"] * 6
    expected = [*differ, "foreign-data"]
    *others, (codes, far) = on_ranks(ranks_that_differ, ranks)
    assert [expected] * (ranks - 1) == [found for found, _ in others]
    assert codes == [*differ[:3], "unknown-input", "dtype-mismatch", "bad-shards", "foreign-data"]
    assert max(far, *(other for _, other in others)) <= 1e-6


def communities(groups=8, size=40, seed=0):
    """Dense inside groups, whose nodes have shuffled numbers."""
    generator = torch.Generator().manual_seed(seed)
    inside = torch.randint(size, (2, groups * size * 6), generator=generator)
    group = torch.randint(groups, (1, inside.shape[1]), generator=generator)
    order = torch.randperm(groups * size, generator=generator)
    return order[inside + group * size]


def test_metis_finds_communities_that_contiguous_numbers_cut():
    edges, ranks = communities(), 4
    by_metis = quality(partition_of("metis", 320, ranks, edges), edges, ranks)
    plain = quality(partition_of("contiguous", 320, ranks), edges, ranks)
    assert by_metis.total < plain.total / 4
    assert by_metis.cut < 0.1 < plain.cut
    assert by_metis.imbalance < 1.3


def test_every_node_has_a_rank():
    for ranks in (1, 3):
        edges = torch.tensor([[0, 1, 1], [1, 2, 1]])
        for kind in ("contiguous", "metis"):
            found = partition_of(kind, 5, ranks, edges)
            assert found.shape == (5,)
            assert 0 <= int(found.min()) <= int(found.max()) < ranks
    assert partition_of("metis", 0, 2, torch.zeros(2, 0, dtype=torch.int64)).shape == (0,)


@pytest.mark.parametrize(("nodes", "ranks"), [(104, 64), (40, 40), (7, 5), (3, 8)])
def test_no_rank_is_left_empty_where_metis_finds_no_cut(nodes, ranks):
    """It puts all nodes of a dense graph on one of many ranks."""
    edges = torch.cartesian_prod(torch.arange(nodes), torch.arange(nodes)).T
    counts = torch.bincount(partition_of("metis", nodes, ranks, edges), minlength=ranks)
    assert int((counts > 0).sum()) == min(nodes, ranks)
    assert int(counts.max()) <= 2 * -(-nodes // ranks)


@pytest.mark.parametrize(
    "partition", [torch.tensor([0, 1]), torch.tensor([0.0, 1, 0]), torch.tensor([0, 2, 0]), "mets"]
)
def test_what_is_no_partition_is_refused(partition):
    with pytest.raises(BadShards):
        partition_of(partition, 3, 2)


@pytest.mark.parametrize(
    "edges",
    [torch.tensor([[0, 3], [1, 2]]), torch.tensor([[-1], [0]]), torch.ones(2, 3), torch.ones(3)],
)
def test_edges_are_pairs_of_the_nodes(edges):
    with pytest.raises(BadShards):
        partition_of("metis", 3, 2, edges)
    with pytest.raises(BadShards):
        quality(torch.tensor([0, 1, 1]), edges, 2)


def test_metis_needs_edges():
    with pytest.raises(BadShards, match="of which there are none"):
        partition_of("metis", 3, 2)
