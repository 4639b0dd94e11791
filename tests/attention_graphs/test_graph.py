"""Edges, rollout, hops and summaries against matrices."""

import pytest
import torch

from edgewise import F, Program, R, V, attention_graph
from edgewise.attention_graphs import calls
from edgewise.attention_graphs.calls import AttentionCall
from edgewise.attention_graphs.errors import BadEdgeChoice, NoAttention, NoSuchHead, NoTokens
from edgewise.attention_graphs.graph import AttentionGraph
from edgewise.graphs import full, global_tokens, per_head, window


def weights(layers=2, heads=3, n=7, seed=0):
    scores = 3 * torch.randn(layers, heads, n, n, generator=torch.manual_seed(seed))
    return scores.softmax(-1)


@pytest.fixture(params=[1 << 22, 16], ids=["one block", "a row at a time"])
def known(request, monkeypatch):
    monkeypatch.setattr(calls, "NUMBERS", request.param)
    w = weights()
    return w, attention_graph(list(w), tokens=list("abcdefg"))


def dense(edges, n=7):
    out = torch.zeros(n, n)
    out[edges.query, edges.key] = edges.weight
    return out


def test_edges_above_a_threshold(known):
    w, graph = known
    for layer in range(2):
        for head in range(3):
            found = dense(graph.edges(layer=layer, head=head, threshold=0.2))
            torch.testing.assert_close(found, w[layer, head] * (w[layer, head] >= 0.2))
    every = graph.edges(threshold=0.2)
    assert len(every) == int((w >= 0.2).sum())
    assert every.layer.unique().tolist() == [0, 1]
    assert every.head.unique().tolist() == [0, 1, 2]


def test_the_strongest_of_each_query(known):
    w, graph = known
    found = graph.edges(layer=1, head=2, top=2)
    best = w[1, 2].topk(2, -1)
    torch.testing.assert_close(dense(found), torch.zeros(7, 7).scatter(1, best[1], best[0]))
    assert len(graph.edges(layer=0, head=0, top=99)) == 49
    assert len(graph.edges(layer=0, head=0, top=2, threshold=1.0)) == 0


def test_rollout(known):
    w, graph = known
    wanted = torch.eye(7)
    for layer in w:
        wanted = (0.5 * torch.eye(7) + 0.5 * layer.mean(0)) @ wanted
    torch.testing.assert_close(dense(graph.rollout(threshold=0.0)), wanted)
    some = graph.rollout(threshold=0.0, queries=[4, -1])
    assert some.query.unique().tolist() == [4, 6]
    torch.testing.assert_close(dense(some)[4], wanted[4])
    torch.testing.assert_close(dense(graph.rollout(threshold=0.0, residual=1.0)), torch.eye(7))


def test_hops_of_one_layer_are_shortest_paths(known):
    networkx = pytest.importorskip("networkx")
    _, graph = known
    edges = graph.edges(layer=0, head=1, threshold=0.3)
    paths = networkx.single_source_shortest_path_length(edges.to_networkx(), 2)
    found = graph.hops(2, layer=0, head=1, threshold=0.3).tolist()
    assert found == [paths.get(node, -1) for node in range(7)]


def test_hops_through_layers_go_down():
    step = torch.eye(4).roll(1, 1)[None]
    graph = attention_graph([step, torch.eye(4)[None], step])
    assert graph.hops(0).tolist() == [0, 1, 3, -1]  # the layer in the middle stays


def test_summaries(known):
    w, graph = known
    found = graph.summary()
    assert [(one.layer, one.head) for one in found] == [(a, h) for a in range(2) for h in range(3)]
    i, j = torch.arange(7)[:, None], torch.arange(7)
    for one in found:
        p = w[one.layer, one.head].double()
        assert one.entropy == pytest.approx(float(-(p * p.log()).sum(-1).mean()), rel=1e-5)
        assert one.distance == pytest.approx(float((p * (i - j).abs()).sum(-1).mean()), rel=1e-5)
        assert one.peak == pytest.approx(float(p.amax(-1).mean()), rel=1e-5)
        assert one.own == pytest.approx(float(p.diagonal().mean()), rel=1e-5)
        assert one.previous == pytest.approx(float(p.diagonal(-1).sum() / 7), rel=1e-5)
        assert one.following == pytest.approx(float(p.diagonal(1).sum() / 7), rel=1e-5)
        assert one.sink == int(p.mean(0).argmax())
        assert one.sink_share == pytest.approx(float(p.mean(0).max()), rel=1e-5)


def test_tables(known):
    _, graph = known
    edges = graph.edges(threshold=0.4)
    records = edges.records()
    assert records[0]["from"] == graph.tokens[records[0]["query"]]
    table = pytest.importorskip("pandas").DataFrame(records)
    assert table.equals(edges.to_pandas())
    other = edges.to_networkx()
    assert other.number_of_edges() == len(edges)
    assert other.nodes[3]["token"] == "d"
    assert "<table" in edges._repr_html_()


def test_a_pair_of_several_heads_is_one_row():
    w = torch.tensor([[[1.0, 0.0], [0.25, 0.75]], [[0.5, 0.5], [1.0, 0.0]]])
    relation = attention_graph([w]).edges(threshold=0.2).relation()
    assert relation.keys.T.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert relation.values.tolist() == [1.0, 0.5, 1.0, 0.75]


