"""BP-Transformer as rules against plain torch, written from the paper's equations."""

import math

import torch
from gradients import assert_equal_with_gradients
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch.nn import functional as f

from edgewise import R, numbers
from edgewise.graphs import binary_partition
from edgewise.zoo import bp_transformer


def affine(x, w, name):
    return x @ w(f"{name}.weight").T + w(f"{name}.bias")


def normed(x, w, name):
    return f.layer_norm(x, x.shape[-1:], w(f"{name}.gain"), w(f"{name}.bias"))


def written(w, config, token):
    """All pairs of nodes, those without an edge masked."""
    n = token.shape[1]
    graph = binary_partition(config.k, tokens=n, causal=config.causal, clip=config.clip)
    i, j = graph.edges(graph.nodes)
    kind = torch.full((graph.nodes, graph.nodes), -1)
    kind[i, j] = graph.edge_types()
    x = f.pad(w("word")[token], (0, 0, 0, graph.nodes - n))
    for k in range(config.layers):
        at = f"layer.{k}."
        q, key, v = (
            torch.einsum("bne,hde->bhnd", x, w(f"{at}{a}.weight")) + w(f"{at}{a}.bias")[:, None]
            for a in "qkv"
        )
        keys = key[:, :, None] + w(f"{at}type")[kind.clamp(min=0)]  # one for each pair
        scores = torch.einsum("bhid,bhijd->bhij", q, keys) / math.sqrt(q.shape[-1])
        weights = scores.masked_fill(kind < 0, -torch.inf).softmax(-1)
        heard = (weights @ v).transpose(1, 2).flatten(2)
        mid = normed(x + affine(heard, w, f"{at}attended"), w, f"{at}norm1")
        inner = affine(mid, w, f"{at}mlp").relu()
        x = normed(mid + affine(inner, w, f"{at}added"), w, f"{at}norm2")
    return x


@settings(max_examples=6, phases=[Phase.explicit, Phase.generate])
@given(
    st.integers(1, 13),
    st.integers(1, 3),
    st.integers(0, 3),
    st.booleans(),
    st.sampled_from(["out", "logits"]),
)
def test_is_the_paper_s(n, k, clip, causal, output):
    torch.manual_seed(n)
    config = bp_transformer.Config(9, 4, 2, 5, 2, k, clip, causal, dropout=0.0)
    model = bp_transformer.program(config).compile(R[output], seed=0, dtype=torch.float64)
    token = torch.randint(0, 9, (2, n))
    data = model.ground(edge=config.edges(n), token=numbers(token))
    theirs = written(model.weight, config, token)
    if output == "out":
        ours = model.rows(data).data  # spans lie beyond the axis of the tokens
    else:
        ours, theirs = model(data), theirs[:, :n] @ model.weight("word").T
    assert_equal_with_gradients(model, ours, theirs)


def test_its_attention_is_one_node():
    config = bp_transformer.Config(9, 4, 2, 5, 2, 1, 2)
    model = bp_transformer.program(config).compile(R.out, seed=0)
    inputs = {"edge": config.edges(5), "token": numbers(torch.zeros(1, 5, dtype=torch.long))}
    assert not model.explain(json=True, stage="passes", **inputs)["passes"]["not fused"]
