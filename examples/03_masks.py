"""One more atom in the body of `weights`, and it is another model.

A mask forbids pairs after they were computed; a condition never makes them.
"""

import math

import torch

from edgewise import F, Program, R, V

D, N = 4, 12


def attention(*condition):
    return Program(
        [
            R.d_k[1 / math.sqrt(D)].fixed(),
            (R.weights(V.I, V.J) <= (R.d_k, R.x(V.J).T, R.x(V.I), *condition))
            | [F.product, F.softmax_agg(agg_terms=[V.J])],
            (R.attention(V.I) <= (R.weights(V.I, V.J), R.x(V.J))) | [F.product],
        ]
    )


VARIANTS = {
    "complete": ((), lambda i, j: True),
    "causal": ((R.special.leq(V.J, V.I),), lambda i, j: j <= i),
    "the last three": (
        (R.special.sub(V.I, V.J, V.D), R.special.leq(V.D, 3)),
        lambda i, j: 0 <= i - j <= 3,
    ),
    "every fourth": (
        (R.special.sub(V.I, V.J, V.D), R.special.mod(V.D, 4, 0)),
        lambda i, j: i >= j and (i - j) % 4 == 0,
    ),
    "not itself": ((R.special.neq(V.I, V.J),), lambda i, j: i != j),
}

torch.manual_seed(0)
x = torch.randn(N, D, dtype=torch.float64)
facts = [R.x(i)[row] for i, row in enumerate(x)]

for name, (condition, allowed) in VARIANTS.items():
    solution = attention(*condition).solve(facts)
    ours = torch.stack(list(solution[R.attention(V.I)].values()))
    mask = torch.tensor([[allowed(i, j) for j in range(N)] for i in range(N)])
    theirs = torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)
    pairs = solution.computed["weights"]
    atoms = ", ".join(map(repr, condition)) or "nothing"
    print(f"{name:<15} {pairs:>3} pairs of {N * N}   + {atoms}")
    assert pairs == mask.sum()
    assert torch.allclose(ours, theirs, atol=1e-12)
