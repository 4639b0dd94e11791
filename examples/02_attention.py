"""Attention is two rules: a weight for every pair, and a weighted sum.

The same numbers as torch's own attention, and the same gradients.
"""

import math

import torch

from edgewise import F, Program, R, V

D, N = 8, 6

attention = Program(
    [
        R.q(V.I) <= R.x(V.I)["q":D, D],
        R.k(V.I) <= R.x(V.I)["k":D, D],
        R.v(V.I) <= R.x(V.I)["v":D, D],
        R.d_k[1 / math.sqrt(D)].fixed(),
        (R.weights(V.I, V.J) <= (R.d_k, R.k(V.J).T, R.q(V.I)))
        | [F.product, F.softmax_agg(agg_terms=[V.J])],
        (R.attention(V.I) <= (R.weights(V.I, V.J), R.v(V.J))) | [F.product],
    ]
)

torch.manual_seed(0)
x = torch.randn(N, D, dtype=torch.float64)
weights = attention.weights(seed=0)
solution = attention.solve([R.x(i)[row] for i, row in enumerate(x)], weights=weights)
ours = torch.stack(list(solution[R.attention(V.I)].values()))

q, k, v = (x @ weights[name].T for name in "qkv")
theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v)

grad_ours = torch.autograd.grad(ours.square().sum(), weights.values())
grad_theirs = torch.autograd.grad(theirs.square().sum(), weights.values())
difference = max((a - b).abs().max().item() for a, b in zip(grad_ours, grad_theirs, strict=True))

print(f"pairs computed: {solution.computed['weights']}")
print(f"largest difference from torch: {(ours - theirs).abs().max():.1e}")
print(f"largest difference of a gradient: {difference:.1e}")

assert solution.computed["weights"] == N * N
assert torch.allclose(ours, theirs, atol=1e-12)
assert difference < 1e-12
