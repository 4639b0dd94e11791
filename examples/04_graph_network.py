"""A graph network reads the pairs from a graph: two layers of graph convolution.

It learns Zachary's question on a graph of our own: which of two clubs does a member join, when
only the two captains say so?
"""

import random

import torch

from edgewise import F, Program, R, V

MEMBERS, D = 16, 8

gcn = Program(
    [
        # 1/√(deg(I)·deg(J)), as Kipf and Welling have it
        (R.degree(V.I) <= R.edge(V.I, V.J)) | [F.count_agg],
        R.scale(V.I) <= F.inverse(F.sqrt(R.degree(V.I))),
        R.norm(V.I, V.J) <= (R.scale(V.I) * R.scale(V.J), R._edge(V.I, V.J)),
        (R.h(V.I) <= (R.norm(V.I, V.J), R.x(V.J)[D, MEMBERS])) | [F.product],
        R.h / 1 | [F.tanh],
        (R.out(V.I) <= (R.norm(V.I, V.J), R.h(V.J)[2, D])) | [F.product],
    ]
)

choose = random.Random(0)
club = [i % 2 for i in range(MEMBERS)]
friends = {(i, i) for i in range(MEMBERS)}
for i in range(MEMBERS):
    for j in range(i):
        if choose.random() < (0.6 if club[i] == club[j] else 0.04):
            friends |= {(i, j), (j, i)}

facts = [R.edge(i, j) for i, j in friends]
facts += [R.x(i)[row] for i, row in enumerate(torch.eye(MEMBERS))]

weights = gcn.weights(seed=0)
optimiser = torch.optim.Adam(weights.values(), lr=0.05)
captains = torch.tensor([0, 1])
for _ in range(30):
    solution = gcn.solve(facts, weights=weights)
    scores = torch.stack(list(solution[R.out(V.I)].values()))
    loss = torch.nn.functional.cross_entropy(scores[captains], captains)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

right = sum(int(row.argmax()) == side for row, side in zip(scores, club, strict=True))
print(f"{len(friends)} messages a layer; {right} of {MEMBERS} members in their club")
assert right >= MEMBERS - 1
