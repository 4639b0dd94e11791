"""However data is given, it is the same data: dense = rows = facts, a batch = its samples."""

import hypothesis.strategies as st
import networkx
import pytest
import torch
from hypothesis import given, settings

from edgewise import F, Program, R, V, W, ragged, rows
from edgewise.graphs import causal, global_tokens, window

OUT = R.out(V.I)
EDGE = R._edge(V.J, V.I)


def rule(*body, functions=(), head=OUT):
    return (head <= body) | list(functions)


def softmax(*conditions):
    """Attention over the pairs that some conditions leave."""
    return [
        R.q(V.I) <= R.x(V.I)[2, 2],
        (R.w(V.I, V.J) <= (R.q(V.I).T, R.x(V.J)[2, 2], *conditions))
        | [F.product, F.softmax_agg(agg_terms=[V.J])],
        rule(R.w(V.I, V.J), R.x(V.J), functions=[F.product]),
    ]


GRAPHS = {  # programs over x and edges
    "sum": [rule(R.x(V.J)[3, 2], EDGE, functions=[F.tanh])],
    "average": [rule(R.x(V.J)[3, 2], R.x(V.I)[3, 2], EDGE, functions=[F.avg_agg])],
    "maximum": [rule(R.x(V.J), EDGE, functions=[F.max_agg])],
    "median": [rule(R.x(V.J), EDGE, functions=[F.median_agg])],
    "topk": [rule(R.x(V.J), EDGE, functions=[F.topk_agg(2)])],
    "count": [rule(R.x(V.J), EDGE, functions=[F.count_agg])],
    "two hops": [
        R.h(V.I) <= (R.x(V.J)[2, 2], EDGE),
        rule(R.h(V.J)[3, 2], EDGE, functions=[F.relu]),
    ],
    "values on edges": [
        (R.out(V.I) <= (R.edge(V.J, V.I), R.x(V.J))) | [F.product],
    ],
    "two rules": [rule(R.x(V.J)[3, 2], EDGE), rule(R.x(V.I)[3, 2]), R.out / 1 | [F.tanh]],
    "negation": [rule(R.x(V.I), R.x(V.J), ~R.edge(V.J, V.I))],
    "attention on edges": softmax(EDGE),
    "attention off edges": softmax(~R.edge(V.J, V.I)),
    "a readout": [(R.out <= (R.x(V.I), R._edge(V.J, V.I))) | [F.avg_agg]],
    "sparsemax": [
        (R.w(V.I, V.J) <= (R.x(V.I).T, R.x(V.J), EDGE))
        | [F.product, F.sparsemax_agg(agg_terms=[V.J])],
        rule(R.w(V.I, V.J), R.x(V.J), functions=[F.product]),
    ],
    "reachable": [
        R.far(V.I, V.J) <= R._edge(V.I, V.J),
        R.far(V.I, V.J) <= (R._far(V.I, V.K), R._edge(V.K, V.J)),
        rule(R.x(V.I), R.x(V.J)[[[0.5, 0], [0, 2]]], R._far(V.I, V.J)),
    ],
}
SEQUENCES = {  # programs over x alone
    "attention": softmax(),
    "causal attention": softmax(R.special.leq(V.J, V.I)),
    "local attention": softmax(R.special.sub(V.I, V.J, V.D), R.special.leq(V.D, 2)),
    "window": softmax(window(1)(V.I, V.J)),
    "causal": softmax(causal()(V.I, V.J)),
    "global": softmax((window(1) | global_tokens(1))(V.I, V.J)),
    "outside of a window": [rule(R.x(V.I), R.x(V.J)[2, 2], ~window(1)(V.I, V.J))],
    "a sum over a window": [rule(R.x(V.J)[3, 2], R._x(V.I), window(1)(V.I, V.J))],
    "the end": [rule(R.x(V.I), (~window(1))(V.I, V.J), R._x(V.J))],
    "a recurrence": [
        R.s(0)[[0.0, 0.0]].fixed(),
        (R.s(V.J) <= (R.s(V.I)[2, 2], R.x(V.I)[2, 2], R.special.next(V.I, V.J))) | [F.tanh],
        rule(R.s(V.I), R._x(V.I)),
    ],
    "heads": [
        R.q(V.H, V.I) <= R.x(V.I)[W.q(V.H)[2, 2]],
        (R.out(V.I) <= R.q(V.H, V.I)) | [F.concat_agg],
    ],
    "norm": [rule(R.x(V.I)[4, 2], W.b[4,], functions=[F.norm, F.gelu])],
}


