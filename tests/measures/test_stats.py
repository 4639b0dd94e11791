"""Measures against networkx, against boolean matrices, and against the published table."""

import math
import time

import networkx
import numpy as np
import pytest
import torch

from edgewise.graphs import Pattern, erdos_renyi, errors, parse
from edgewise.measures import density_map, paths, quotient, spectrum
from edgewise.measures.quotient import MatVec

SOURCES = [
    "window(3)", "ring(2)", "causal()", "full()", "strided(5)", "dilated(2, 3)", "blocks(7)",
    "window(1) | global_tokens(2)", "global_tokens(3) - window(0)", "fixed(6, 2)", "prefix(4)",
    "bigbird(4, 1)", "random_edges(2, seed=3)", "erdos_renyi(0.05, seed=1)", "causal() & window(2)",
    "barabasi_albert(2, seed=0)", "expander(4, seed=2)", "documents([20, 9, 11])", "~full()",
    "from_edges([(0, 1), (5, 6), (6, 7)])", "full() - blocks(10)", "strided(8) & causal()",
]  # fmt: skip
N = 40


def undirected(pattern: Pattern, n: int) -> "networkx.Graph":
    """As FACTS 1.6 has it: no self-loops, no direction, the largest component."""
    dense = pattern.dense(n)
    graph = networkx.from_numpy_array((dense | dense.T).numpy())
    graph.remove_edges_from(networkx.selfloop_edges(graph))
    largest = max(networkx.connected_components(graph), key=len)
    return graph.subgraph(largest)


def second_eigenvalue(graph: "networkx.Graph") -> float:
    a = networkx.to_numpy_array(graph)
    side = 1 / np.sqrt(a.sum(1))
    return float(np.linalg.eigvalsh(side[:, None] * a * side)[-2])


def assert_measures(pattern: Pattern, n: int, *, close: float = 1e-6) -> None:
    stats, graph = pattern.stats(n), undirected(pattern, n)
    assert stats.largest == len(graph)
    assert stats.clustering == pytest.approx(networkx.average_clustering(graph))
    if len(graph) > 1:
        assert stats.diameter == networkx.diameter(graph)
        assert stats.average_path == pytest.approx(networkx.average_shortest_path_length(graph))
        assert stats.second_eigenvalue == pytest.approx(second_eigenvalue(graph), abs=close)


@pytest.mark.parametrize("source", SOURCES)
def test_measures_are_those_of_networkx(source: str) -> None:
    assert_measures(parse(source), N)


@pytest.mark.parametrize("source", SOURCES)
def test_what_is_reached_layer_by_layer(source: str) -> None:
    stats, dense = parse(source).stats(N), parse(source).dense(N).double()
    step = ((dense + torch.eye(N)) > 0).double()
    reached = torch.eye(N).double()
    for share in stats.reach:
        assert share == pytest.approx(float((reached > 0).double().mean()))
        reached = reached @ step
    assert float((reached > 0).double().mean()) == pytest.approx(stats.reach[-1])
    assert stats.layers == (len(stats.reach) - 1 if stats.reach[-1] > 1 - 1e-12 else math.inf)


@pytest.mark.parametrize("source", SOURCES)
def test_components_and_degrees(source: str) -> None:
    stats, dense = parse(source).stats(N), parse(source).dense(N)
    both = networkx.from_numpy_array((dense | dense.T).numpy())
    assert stats.components == networkx.number_connected_components(both)
    assert stats.edges == int(dense.sum())
    assert stats.keys_per_query[::2] == (int(dense.sum(1).min()), int(dense.sum(1).max()))
    assert stats.queries_per_key[::2] == (int(dense.sum(0).min()), int(dense.sum(0).max()))


half = erdos_renyi(8 / 1023 / 2, seed=0)
TABLE = {  # FACTS 1.6: gap, diameter, average path, clustering
    "window 8": (parse("ring(4)"), 0.0001, 128, 64.4, 0.64),
    "WS 0.05": (parse("watts_strogatz(8, 0.05, seed=0)"), 0.024, 11, 6.0, 0.54),
    "WS added": (parse("watts_strogatz(8, 0.05, kind='added', seed=0)"), 0.023, 11, 5.8, 0.58),
    "WS 0.2": (parse("watts_strogatz(8, 0.2, seed=0)"), 0.095, 7, 4.4, 0.34),
    "Erdős–Rényi": (half | half.T, 0.342, 6, 3.6, 0.01),
    "8-regular": (parse("expander(8, seed=0)"), 0.346, 5, 3.6, 0.01),
    "window 8 + 1 global": (parse("ring(4) | global_tokens(1)"), 0.111, 2, 2.0, 0.72),
    "window 4 + expander": (parse("ring(2) | expander(4, seed=0)"), 0.274, 6, 3.8, 0.11),
}


@pytest.mark.parametrize("name", TABLE)
def test_the_published_table(name: str) -> None:
    pattern, gap, diameter, path, clustered = TABLE[name]
    stats = pattern.stats(1024)
    assert stats.gap == pytest.approx(gap, rel=0.1, abs=5e-5)
    assert abs(stats.diameter - diameter) <= (0 if name.startswith("window 8") else 1)
    assert stats.average_path == pytest.approx(path, rel=0.1)
    assert stats.clustering == pytest.approx(clustered, rel=0.1, abs=5e-3)
    assert stats.how["diameter"] == stats.how["clustering"] == "exact"


def test_the_expander_is_near_the_ramanujan_bound() -> None:
    bound = 1 - parse("expander(8, seed=0)").ramanujan_bound / 8
    assert parse("expander(8, seed=0)").stats(1024).gap > bound - 0.01


