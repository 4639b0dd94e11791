"""Recommendations: what a customer likes is the mean of what they bought, and scores every item.

Two rules. A purchase that is to be predicted is hidden from the first one, at every step another.
"""

import torch

from edgewise import F, Program, R, V, W, rows

USERS, ITEMS, GENRES, D = 200, 60, 5, 8

program = Program(
    [
        (R.taste(V.U) <= (W.item(V.P)[D,], R._bought(V.U, V.P), ~R._hide(V.U, V.P))) | [F.avg_agg],
        R.score(V.U) <= R.taste(V.U)["likes":ITEMS, D],
    ],
    domains={V.P: ITEMS},
)

draw = torch.Generator().manual_seed(0)
likes = torch.randint(GENRES, (USERS,), generator=draw)  # nobody tells the model about genres
chance = torch.where(torch.arange(ITEMS) % GENRES == likes[:, None], 0.6, 0.03)
bought = torch.rand(USERS, ITEMS, generator=draw) < chance
for k in (1, 2, 3):  # three at least: one to predict, one to train with, one to know them by
    bought[torch.arange(USERS), likes + k * GENRES] = True


def one_of_each(there):
    """One of the things that each user bought, at random."""
    return torch.multinomial(there.double(), 1, generator=draw)[:, 0]


asked = one_of_each(bought)  # for the end: never seen in training
seen = bought.clone()
seen[torch.arange(USERS), asked] = False
users = torch.arange(USERS)

model = program.compile(R.score, seed=0, fill=0.0, dense=True)
data = model.ground(bought=rows(seen.nonzero().T))
optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
for step in range(81):
    target = one_of_each(seen)
    scores = model(data, hide=rows(torch.stack([users, target])))
    loss = torch.nn.functional.cross_entropy(scores, target)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    if step % 40 == 0:
        print(f"step {step:>2}: loss {loss.item():.2f}")

with torch.no_grad():
    scores = model(data, hide=rows(torch.stack([users, asked])))
scores[seen] = -torch.inf  # what they have
best = scores.topk(10).indices
hits = (best == asked[:, None]).any(1).double().mean().item()
alike = (best[:, :5] % GENRES == likes[:, None]).double().mean().item()
print(f"the item that was asked for is in the first ten: {hits:.0%}, {alike:.0%} of five fit")
print(f"for user 0: {best[0, :5].tolist()}, who bought {seen[0].nonzero()[:, 0].tolist()}")
assert hits > 0.6
assert alike > 0.7
