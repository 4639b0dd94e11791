"""Graph attention: the two attention rules, with the edges of a graph as the condition.

Graph Attention Networks (https://arxiv.org/abs/1710.10903), equal to the formula of the paper.
"""

import torch

from edgewise import F, Program, R, V

D = 4

gat = Program(
    [
        R.z(V.I) <= R.x(V.I)["w":D, 3],
        # e_ij = leaky_relu(a · [z_i, z_j]) is two half products
        (R.score(V.I, V.J) <= (R.z(V.I)["left":1, D], R.z(V.J)["right":1, D], R._edge(V.I, V.J)))
        | [F.leaky_relu(0.2)],
        (R.alpha(V.I, V.J) <= R.score(V.I, V.J)) | [F.softmax_agg(agg_terms=[V.J])],
        (R.h(V.I) <= (R.alpha(V.I, V.J), R.z(V.J))) | [F.product],
    ]
)

edges = [(0, 0), (0, 1), (0, 2), (1, 1), (1, 0), (2, 2), (2, 3), (3, 3), (3, 0)]
torch.manual_seed(0)
x = torch.randn(4, 3, dtype=torch.float64)
weights = gat.weights(seed=1)
facts = [R.edge(i, j) for i, j in edges] + [R.x(i)[row] for i, row in enumerate(x)]
solution = gat.solve(facts, weights=weights)

# the paper's formula with a dense mask
z = x @ weights["w"].T
e = torch.nn.functional.leaky_relu(
    (z @ weights["left"].T) + (z @ weights["right"].T).T, negative_slope=0.2
)
mask = torch.full((4, 4), float("-inf"), dtype=torch.float64)
for i, j in edges:
    mask[i, j] = 0
expected = (e + mask).softmax(1) @ z

for atom, value in solution[R.alpha(0, V.J)].items():
    print(f"{atom}: {value:.3f}")
ours = torch.stack(list(solution[R.h(V.I)].values()))
print(f"scores computed: {solution.computed['score']}, one for each edge")

assert solution.computed["score"] == len(edges)
assert torch.allclose(ours, expected, atol=1e-12)
