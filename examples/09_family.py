"""Logic with values: family relations, negation, and a rule's trust learned from examples.

Conditions (`R._parent`) only filter; the weights of the rules are what is learned.
"""

import torch

from edgewise import F, Program, R, V

family = Program(
    [
        R.grandparent(V.X, V.Z) <= (R._parent(V.X, V.Y), R._parent(V.Y, V.Z)),
        R.sibling(V.X, V.Y) <= (R._parent(V.P, V.X), R._parent(V.P, V.Y), R.special.neq(V.X, V.Y)),
        R.has_child(V.X) <= R._parent(V.X, V.Y),
        R.childless(V.X) <= (R._person(V.X), ~R.has_child(V.X)),
        # who gets the house? each reason has a weight
        R.heir(V.X, V.Y)["direct":0.0] <= R._parent(V.X, V.Y),
        R.heir(V.X, V.Y)["skip":0.0] <= R._grandparent(V.X, V.Y),
        R.heir(V.X, V.Y)["side":0.0] <= (R._sibling(V.X, V.Y), R._childless(V.X)),
        R.heir / 2 | [F.sigmoid],
    ]
)

PARENTS = [("ada", "ben"), ("ada", "cleo"), ("ben", "dora"), ("ben", "emil")]
people = sorted({name for pair in PARENTS for name in pair})
facts = [R.parent(*pair) for pair in PARENTS] + [R.person(name) for name in people]

solution = family.solve(facts)
print("grandparents:", [atom.terms for atom in solution[R.grandparent(V.X, V.Y)]])
print("childless:", [atom.terms[0] for atom in solution[R.childless(V.X)]])

INHERITED = {("ada", "ben"): 1.0, ("ada", "cleo"): 1.0, ("ben", "dora"): 1.0}
INHERITED |= {("ada", "dora"): 0.0, ("ada", "emil"): 0.0, ("cleo", "ben"): 1.0}
weights = family.weights(seed=0)
optimiser = torch.optim.Adam(weights.values(), lr=0.3)
for _ in range(60):
    solution = family.solve(facts, weights=weights)
    guesses = torch.stack([solution[R.heir(*pair)] for pair in INHERITED])
    truth = torch.tensor(list(INHERITED.values()), dtype=torch.float64)
    loss = torch.nn.functional.binary_cross_entropy(guesses, truth)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

print({name: round(weight.item(), 1) for name, weight in weights.items()})
unseen = solution[R.heir("ben", "emil")].item()
print(f"emil inherits from ben: {unseen:.0%}")

assert len(solution[R.grandparent(V.X, V.Y)]) == 2
assert unseen > 0.9
assert weights["skip"] < 0 < weights["side"]
