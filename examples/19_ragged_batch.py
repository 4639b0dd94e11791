"""188 molecules of different sizes in one call: `ragged` gives one input for each sample.

Rules describe one molecule. A batch is one more key that the compiler adds, so there is no padding
and no loop over samples. As in example 11 the question is whether a chain of carbons ends in an
acid group, C(=O)O: both oxygens on one carbon.
"""

import random

import torch

from edgewise import F, Program, R, V, W, ragged, rows

D = 8

program = Program(
    [
        R.h(V.A) <= R.atom(V.A)["in":D, 2],
        R.h1(V.A) <= R.h(V.A)["self1":D, D],
        R.h1(V.A) <= (R.h(V.B)[W.bond1(V.T)[D, D]], R._bond(V.A, V.B, V.T)),
        R.h1 / 1 | [F.relu],
        R.h2(V.A) <= R.h1(V.A)["self2":D, D],
        R.h2(V.A) <= (R.h1(V.B)[W.bond2(V.T)[D, D]], R._bond(V.A, V.B, V.T)),
        R.h2 / 1 | [F.relu],
        (R.acid["out":1, D] <= R.h2(V.A)) | [F.max_agg],
    ],
    domains={V.T: 2},  # single, double
)


def molecule(choose):
    """Atoms as rows of (carbon, oxygen), bonds as keys (a, b, type), and whether it is an acid."""
    length = choose.randint(2, 12)
    first, second = choose.randrange(length), choose.randrange(length)
    second = first if choose.random() < 0.4 else second
    bonds = [(a, a + 1, 0) for a in range(length - 1)]
    bonds += [(first, length, 1), (second, length + 1, 0)]
    atoms = torch.tensor([[1.0, 0.0]] * length + [[0.0, 1.0]] * 2)
    both = [*bonds, *((b, a, t) for a, b, t in bonds)]
    return atoms, rows(torch.tensor(both).T), float(first == second)


def batch(count, seed):
    made = [molecule(random.Random(seed + m)) for m in range(count)]
    atoms, bonds, acid = zip(*made, strict=True)
    return ragged(atoms), ragged(bonds), torch.tensor(acid)


model = program.compile(R.acid, seed=0)
atoms, bonds, truth = batch(188, seed=0)
data = model.ground(atom=atoms, bond=bonds)
optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
for _ in range(40):
    scores = model(data).data
    loss = torch.nn.functional.binary_cross_entropy_with_logits(scores, truth)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

atoms, bonds, truth = batch(100, seed=1000)
scores = model(atom=atoms, bond=bonds).data
right = int(((scores > 0) == truth.bool()).sum())
alone = model(atom=atoms.samples[7], bond=bonds.samples[7])
print(f"{right} of 100 unseen molecules right, {int(truth.sum())} of them acids")
print(f"molecule 7 in the batch {scores[7].item():.4f}, alone {alone.item():.4f}")
assert right >= 97
