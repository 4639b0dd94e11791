"""Relations have kinds: one weight for each kind of edge, as a family.

`W.kind(V.T)[...]` is one matrix for each value of T; its domain is declared, so the parameters
exist before any data. The first layer is an R-GCN, the second is attention with typed keys.
"""

import torch

from edgewise import F, Program, R, V, W

D = 4
KINDS = ["likes", "knows", "avoids"]

model = Program(
    [
        R.h(V.I) <= R.x(V.I)["self":D, D],
        R.h(V.I) <= (R.x(V.J)[W.kind(V.T)[D, D]], R._edge(V.I, V.T, V.J)),
        R.h / 1 | [F.tanh],
        R.q(V.I) <= R.h(V.I)["q":D, D],
        # a key depends on the kind of edge it is read along
        R.k(V.T, V.J) <= R.h(V.J)[W.key(V.T)[D, D]],
        (R.weights(V.I, V.T, V.J) <= (R.k(V.T, V.J).T, R.q(V.I), R._edge(V.I, V.T, V.J)))
        | [F.product, F.softmax_agg(agg_terms=[V.T, V.J])],
        (R.out(V.I) <= (R.weights(V.I, V.T, V.J), R.h(V.J))) | [F.product],
    ],
    domains={V.T: KINDS},
)

edges = [
    ("ann", "likes", "bob"),
    ("ann", "avoids", "cat"),
    ("bob", "knows", "ann"),
    ("bob", "knows", "cat"),
    ("cat", "likes", "ann"),
]
torch.manual_seed(0)
x = {name: torch.randn(D, dtype=torch.float64) for name in ("ann", "bob", "cat")}
facts = [R.edge(*edge) for edge in edges] + [R.x(name)[row] for name, row in x.items()]
weights = model.weights(seed=0)
solution = model.solve(facts, weights=weights)

print({name: tuple(weight.shape) for name, weight in weights.items()})
for atom, value in solution[R.weights("ann", V.T, V.J)].items():
    print(f"{atom}: {value:.3f}")

kind = dict(zip(KINDS, weights["kind"], strict=True))
h = weights["self"] @ x["ann"] + kind["likes"] @ x["bob"] + kind["avoids"] @ x["cat"]
assert torch.allclose(solution[R.h("ann")], h.tanh())
assert weights["kind"].shape == (3, D, D)
assert solution.computed["weights"] == len(edges)