@pytest.mark.parametrize("source", ["bigbird()", "bigbird() & causal()", "full()", "causal()"])
def test_64k_tokens_take_less_than_ten_seconds(source: str) -> None:
    start = time.process_time()
    parse(source).stats(1 << 16)
    assert time.process_time() - start < 10


def test_bigbird_at_64k_is_exact() -> None:
    stats = parse("bigbird()").stats(1 << 16)
    assert {stats.how[name] for name in ("diameter", "layers", "clustering")} == {"exact"}
    assert stats.layers == 2
    assert 0.40 < stats.gap < 0.46


@pytest.mark.parametrize(
    "source", ["window(9)", "random_edges(4, seed=1)", "strided(7) | window(5)"]
)
def test_without_listing_edges(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ways for dense graphs, on one small enough to know the answers."""
    pattern, n = parse(source), 300
    exact = pattern.stats(n)
    monkeypatch.setattr(quotient, "MOST_EDGES", 0)
    other = pattern.stats(n)
    assert (other.components, other.largest) == (exact.components, exact.largest)
    assert exact.diameter >= other.diameter >= exact.diameter / 2
    assert other.gap == pytest.approx(exact.gap, rel=0.05)
    assert other.clustering == pytest.approx(exact.clustering, abs=0.02)
    assert other.how["diameter"] == "exact" or other.how["diameter"].startswith("bound")
    assert other.how["clustering"].startswith("estimate")


def test_samples_and_bounds_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = parse("watts_strogatz(8, 0.05, seed=0)")
    exact = pattern.stats(1024)
    monkeypatch.setattr(paths, "EFFORT", 1)
    monkeypatch.setattr(spectrum, "SMALL", 0)
    monkeypatch.setattr(spectrum, "EFFORT", 1)
    monkeypatch.setattr(spectrum, "MIDDLE", 0)
    monkeypatch.setattr(spectrum, "WIDEST", 0)
    monkeypatch.setattr(paths, "MOST_TRIANGLES", 1)
    rough = pattern.stats(1024)
    assert rough.diameter <= exact.diameter
    assert rough.how["diameter"].startswith("bound: at least, from 4 tokens")
    assert rough.gap >= exact.gap
    assert rough.how["gap"].startswith("bound: at most, Rayleigh–Ritz")
    assert rough.how["average_path"].startswith("estimate")
    assert rough.clustering == pytest.approx(exact.clustering, abs=0.02)


def test_a_search_that_is_cut_does_not_join_what_is_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "EFFORT", 1)
    monkeypatch.setattr("edgewise.measures.stats.merge_twins", lambda *_: None)
    found = parse("documents([1, 299]) & (causal() | window(3))").stats(300)
    assert (found.components, found.layers, found.how["layers"]) == (2, math.inf, "exact")
    joined = parse("causal() | window(3)").stats(300)
    assert joined.layers <= parse("window(3)").stats(300).layers
    assert joined.how["layers"].startswith("bound: at least")


@pytest.mark.parametrize("source", SOURCES)
def test_products_and_density(source: str) -> None:
    rows, dense = parse(source).rows(N), parse(source).dense(N).numpy()
    x = np.arange(N) ** 2 % 11
    assert (MatVec(rows)(x) == dense @ x).all()
    cells = density_map(rows, 6)
    assert cells.shape == (6, 6)
    assert (
        cells == np.add.reduceat(np.add.reduceat(dense, range(0, N, 7), 0), range(0, N, 7), 1)
    ).all()


def test_a_table_for_people_and_json_for_programs() -> None:
    stats = parse("causal() & window(1)").stats(4)
    lines = repr(stats).splitlines()
    assert lines[0] == "causal() & window(1), 4 tokens"
    (layers,) = [line for line in lines if line.startswith("layers to full receptive field")]
    assert layers.split()[5:] == ["never:", "62.50%", "after", "3", "exact"]
    assert stats.json()["layers"] is None
    assert stats.json()["keys_per_query"] == {"least": 1, "mean": 1.75, "most": 2}
    assert set(stats.how) == set(stats.json()) - {"graph", "n", "how", "largest"}
    assert hash(stats)


def test_a_long_title_is_cut_and_the_field_is_not() -> None:
    stats = parse(f"documents({[4] * 100})").stats(400)
    assert len(repr(stats).splitlines()[0]) < 140
    assert len(stats.graph) > 300


def test_the_gap_is_that_of_the_graph_made_symmetric() -> None:
    one_way = parse("window(2) & causal()").stats(50)
    assert one_way.gap == pytest.approx(parse("window(2)").stats(50).gap)


def test_a_hub_in_the_sample_is_no_more_than_a_hub() -> None:
    stats = parse("window(3) | global_tokens(1)").stats(4096)
    assert stats.how["reach"].startswith("estimate")
    assert stats.reach[1] == pytest.approx(stats.density, rel=1e-3)
    assert stats.reach[-1] == pytest.approx(1)
    assert stats.average_path == pytest.approx(2 - stats.density, abs=1e-3)


@pytest.mark.parametrize("n", [0, -1, 2.5])
def test_a_graph_to_measure_has_tokens(n: float) -> None:
    with pytest.raises(errors.BadSize) as caught:
        parse("window(1)").stats(n)  # type: ignore[arg-type]
    assert caught.value.help


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("source", ["full()", "~full()", "window(1)", "window(0)"])
def test_tiny_graphs(source: str, n: int) -> None:
    stats = parse(source).stats(n)
    assert stats.largest == (n if source in ("full()", "window(1)") else 1)
    assert repr(stats)