def compiled(rules, **options):
    program = Program(rules, domains={V.H: 2})
    output = next(r.head for r in reversed(program.rules) if r.head.relation == "out")
    return program.compile(output, seed=0, dtype=torch.float64, **options)


@st.composite
def samples(draw, least=1, most=5):
    """A matrix of values and the edges of a graph on its rows."""
    n = draw(st.integers(least, most))
    pairs = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)) if n else st.nothing()
    edges = draw(st.lists(pairs, unique=True, max_size=8)) if n else []
    seed = draw(st.integers(0, 99))
    x = torch.randn(n, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x, torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T


def facts(x, edges=()):
    pairs = [] if not len(edges) else edges.T.tolist()
    return [*(R.x(i)[v] for i, v in enumerate(x)), *(R.edge(a, b) for a, b in pairs)]


def same(found, expected):
    assert list(found) == list(expected)
    torch.testing.assert_close(found.data, expected.data.reshape(found.data.shape))


def in_samples(found, singles):
    """The rows of a batch are the rows of its samples, one after another."""
    atoms = [(n, *atom.terms) for n, one in enumerate(singles) for atom in one]
    values = [v for one in singles for v in one.data]
    assert [atom.terms for atom in found] == atoms
    if values:
        torch.testing.assert_close(found.data, torch.stack(values))


@pytest.mark.parametrize("name", GRAPHS)
@given(sample=samples())
@settings(max_examples=6)
def test_dense_rows_facts_and_graphs(name, sample):
    x, edges = sample
    model = compiled(GRAPHS[name])
    expected = model.rows(model.ground(facts=facts(x, edges)))
    same(model.rows(x=x, edge=edges), expected)
    same(model.rows(x=x.numpy(), edge=edges.numpy()), expected)
    same(model.rows(model.ground(edge=edges), x=x), expected)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    given = rows(order, x[order])
    same(
        model.rows(x=given, edge=rows(edges.flip(1), torch.ones(edges.shape[1]).double())), expected
    )
    graph = networkx.DiGraph(list(map(tuple, edges.T.tolist())))
    same(model.rows(x=x, edge=graph), expected)


@pytest.mark.parametrize("name", SEQUENCES)
@given(sample=samples())
@settings(max_examples=6)
def test_sequences_dense_rows_and_facts(name, sample):
    x, _ = sample
    model = compiled(SEQUENCES[name])
    expected = model.rows(model.ground(facts=facts(x)))
    same(model.rows(x=x), expected)
    same(model.rows(x=rows(torch.arange(len(x)), x)), expected)


@pytest.mark.parametrize("name", GRAPHS)
@given(batch=st.lists(samples(least=0), min_size=1, max_size=4))
@settings(max_examples=6)
def test_a_ragged_batch_is_its_samples(name, batch):
    model = compiled(GRAPHS[name])
    singles = [model.rows(x=x, edge=edges) for x, edges in batch]
    x, edges = ragged([x for x, _ in batch]), ragged([edges for _, edges in batch])
    in_samples(model.rows(x=x, edge=edges), singles)
    in_samples(model.rows(model.ground(x=x, edge=edges)), singles)
    by_facts = model.ground(facts=ragged([facts(*sample) for sample in batch]))
    in_samples(model.rows(by_facts), singles)


@pytest.mark.parametrize("name", SEQUENCES)
@given(batch=st.lists(samples(least=0), min_size=1, max_size=4))
@settings(max_examples=6)
def test_a_ragged_batch_of_sequences_is_its_samples(name, batch):
    model = compiled(SEQUENCES[name])
    singles = [model.rows(x=x) for x, _ in batch]
    in_samples(model.rows(x=ragged([x for x, _ in batch])), singles)
    in_samples(model.rows(model.ground(facts=ragged([facts(x) for x, _ in batch]))), singles)


@pytest.mark.parametrize("name", SEQUENCES)
@given(n=st.integers(0, 5), size=st.integers(1, 3))
@settings(max_examples=6)
def test_a_dense_batch_is_a_stack_of_samples(name, n, size):
    x = torch.randn(size, n, 2, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    model = compiled(SEQUENCES[name], fill=0.0)
    together = model(x=x)
    apart = [model(x=one) for one in x]
    if isinstance(together, torch.Tensor):
        torch.testing.assert_close(together, torch.stack(apart))
    else:
        torch.testing.assert_close(together.data, torch.stack([one.data for one in apart]))


@pytest.mark.parametrize("name", GRAPHS)
@given(sample=samples(), size=st.integers(1, 3))
@settings(max_examples=5)
def test_a_dense_batch_on_one_graph(name, sample, size):
    x, edges = sample
    x = torch.stack([x * (k + 1) for k in range(size)])
    model = compiled(GRAPHS[name])
    data = model.ground(edge=edges)
    together = model.rows(data, x=x)
    apart = [model.rows(data, x=one) for one in x]
    assert together.index.tolist() == apart[0].index.tolist()
    stacked = torch.stack([one.data for one in apart])
    torch.testing.assert_close(together.data.expand_as(stacked), stacked)


@given(batch=st.lists(samples(least=3, most=3), min_size=1, max_size=3))
@settings(max_examples=6)
def test_a_dense_batch_beside_ragged_graphs(batch):
    model = compiled(GRAPHS["two hops"])
    data = model.ground(edge=ragged([edges for _, edges in batch]))
    singles = [model.rows(x=x, edge=edges) for x, edges in batch]
    in_samples(model.rows(data, x=torch.stack([x for x, _ in batch])), singles)


@pytest.mark.parametrize("name", ["attention on edges", "negation", "two rules"])
@given(batch=st.lists(samples(), min_size=2, max_size=3))
@settings(max_examples=5)
def test_gradients_of_a_batch_are_the_sum_of_its_samples(name, batch):
    model = compiled(GRAPHS[name])
    weights = list(model.parameters())
    together = model.rows(
        x=ragged([x for x, _ in batch]), edge=ragged([edges for _, edges in batch])
    )
    apart = [model.rows(x=x, edge=edges).data.square().sum() for x, edges in batch]
    for one, other in zip(
        gradients(together.data.square().sum(), weights),
        gradients(sum(apart), weights),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def gradients(total, weights):
    if not total.requires_grad:
        return [torch.zeros_like(w) for w in weights]
    found = torch.autograd.grad(total, weights, allow_unused=True)
    return [torch.zeros_like(w) if g is None else g for g, w in zip(found, weights, strict=True)]


def test_an_undirected_graph_hears_both_ways():
    model = compiled(GRAPHS["sum"])
    both = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    x = torch.randn(3, 2, dtype=torch.float64)
    same(model.rows(x=x, edge=networkx.path_graph(3)), model.rows(x=x, edge=both))


def test_values_of_rows_carry_gradients():
    model = compiled(GRAPHS["values on edges"])
    values = torch.rand(3, dtype=torch.float64, requires_grad=True)
    x = torch.rand(3, 2, dtype=torch.float64, requires_grad=True)
    keys = torch.tensor([[2, 0, 1], [0, 1, 2]])
    found = model(x=x, edge=rows(keys, values))
    found.data.sum().backward()
    torch.testing.assert_close(values.grad, x.detach()[keys[0]].sum(1))
    assert x.grad is not None
