"""Heads are a weight family, layers are `repeat`: a Transformer encoder in eleven rules.

Twelve layers print as one block ×12; their weights are named by their scopes.
"""

import math

import torch

from edgewise import F, Program, R, V, W, repeat

D, HEADS, LAYERS = 8, 2, 12


def layer(x):
    size = D // HEADS
    return [
        (R.normed(V.I) <= x(V.I)) | [F.norm(1e-5)],
        R.q(V.H, V.I) <= R.normed(V.I)[W.q(V.H)[size, D]],
        R.k(V.H, V.I) <= R.normed(V.I)[W.k(V.H)[size, D]],
        R.v(V.H, V.I) <= R.normed(V.I)[W.v(V.H)[size, D]],
        R.d_k[1 / math.sqrt(size)].fixed(),
        (R.weights(V.H, V.I, V.J) <= (R.d_k, R.k(V.H, V.J).T, R.q(V.H, V.I)))
        | [F.product, F.softmax_agg(agg_terms=[V.J])],
        (R.head(V.H, V.I) <= (R.weights(V.H, V.I, V.J), R.v(V.H, V.J))) | [F.product],
        R.attended(V.I) <= x(V.I),
        R.attended(V.I) <= R.head(V.H, V.I)[W.o(V.H)[D, size]],  # concatenation as a sum
        (R.mlp(V.I) <= F.norm(R.attended(V.I))["up" : 4 * D, D]) | [F.gelu],
        R.out(V.I) <= R.attended(V.I) + R.mlp(V.I)["down":D, 4 * D],
    ]


stack = repeat(layer, LAYERS)(R.x)
encoder = Program([stack], domains={V.H: HEADS})
print(encoder)

torch.manual_seed(0)
facts = [R.x(i)[torch.randn(D, dtype=torch.float64)] for i in range(4)]
weights = encoder.weights(seed=0)
solution = encoder.solve(facts, weights=weights)
first = solution[stack.out(0)]
first.square().sum().backward()

print(f"\n{len(weights)} weights, such as {[name for name in weights if 'layer.11' in name]}")
print(f"groundings of the twelfth layer's weights: {solution.computed['layer.11.weights']}")

assert len(repr(encoder).splitlines()) < 25
assert first.shape == (D,)
assert solution.computed["layer.11.weights"] == HEADS * 4 * 4
assert all(weight.grad is not None for weight in weights.values())
