"""Graphs that come from elsewhere: edges, matrices, trees, hashes."""

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from scipy.sparse import coo_matrix, csr_matrix
from strategies import forests

from edgewise.graphs import (
    from_dense,
    from_edges,
    from_networkx,
    from_pyg,
    from_scipy,
    lsh_of,
    syntax,
    tree,
)


@given(forests())
@settings(deadline=None, max_examples=80)
def test_a_tree_is_the_closure_of_its_parents(parents: list[int]) -> None:
    wanted = set()
    for i in range(len(parents)):
        j = i
        while j >= 0:
            wanted.add((i, j))
            j = parents[j]
    assert set(map(tuple, tree(parents).edges(len(parents)).T.tolist())) == wanted


@given(forests())
@settings(deadline=None, max_examples=40)
def test_syntax_is_distance_in_the_tree(heads: list[int]) -> None:
    graph = nx.Graph((i, head) for i, head in enumerate(heads) if head >= 0)
    graph.add_nodes_from(range(len(heads)))
    near = nx.all_pairs_shortest_path_length(graph, cutoff=3)
    wanted = {(i, j) for i, found in near for j in found}
    assert set(map(tuple, syntax(heads, 3).edges(len(heads)).T.tolist())) == wanted


def test_a_long_shared_prefix_stays_small() -> None:
    n = 100_000  # a trunk of half the tokens, and ten branches that share it
    parents = np.arange(-1, n - 1)
    parents[n // 2 :: n // 20] = n // 2 - 1
    assert len(tree(parents).rows(n).start) < 100


def test_the_same_graph_from_every_library() -> None:
    graph = nx.gnp_random_graph(20, 0.2, seed=1, directed=True)
    matrix = nx.to_numpy_array(graph)
    index = torch.tensor(list(graph.edges)).T
    wanted = from_dense(matrix)
    assert from_networkx(graph) == wanted
    assert from_scipy(csr_matrix(matrix)) == wanted
    assert from_edges(index, shape=(20, 20)) == wanted
    assert from_edges(list(graph.edges), shape=(20, 20)) == wanted
    assert from_pyg(index.flip(0), 20) == wanted
    assert torch.equal(wanted.dense(20), torch.from_numpy(matrix).bool())
    assert (
        from_networkx(nx.path_graph(4)).dense(4).T.equal(from_networkx(nx.path_graph(4)).dense(4))
    )


def test_what_scipy_stores_twice_is_added_up() -> None:
    twice = coo_matrix(([1.0, -1.0, 2.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    assert from_scipy(twice) == from_edges([(1, 0)], shape=(2, 2))
    assert twice.nnz == 3  # the matrix given is left as it was
    rows = csr_matrix((np.array([1.0, -1.0, 2.0]), [1, 1, 0], [0, 2, 3]), shape=(2, 2))
    assert from_scipy(rows) == from_edges([(1, 0)], shape=(2, 2))
    assert rows.nnz == 3


@pytest.mark.parametrize("kind", ["uint8", "uint16", "uint32", "uint64", "bool", "complex64"])
def test_matrices_of_any_numbers(kind: str) -> None:
    wanted = from_edges([(0, 0), (1, 1)], shape=(2, 2))
    assert from_dense(np.eye(2).astype(kind)) == wanted
    assert from_dense(torch.from_numpy(np.eye(2).astype(kind))) == wanted


def test_nothing_is_listed_twice() -> None:
    assert from_edges([(1, 0), (0, 1), (1, 0)]) == from_edges([(0, 1), (1, 0)])


def test_a_very_long_list_is_printed_short() -> None:
    long = from_edges(torch.arange(4000).view(2, -1))
    assert len(str(long)) < 200
    assert "..." in str(long)


def test_vectors_that_point_alike_share_a_bucket() -> None:
    torch.manual_seed(0)
    x = torch.randn(40, 8)
    both = torch.cat([x, 2 * x])
    matrix = lsh_of(both, 8, rounds=2, seed=3).dense(80)
    assert matrix[:40, 40:].diagonal().all()
    assert not matrix.all()
    assert torch.equal(matrix, matrix.T)
