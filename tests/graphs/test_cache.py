"""What follows from a graph is cached with it, and dies with it."""

import copy
import gc
import pickle
import weakref

import pytest
import torch

from edgewise.graphs import cache, from_edges, global_tokens, per_head, window
from edgewise.graphs.cache import cache_of, cached, nbytes
from edgewise.kernels.attention import attention, prepare


@pytest.fixture(autouse=True)
def nothing_cached():
    cache.clear()


@cached
def listed(graph, n, m):
    return graph.edges(n, m)


def edges(seed, pairs=20_000, n=1000):
    random = torch.Generator().manual_seed(seed)
    return from_edges(torch.randint(n, (2, pairs), generator=random), shape=(n, n))


def test_equal_graphs_share_one_cache():
    first, second = window(3) | global_tokens(1), window(3) | global_tokens(1)
    assert listed(first, 9, 9) is listed(second, 9, 9)
    assert cache_of(first) is cache_of(second)
    assert listed(first, 9, 9) is not listed(first, 9, 8)
    assert cache_of(window(2)) is not cache_of(first)


def test_a_small_graph_is_known_when_it_is_made_anew():
    found = listed(window(3), 9, 9)
    gc.collect()
    assert listed(window(3), 9, 9) is found


def test_a_large_graph_takes_its_cache_with_it():
    graph, x = edges(0), torch.randn(1, 2, 1000, 4, requires_grad=True)
    attention(x, x, x, graph).sum().backward()
    dead, lists = weakref.ref(graph), weakref.ref(cache_of(graph))
    del graph
    assert dead() is None, "nothing holds it, not even in a cycle"
    assert lists() is None


@pytest.mark.parametrize("made", [lambda g: g, lambda g: g | window(1), lambda g: per_head(g, g)])
def test_many_graphs_leave_nothing_behind(made):
    x = torch.randn(1, 2, 1000, 4)
    caches = []
    for seed in range(5):
        graph = made(edges(seed))
        attention(x, x, x, graph)
        caches.append(weakref.ref(cache_of(graph)))
    del graph
    assert [found() for found in caches] == [None] * 5
    assert sum(one.total for one in cache._RECENT) < 1 << 20


def test_a_graph_made_for_one_call_is_there_for_its_backward(monkeypatch):
    x = torch.randn(1, 2, 1000, 4, requires_grad=True)
    out = attention(x, x, x, edges(1), kernel="csr")
    made, form = [], from_edges.compute_rows
    monkeypatch.setattr(
        from_edges, "compute_rows", lambda *given: made.append(given) or form(*given)
    )
    out.sum().backward()
    assert not made


def test_a_prepared_call_holds_its_graph(monkeypatch):
    x = torch.randn(1, 2, 1000, 4)
    call = prepare(x, x, x, edges(1), kernel="csr")
    made, form = [], from_edges.compute_rows
    monkeypatch.setattr(
        from_edges, "compute_rows", lambda *given: made.append(given) or form(*given)
    )
    call(x, x, x)
    assert not made


def test_bytes_are_bounded(monkeypatch):
    monkeypatch.setattr(cache, "BUDGET", 100_000)
    graph = window(3)
    for n in range(100, 200):
        listed(graph, n, n)
    held = cache_of(graph)
    assert held.total == sum(held.bytes.values()) <= 100_000
    assert (199, 199) in held.sizes
    assert (100, 100) not in held.sizes
    for radius in range(12):
        listed(window(radius), 100 + radius, 100 + radius)
    assert sum(one.total for one in cache._RECENT) <= 100_000
    assert cache_of(window(11)).total > 0


def test_copies_and_files_go_without_it():
    graph = window(3) | global_tokens(1)
    listed(graph, 9, 9)
    for other in (pickle.loads(pickle.dumps(graph)), copy.deepcopy(graph), copy.copy(graph)):
        assert other == graph
        assert "_cache" not in vars(other)
    heads = per_head(graph, graph)
    cache_of(heads)
    assert copy.copy(heads) == heads


def test_bytes_of_arrays_are_counted():
    x = torch.zeros(10)
    assert nbytes((x, [x], {"a": torch.zeros(5).numpy()})) >= 60
    assert nbytes(edges(0), graphs=True) >= 2 * 8 * len(edges(0).pairs)
    assert nbytes(edges(0)) == 0
    assert nbytes(torch.zeros(10, device="meta")) == 0
