"""Heads and samples with graphs of their own: as exact as the calls one by one."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise.graphs import (
    bigbird,
    causal,
    from_edges,
    full,
    global_tokens,
    per_head,
    per_sample,
    strided,
    window,
)
from edgewise.kernels.attention import attention
from edgewise.kernels.attention.calls.split import parts_of
from edgewise.kernels.attention.errors import PairsCountedOnce
from edgewise.scores import H, S, relative

GRAPHS = (full(), causal(), window(1), strided(3), full() - full(), window(2) | global_tokens(1))
TERMS = ("bias", "lengths", "table", "edge_bias", "edge_scale", "edge_key", "edge_value")


def several(draw, heads):
    """A graph for all heads, or one for each."""
    one = st.sampled_from(GRAPHS)
    if draw(st.booleans()):
        return draw(one)
    return per_head(*(draw(one) for _ in range(heads)))


@st.composite
def calls(draw):
    samples, shared, group = (draw(st.integers(1, 3)) for _ in range(3))
    graph = per_sample(*(several(draw, shared * group) for _ in range(samples)))
    n, m = draw(st.integers(0, 7)), draw(st.integers(1, 7))
    offset = draw(st.sampled_from([0, 2]))
    return graph, samples, shared, group, n, m, offset, draw(st.sets(st.sampled_from(TERMS)))


def random(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def terms(graph, name, heads, shared, n, m):
    """One tensor of edges for each graph, as the lists that `attention` takes."""
    last = {"edge_key": (4,), "edge_value": (3,)}.get(name, ())
    out = []
    for one in graph:
        if isinstance(one, per_head):
            out.append([random(of.count(n, m), *last) for of in one])
        else:
            out.append(random(shared if last else heads, one.count(n, m), *last))
    return out


def leaves(given):
    if isinstance(given, torch.Tensor):
        return [given]
    return [x for one in given for x in leaves(one)]


@settings(max_examples=60, deadline=None)
@given(calls())
def test_samples_are_as_the_calls_one_by_one(case):
    graph, samples, shared, group, n, m, offset, names = case
    heads = shared * group
    torch.manual_seed(0)
    q, k, v = (
        random(samples, heads, n, 4),
        random(samples, shared, m, 4),
        random(samples, shared, m, 3),
    )
    placed = graph.shift(-offset, 0)
    edges = {x: terms(placed, x, heads, shared, n, m) for x in names if x.startswith("edge")}
    bias = random(samples, heads, n, m) if "bias" in names else None
    table = random(heads, 5)
    score = S + relative(table) if "table" in names else S * (1 + H)
    lengths = torch.randint(0, m + 1, (samples,)) if "lengths" in names else None
    options = dict(offset=offset, return_lse=True, return_weights=True, score=score)
    out, lse, weights = attention(q, k, v, graph, bias=bias, lengths=lengths, **edges, **options)

    outs, sums, shares = [], [], []
    for b, one in enumerate(graph):
        of = per_head(*[one] * heads) if not isinstance(one, per_head) else one
        found, found_lse, found_weights = [], [], []
        for h, pattern in enumerate(of):
            here = {}
            for name, given_terms in edges.items():
                row = (
                    h // group
                    if isinstance(given_terms[b], torch.Tensor) and name[5] in "kv"
                    else h
                )
                here[name] = given_terms[b][row][None]
            node = S + relative(table[h]) if "table" in names else S * (1 + h)
            y, z, w = attention(
                q[b, h : h + 1],
                k[b, h // group : h // group + 1],
                v[b, h // group : h // group + 1],
                pattern,
                bias=None if bias is None else bias[b, h : h + 1],
                lengths=None if lengths is None else lengths[b],
                **here,
                **{**options, "score": node},
            )
            found.append(y), found_lse.append(z), found_weights.append(w)
        outs.append(torch.cat(found)), sums.append(torch.cat(found_lse))
        shares += found_weights
    torch.testing.assert_close(out, torch.stack(outs))
    torch.testing.assert_close(lse, torch.stack(sums))
    assert all(
        isinstance(w, list) == isinstance(g, per_head) for w, g in zip(weights, graph, strict=True)
    )
    given_weights = [
        w for one in weights for w in (one if isinstance(one, list) else one.unbind(0))
    ]
    for a, b in zip(given_weights, shares, strict=True):
        torch.testing.assert_close(a, b[0])

    inputs = [q, k, v, table, *([] if bias is None else [bias]), *leaves(list(edges.values()))]
    pull = torch.randn_like(out)
    ours = torch.autograd.grad((out * pull).sum(), inputs, materialize_grads=True)
    theirs = torch.autograd.grad((torch.stack(outs) * pull).sum(), inputs, materialize_grads=True)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("kernel", ["reference", "gather", "csr"])
def test_edges_of_heads_are_those_of_each_call(kernel):
    q, k, v = random(2, 4, 9, 4), random(2, 2, 9, 4), random(2, 2, 9, 4)
    graph = per_head(window(1), causal(), window(1), strided(2))
    pairs = [one.count(9) for one in graph]
    bias, key = [random(2, e) for e in pairs], [random(e, 4) for e in pairs]
    out, weights = attention(
        q, k, v, graph, edge_bias=bias, edge_key=key, return_weights=True, kernel=kernel
    )
    for head, one in enumerate(graph):
        of = slice(head, head + 1), slice(head // 2, head // 2 + 1)
        y, w = attention(
            q[:, of[0]],
            k[:, of[1]],
            v[:, of[1]],
            one,
            edge_bias=bias[head][:, None],
            edge_key=key[head],
            return_weights=True,
        )
        torch.testing.assert_close(out[:, of[0]], y)
        torch.testing.assert_close(weights[head], w[:, 0])
        inputs = [q, k, v, bias[head], key[head]]
        for a, b in zip(
            torch.autograd.grad(
                weights[head].square().sum(), inputs, retain_graph=True, materialize_grads=True
            ),
            torch.autograd.grad(w.square().sum(), inputs, materialize_grads=True),
            strict=True,
        ):
            torch.testing.assert_close(a, b)


def test_a_graph_is_called_once_however_many_samples_have_it():
    edges = from_edges([(0, 1), (1, 2)], shape=(8, 8))
    graph = per_sample(edges, causal(), edges, edges, causal(), edges)
    assert [part.at for part in parts_of(graph)] == [[0, 2, 3, 5], [1, 4]]


def test_samples_drop_weights_of_their_own():
    x = torch.zeros(2, 1, 64, 4)
    v = torch.eye(64).expand(2, 1, 64, 64)
    graph = per_sample(window(20), window(21))
    torch.manual_seed(0)
    out = attention(x, x, v, graph, dropout=0.5)
    torch.manual_seed(0)
    assert torch.equal(out, attention(x, x, v, graph, dropout=0.5))
    kept = out[:, 0][:, window(20).dense(64)] > 0
    assert 0.4 < (kept[0] == kept[1]).float().mean() < 0.6


def test_pairs_that_count_twice_are_named_in_samples_too():
    x = torch.zeros(1, 2, 8, 4)
    with pytest.warns(PairsCountedOnce):
        attention(x, x, x, per_sample(per_head(full(), bigbird(1, 1, variant="hf_eval"))))