def test_heads_with_graphs_of_their_own():
    q = torch.randn(2, 9, 4, generator=torch.manual_seed(0))
    call = AttentionCall("x", q, q, per_head(window(1), full()), 0.5)
    graph = AttentionGraph(tuple(map(str, range(9))), (call,))
    assert len(graph.edges(layer=0, head=0, threshold=0.0)) == 25
    assert len(graph.edges(layer=0, head=1, threshold=0.0)) == 81
    assert len(graph.edges(threshold=0.0)) == 106
    rolled = dense(graph.rollout(threshold=0.0), 9)
    mean = (graph.weights(0, 0) + graph.weights(0, 1)) / 2
    torch.testing.assert_close(rolled, 0.5 * torch.eye(9) + 0.5 * mean)


def test_65536_tokens_never_make_a_square():
    """A window and a global token: 4.4 million pairs of 4.3 billion."""
    n = 1 << 16
    q = torch.randn(1, n, 8, generator=torch.manual_seed(0))
    graph = AttentionGraph(tuple(map(str, range(n))), (AttentionCall(
        "x", q, q, window(32) | global_tokens(1), 0.3),))  # fmt: skip
    edges = graph.edges(top=2)
    assert n <= len(edges) <= 2 * n
    (one,) = graph.summary()
    assert 0 < one.entropy < 4.2
    row = graph.weights_of(0, 0, 40_000)
    keys = torch.tensor([0, *range(40_000 - 32, 40_000 + 33)])
    torch.testing.assert_close(row[0], keys)
    torch.testing.assert_close(row[1], (0.3 * q[0, 40_000] @ q[0, keys].T).softmax(-1))


def test_no_tokens_and_one():
    none = attention_graph([torch.zeros(2, 0, 0)])
    assert len(none.edges()) == 0
    assert len(none.rollout()) == 0
    assert [one.entropy for one in none.summary()] == [0.0, 0.0]
    one = attention_graph([torch.ones(1, 1, 1)])
    assert one.edges().records()[0]["weight"] == 1.0
    assert one.hops(0).tolist() == [0]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda g: g.edges(layer=2), NoSuchHead),
        (lambda g: g.edges(layer=-3), NoSuchHead),
        (lambda g: g.edges(layer=0, head=3), NoSuchHead),
        (lambda g: g.edges(layer="0"), NoSuchHead),
        (lambda g: g.edges(layer=True), NoSuchHead),
        (lambda g: g.hops(7), NoSuchHead),
        (lambda g: g.rollout(queries=[7]), NoSuchHead),
        (lambda g: g.edges(threshold=1.5), BadEdgeChoice),
        (lambda g: g.edges(threshold=float("nan")), BadEdgeChoice),
        (lambda g: g.edges(threshold="a"), BadEdgeChoice),
        (lambda g: g.edges(top=0), BadEdgeChoice),
        (lambda g: g.edges(top=1.5), BadEdgeChoice),
        (lambda g: g.rollout(residual=2), BadEdgeChoice),
        (lambda g: attention_graph(3), NoAttention),
        (lambda g: attention_graph("bert"), NoAttention),
        (lambda g: attention_graph([]), NoAttention),
        (lambda g: attention_graph([torch.ones(3, 3)]), NoAttention),
        (lambda g: attention_graph([torch.full((1, 3, 3), 7.0)]), NoAttention),
        (lambda g: attention_graph([None]), NoAttention),
        (lambda g: attention_graph([torch.eye(3)[None]], tokens="abc"), NoTokens),
        (lambda g: attention_graph([torch.eye(3)[None]], tokens=["a"]), NoTokens),
        (lambda g: attention_graph([torch.eye(3)[None]], tokens=3), NoTokens),
        (lambda g: attention_graph([torch.eye(3)[None]], text=3), NoTokens),
    ],
)
def test_mistakes(call, error):
    with pytest.raises(error):
        call(attention_graph(list(weights())))


def test_weights_that_are_not_numbers_say_so():
    """As of a row that a model masks with the lowest number twice."""
    own = torch.eye(3)[None].clone()
    own[0, 1] = torch.nan
    with pytest.raises(NoAttention, match="layer 0 has weights that are not numbers"):
        attention_graph([own])


def test_attention_that_is_not_fused_says_why():
    body = (R.x(V.J).T, R.x(V.I))
    rules = [(R.w(V.I, V.J) <= body) | [F.product, F.softmax_agg(agg_terms=[V.J])]]
    rules += [(R.y(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product]]
    x = torch.randn(4, 3)
    twice = Program([*rules, R.y(V.I) <= R.x(V.I)]).compile(R.y)
    with pytest.raises(NoAttention, match="no attention of the model is fused: `w`: 2 rules deri"):
        attention_graph(twice, x=x)
    with pytest.raises(NoAttention, match="`w`: `w` is the output"):
        attention_graph(Program(rules).compile(R.w), x=x)
    apart = Program([*rules, R.z(V.I) <= R.y(V.I), R.z(V.I) <= R.x(V.I)]).compile(R.z)
    assert len(attention_graph(apart, x=x).calls) == 1


@pytest.mark.parametrize("model", [42, torch.ones(1, 3), "bert"])
def test_what_is_no_model_is_said_first(model):
    layer = torch.nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
    with pytest.raises(NoAttention, match="a model is expected") as caught:
        attention_graph(model, layer)
    assert "`view(model, inputs)`" in caught.value.help
