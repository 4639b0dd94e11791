"""A family whose rules are learned: chains of relations, chosen softly, then printed as rules.

The model sees who is whose father, mother and brother, and some uncles and grandmothers. It learns
which two relations to follow, one after the other, to get from a person to the answer.
"""

import random

import torch

from edgewise import Program, R, V, numbers, rows
from edgewise.zoo import soft_rules

NAMES = ["father", "mother", "brother", "uncle", "grandmother"]
FATHER, MOTHER, BROTHER, UNCLE, GRANDMOTHER = range(5)

choose, facts, count = random.Random(0), set(), 0
for _ in range(25):  # families: grandparents, their children with a partner each, and theirs
    grandfather, grandmother = count, count + 1
    count += 2
    children = list(range(count, count + choose.randint(2, 4)))
    count += len(children)
    male = {child: choose.random() < 0.5 for child in children}
    for child in children:
        facts |= {(grandfather, FATHER, child), (grandmother, MOTHER, child)}
        facts |= {(child, BROTHER, other) for other in children if male[child] and other != child}
        partner, grandchild = count, count + 1
        count += 2
        parents = (child, partner) if male[child] else (partner, child)
        facts |= {(parents[0], FATHER, grandchild), (parents[1], MOTHER, grandchild)}


def two(first, second):
    """Who is related to whom by one relation after another."""
    return {(a, d) for a, r, b in facts if r == first for c, q, d in facts if (q, c) == (second, b)}


truth = {UNCLE: two(BROTHER, FATHER) | two(BROTHER, MOTHER),
         GRANDMOTHER: two(MOTHER, FATHER) | two(MOTHER, MOTHER)}  # fmt: skip
queries = torch.tensor([(a, r, b) for r, pairs in truth.items() for a, b in sorted(pairs)])
order = torch.randperm(len(queries), generator=torch.manual_seed(0))
train, test = queries[order[::2]], queries[order[1::2]]

config = soft_rules.Config(relations=len(NAMES), length=2, rank=2)
model = soft_rules.program(config).compile(R.score, seed=0)
none = rows(torch.zeros(3, 0, dtype=torch.int64))
data = model.ground(edge=rows(torch.tensor(sorted(facts)).T), hide=none)


def scores(some):
    start = torch.nn.functional.one_hot(some[:, 0], count).float()[..., None]
    return model(data, start=start, relation=numbers(some[:, 1]))


optimiser = torch.optim.Adam(model.parameters(), lr=0.3)
for _ in range(60):
    loss = torch.nn.functional.cross_entropy(scores(train), train[:, 2])
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

found = Program([])
for relation in truth:
    for chain, weight in soft_rules.chains(
        config, dict(model.named_parameters()), relation, most=2
    ):
        rule = soft_rules.as_rule(NAMES[relation], [(NAMES[k], False) for k in chain])
        print(f"{weight:.2f}  {Program([rule]).text().strip()}")
        found += Program([rule])
solution = found.solve([R[NAMES[r]](a, b) for a, r, b in sorted(facts)])
for relation, pairs in truth.items():
    learned = {atom.terms for atom in solution[R[NAMES[relation]](V.X, V.Y)]}
    wrong = len(learned - pairs)
    print(f"{NAMES[relation]}: {len(learned & pairs)} of {len(pairs)} pairs, {wrong} wrong")
    assert learned == pairs
