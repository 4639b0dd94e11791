"""A social network: who is influential, and which links to suggest.

The club of Zachary (1977): 34 people, 78 friendships. Influence is personal PageRank as rules, the
share of attention that reaches a person; suggestions are pairs that share many friends, weighted
by how few friends those have (Adamic and Adar 2003), then learned: a graph network scores pairs.
"""

import networkx
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from edgewise import F, Program, R, V, data, repeat, rows
from edgewise.zoo import graphsage
from edgewise.zoo.network import Network

club = networkx.karate_club_graph()
found = data.from_networkx(club)
friend, n = found.inputs["edge"].keys, len(club)


def step(rank):
    return [
        (R.reached(V.I) <= (R.share(V.J), rank(V.J), R._friend(V.I, V.J))) | [F.product],
        R.out(V.I) <= (R.reached(V.I)[0.85].fixed(), R.start(V.I)[0.15].fixed()),
    ]


influence = Program([
    R.degree(V.I) <= R.friend(V.I, V.J),
    R.share(V.I) <= F.inverse(R.degree(V.I)),
    R.start(V.I) <= (R.everyone, R._friend(V.I, V.J)),
    R.everyone[1 / n].fixed(),
    repeat(step, 60, name="step")(R.start),
    R.rank(V.I) <= R["step.out"](V.I),
])  # fmt: skip
model = influence.compile(R.rank)
rank = model(model.ground(friend=rows(friend))).data
top = rank.topk(3).indices.tolist()
print("influential:", [(found.names["node"][i], round(rank[i].item(), 3)) for i in top])
wanted = networkx.pagerank(club, weight=None, tol=1e-12)
assert max(abs(rank[i].item() - wanted[i]) for i in range(n)) < 1e-5

# Suggestions by a rule: friends of friends who are not friends yet.

common = Program([
    R.degree(V.I) <= R.friend(V.I, V.J),
    R.weight(V.I) <= F.inverse(F.log(R.degree(V.I))),
    R.suggest(V.I, V.J)
    <= (R.weight(V.K), R._friend(V.I, V.K), R._friend(V.K, V.J), ~R.friend(V.I, V.J),
        R.special.lt(V.I, V.J)),
])  # fmt: skip
solution = common.solve([R.friend(i, j) for i, j in friend.T.tolist()])
suggested = sorted(solution[R.suggest(V.I, V.J)].items(), key=lambda item: -item[1])
print("suggested:", *(f"{atom}: {value:.2f}" for atom, value in suggested[:3]))
((_, _, score),) = networkx.adamic_adar_index(club, [suggested[0][0].terms])
assert abs(score - suggested[0][1].item()) < 1e-9

# Suggestions learned: every fifth friendship is hidden; do they stand above pairs that are none?

pairs, apart = friend[:, friend[0] < friend[1]].T, torch.tensor(list(networkx.non_edges(club)))
hidden, known = pairs[::5], torch.cat([pairs[k::5] for k in range(1, 5)])
both = torch.cat([known, known.flip(1)]).T
x = torch.cat([torch.eye(n), data.random_walk(both, n, steps=8)], 1)
config = Network(inputs=n + 8, hidden=16, outputs=1, task="edge", head=1, pairs="product")
scorer = graphsage.network(config).compile(R.logits, seed=0)
seen, unseen = (
    scorer.ground(x=x, edge=rows(both), pair=rows(torch.cat([torch.arange(len(p))[None], p.T])))
    for p in (torch.cat([known, apart[::2]]), torch.cat([hidden, apart[1::2]]))
)
label = (torch.arange(len(known) + len(apart[::2])) < len(known)).float()
optimiser = torch.optim.Adam(scorer.parameters(), lr=0.01, weight_decay=1e-3)
for _ in range(80):
    optimiser.zero_grad()
    binary_cross_entropy_with_logits(scorer(seen).data.flatten(), label).backward()
    optimiser.step()
score = scorer(unseen).data.detach().flatten()
above = (score[: len(hidden), None] > score[len(hidden) :]).float().mean().item()
print(f"a hidden friendship stands above a pair that is none: {above:.2f}")
assert above > 0.65
