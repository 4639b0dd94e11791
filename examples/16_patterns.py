"""A graph of `edgewise.graphs` is an atom: sparse attention patterns by name, and their algebra."""

import math

import torch

from edgewise import F, Program, R, V
from edgewise.graphs import causal, global_tokens, strided, window

D, N = 4, 10


def attention(graph):
    return Program(
        [
            R.d_k[1 / math.sqrt(D)].fixed(),
            (R.weights(V.I, V.J) <= (R.d_k, R.x(V.J).T, R.x(V.I), graph(V.I, V.J)))
            | [F.product, F.softmax_agg(agg_terms=[V.J])],
            (R.attention(V.I) <= (R.weights(V.I, V.J), R.x(V.J))) | [F.product],
        ]
    )


torch.manual_seed(0)
x = torch.randn(N, D, dtype=torch.float64)
facts = [R.x(i)[row] for i, row in enumerate(x)]

for graph in (
    causal(),
    window(2),
    window(1) | global_tokens(1),  # Longformer
    causal() & (window(2) | strided(3)),  # a Sparse Transformer
):
    solution = attention(graph).solve(facts)
    ours = torch.stack(list(solution[R.attention(V.I)].values()))
    mask = graph.dense(N)
    print(f"{graph!r}: {solution.computed['weights']} of {N * N} pairs")
    print(graph.draw(N))
    theirs = torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)
    assert solution.computed["weights"] == graph.count(N)
    assert torch.allclose(ours, theirs, atol=1e-12)
