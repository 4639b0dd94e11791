"""Random graphs: what they promise, and that they never change."""

import hashlib

import networkx as nx
import numpy as np
import pytest
import torch

from edgewise.graphs import (
    Pattern,
    barabasi_albert,
    bigbird,
    causal,
    erdos_renyi,
    expander,
    global_tokens,
    parse,
    random_blocks,
    random_edges,
    strided,
    watts_strogatz,
    window,
)
from edgewise.graphs.philox import philox, words

KNOWN = [  # Random123's known answers for philox4x32-10: counter, key, result
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]
GRAPHS = {
    "random_edges(3, seed=7)": "78441ee2ec805575",
    "erdos_renyi(0.01, seed=7)": "a95a8cbe239bad11",
    "watts_strogatz(8, 0.2, seed=7)": "c964e6bff18a450e",
    "watts_strogatz(8, 0.2, kind='added', seed=7)": "3779354591d7c64b",
    "barabasi_albert(4, seed=7)": "0a7604b01fc844d4",
    "random_blocks(2, 16, seed=7)": "6eab00f8cb3a30cf",
    "expander(8, seed=7)": "cfe8d3d73286f5d3",
    "bigbird(16, 3, seed=7)": "3ac010d2f46b4d12",
}


@pytest.mark.parametrize(("counter", "key", "wanted"), KNOWN)
def test_philox_gives_the_known_answers(
    counter: list[int], key: list[int], wanted: list[int]
) -> None:
    found = philox(tuple(np.array([c], np.uint64) for c in counter), tuple(key))
    assert [int(word[0]) for word in found] == wanted


def test_a_row_is_drawn_without_the_others() -> None:
    every = words(5, np.arange(100), 0, 7)
    assert np.array_equal(words(5, np.array([42]), 3, 4)[0], every[42, 3:])


@pytest.mark.parametrize("text", GRAPHS)
def test_the_graph_is_the_same_everywhere(text: str) -> None:
    edges = parse(text).edges(1024).numpy().astype("<i8")
    assert hashlib.sha256(edges.tobytes()).hexdigest()[:16] == GRAPHS[text]


def test_drawing_leaves_other_generators_alone() -> None:
    torch.manual_seed(0)
    np.random.seed(0)
    before = torch.rand(1), np.random.rand()
    torch.manual_seed(0)
    np.random.seed(0)
    for text in GRAPHS:
        parse(text.replace("seed=7", "seed=8")).rows(64)
    bigbird(64, variant="hf_train").rows(1024)
    assert (torch.rand(1), np.random.rand()) == before


def test_degrees() -> None:
    n = 2048
    assert (random_edges(5, seed=0).degrees(n) == 5).all()
    assert (random_blocks(2, 16, seed=0).degrees(n) == 32).all()
    assert (expander(6, seed=0).degrees(n) == 6).all()
    assert (bigbird(16, 3).degrees(n)[16:-16] >= (2 + 2 + 3) * 16).all()
    assert (bigbird(16, 3).degrees(n)[32:-32] == (3 + 2 + 3) * 16).all()
    mean = erdos_renyi(0.01, seed=0).degrees(n).double().mean()
    assert abs(mean - 0.01 * n) < 4 * (0.01 * 0.99) ** 0.5
    hubs = barabasi_albert(4, seed=0).degrees(n)
    assert hubs.max() > 10 * hubs.double().mean()


@pytest.mark.parametrize("kind", ["rewired", "added"])
def test_small_worlds_are_undirected_rings_with_shortcuts(kind: str) -> None:
    graph = watts_strogatz(8, 0.2, kind=kind, seed=3)
    matrix = graph.dense(512)
    assert torch.equal(matrix, matrix.T)
    assert not matrix.diagonal().any()
    ring = watts_strogatz(8, 0.0, seed=3).dense(512)
    kept = (matrix & ring).sum() / ring.sum()
    assert kept == 1 if kind == "added" else 0.7 < kept < 0.9
    wanted = nx.average_clustering(nx.watts_strogatz_graph(512, 8, 0.2, seed=1))
    found = nx.average_clustering(nx.from_numpy_array(matrix.numpy()))
    assert kind == "added" or abs(found - wanted) < 0.1


@pytest.mark.parametrize("kind", ["rewired", "added"])
@pytest.mark.parametrize("n", range(12))
def test_small_worlds_of_few_tokens_keep_their_edges(kind: str, n: int) -> None:
    whole = watts_strogatz(6, 0.0, kind=kind, seed=0).dense(n)
    apart = (torch.arange(n)[:, None] - torch.arange(n)[None, :]).abs()
    assert torch.equal(whole, (torch.minimum(apart, n - apart) <= 3) & (apart > 0))
    if n <= 7:
        everything = watts_strogatz(6, 0.9, kind=kind, seed=0).dense(n)
        assert torch.equal(everything, ~torch.eye(n, dtype=torch.bool))


GROWING = [erdos_renyi(0.2, seed=3), barabasi_albert(2, seed=3)]
OTHERS = [random_edges(3, seed=3), expander(4, seed=3), watts_strogatz(4, 0.5, seed=3)]


@pytest.mark.parametrize("graph", GROWING + OTHERS, ids=repr)
def test_which_graphs_go_on_when_tokens_are_added(graph: Pattern) -> None:
    same = [torch.equal(graph.dense(n + 1)[:n, :n], graph.dense(n)) for n in range(20, 40)]
    assert all(same) if graph in GROWING else not any(same)


def test_bigbird_always_prints_its_seed() -> None:
    assert repr(bigbird(block=64)) == "bigbird(seed=0)"
    assert parse(repr(bigbird(block=64))) == bigbird(block=64, seed=0)


@pytest.mark.parametrize("seed", range(3))
def test_expanders_come_close_to_the_ramanujan_bound(seed: int) -> None:
    graph = expander(8, seed=seed)
    found = torch.linalg.eigvalsh(graph.dense(1024).double()).abs().sort().values
    assert found[-2] < graph.ramanujan_bound + 0.1


def test_every_pair_is_equally_likely() -> None:
    count = sum(random_edges(3, seed=seed).dense(16).double() for seed in range(400))
    expected = 400 * 3 / 16
    assert (count - expected).abs().max() < 5 * expected**0.5


@pytest.mark.parametrize(
    "other", [window(2), causal(), global_tokens(1), window(1) | global_tokens(2), strided(3)]
)
@pytest.mark.parametrize(("n", "m"), [(40, 40), (40, 7), (7, 40), (1, 9)])
def test_with_another_graph_it_is_what_the_matrices_say(other: Pattern, n: int, m: int) -> None:
    """Random graphs are joined and cut pair by pair."""
    scattered = random_edges(3, seed=5)
    a, b = scattered.dense(n, m), other.dense(n, m)
    for graph, wanted in (
        (other | scattered, a | b),
        (scattered | other, a | b),
        (scattered - other, a & ~b),
        (other - scattered, b & ~a),
    ):
        assert torch.equal(graph.dense(n, m), wanted)
        assert graph.rows(n, m).degrees().tolist() == wanted.sum(1).tolist()
        first = n // 3
        assert torch.equal(graph.rows_between(n, m, first, n).dense(), wanted[first:])
