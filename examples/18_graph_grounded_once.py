"""Ground a graph once, step many times: a graph convolution on 3,000 nodes and 80,000 edges.

Joins, range checks and layouts depend on keys, not on values: they are done when grounding, and a
step is tensor work. Four groups of nodes, mostly friends among themselves; ten of each group say
which one they are in, the others have features with much noise, and friends.
"""

import time

import torch

from edgewise import F, Program, R, V

N, GROUPS, D = 3_000, 4, 16

gcn = Program(
    [
        (R.degree(V.I) <= R.edge(V.I, V.J)) | [F.count_agg],
        R.scale(V.I) <= F.inverse(F.sqrt(R.degree(V.I))),
        (R.h(V.I) <= (R.scale(V.I), R.scale(V.J), R.x(V.J)[D, D], R._edge(V.I, V.J))) | [F.product],
        R.h / 1 | [F.relu],
        (R.out(V.I) <= (R.scale(V.I), R.scale(V.J), R.h(V.J)[GROUPS, D], R._edge(V.I, V.J)))
        | [F.product],
    ]
)

torch.manual_seed(0)
group = torch.randint(GROUPS, (N,))
i, j = torch.randint(N, (2, 120_000))
chosen = (group[i] == group[j]) | (torch.rand(len(i)) < 0.1)
i, j, self = i[chosen], j[chosen], torch.arange(N)
edge = torch.stack([torch.cat([i, j, self]), torch.cat([j, i, self])]).unique(dim=1)
x = torch.randn(N, D)
x[:, :GROUPS] += 0.5 * torch.nn.functional.one_hot(group, GROUPS)
labelled = torch.cat([(group == g).nonzero()[:10, 0] for g in range(GROUPS)])

model = gcn.compile(R.out, seed=0)
start = time.perf_counter()
data = model.ground(edge=edge, x=x)
grounded = 1e3 * (time.perf_counter() - start)
optimiser = torch.optim.Adam(model.parameters(), lr=0.04)
times = []
for _ in range(40):
    start = time.perf_counter()
    scores = model(data).data  # keys come from edges: rows, in key order
    loss = torch.nn.functional.cross_entropy(scores[labelled], group[labelled])
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    times.append(1e3 * (time.perf_counter() - start))

right = (scores.argmax(1) == group).float().mean().item()
print(f"{edge.shape[1]:,} edges, grounded in {grounded:.0f} ms; {right:.1%} in their group")
print(f"a step, forward and backward: {sorted(times)[20]:.0f} ms")
assert right > 0.95
