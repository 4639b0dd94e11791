"""Molecules are small graphs: all are facts of one program, with one more key for the molecule.

Two rounds of messages along typed bonds and a sum over atoms decide whether a chain of carbons
ends in an acid group, C(=O)O. An alcohol or an aldehyde has only half of it.
"""

import random

import torch

from edgewise import F, Program, R, V, W

D = 6

model = Program(
    [
        R.h0(V.M, V.A) <= (W.element(V.E)[D,], R._atom(V.M, V.A, V.E)),
        R.h1(V.M, V.A) <= R.h0(V.M, V.A)["self1":D, D],
        R.h1(V.M, V.A) <= (R.h0(V.M, V.B)[W.bond1(V.T)[D, D]], R._bond(V.M, V.A, V.B, V.T)),
        R.h1 / 2 | [F.relu],
        R.h2(V.M, V.A) <= R.h1(V.M, V.A)["self2":D, D],
        R.h2(V.M, V.A) <= (R.h1(V.M, V.B)[W.bond2(V.T)[D, D]], R._bond(V.M, V.A, V.B, V.T)),
        R.h2 / 2 | [F.relu],
        (R.acid(V.M)["out":1, D] <= R.h2(V.M, V.A)) | [F.max_agg],
    ],
    domains={V.E: ["C", "O"], V.T: ["single", "double"]},
)


def molecule(number, choose):
    """Facts of a chain of carbons with oxygens somewhere, and whether it is an acid."""
    length = choose.randint(2, 4)
    atoms = ["C"] * length
    bonds = [(i, i + 1, "single") for i in range(length - 1)]
    for kind, where in (("double", choose.randrange(length)), ("single", choose.randrange(length))):
        bonds.append((where, len(atoms), kind))
        atoms.append("O")
    facts = [R.atom(number, a, element) for a, element in enumerate(atoms)]
    for a, b, kind in bonds:
        facts += [R.bond(number, a, b, kind), R.bond(number, b, a, kind)]
    return facts, float(bonds[-1][0] == bonds[-2][0])


def batch(count, seed):
    choose = random.Random(seed)
    made = [molecule(m, choose) for m in range(count)]
    return [f for facts, _ in made for f in facts], torch.tensor([y for _, y in made]).double()


facts, truth = batch(20, seed=0)
weights = model.weights(seed=0)
optimiser = torch.optim.Adam(weights.values(), lr=0.03)
for step in range(40):
    scores = torch.stack(list(model.solve(facts, weights=weights)[R.acid(V.M)].values()))
    loss = torch.nn.functional.binary_cross_entropy_with_logits(scores, truth)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    if step % 20 == 19:
        print(f"step {step + 1}: loss {loss.item():.3f}")

facts, truth = batch(60, seed=1)
scores = torch.stack(list(model.solve(facts, weights=weights)[R.acid(V.M)].values()))
right = int(((scores > 0) == truth.bool()).sum())
print(f"{right} of 60 unseen molecules right, {int(truth.sum())} of them acids")
assert right >= 57
