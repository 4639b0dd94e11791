"""DNA: two motifs, 4,000 letters apart, must occur together; BigBird learns it, a window cannot.

Every sequence has the first motif near its start, the second 4,000 letters later, or both: half of
them have both, the others one. Letters are read as overlapping words of 6, as DNABERT does, and
the answer is read at the first word. There BigBird attends to all words, a window to the near ones.
"""

import time

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from edgewise import F, Program, R, V
from edgewise.graphs import bigbird, window

LETTERS, WORD, APART, D = 4_160, 6, 4_000, 16
MOTIFS = [torch.tensor([0, 2, 3, 1, 1, 0]), torch.tensor([3, 3, 1, 2, 0, 2])]


def layers(near):
    rules = []
    for at in range(2):
        x, q, k, v, p, y = (R[f"{name}{at}"] for name in ("x", "q", "k", "v", "p", "y"))
        rules += [
            *(r(V.I) <= x(V.I)[r.relation : D, D] for r in (q, k, v)),
            (p(V.I, V.J) <= (k(V.J).T, q(V.I), near(V.I, V.J)))
            | [F.product, F.softmax_agg(agg_terms=[V.J])],
            (y(V.I) <= (p(V.I, V.J), v(V.J))) | [F.product],
            R[f"x{at + 1}"](V.I) <= (x(V.I), y(V.I)),
        ]
    rules += [(R.z <= R.x2(0)["z":D, D]) | [F.relu], R.answer <= R.z["out":1, D]]
    return Program(rules)


def drawn(count, seed):
    """Words of sequences, and whether they have both motifs."""
    draw = torch.Generator().manual_seed(seed)
    letters = torch.randint(4, (count, LETTERS), generator=draw)
    which = torch.randint(4, (count,), generator=draw)  # 0: the first, 1: the second, else both
    starts = torch.randint(20, 100, (count,), generator=draw)
    for sequence, case, start in zip(letters, which.tolist(), starts.tolist(), strict=True):
        for at, motif in enumerate(MOTIFS):
            if case in (at, 2, 3):
                sequence[start + APART * at :][:WORD] = motif
    words = letters.unfold(1, WORD, 1) @ 4 ** torch.arange(WORD)
    return words, (which > 1).float()


def accuracy(near, steps=60):
    torch.manual_seed(0)
    model, words = layers(near).compile(R.answer, seed=0), torch.nn.Embedding(4**WORD, D)
    weights = [*model.parameters(), *words.parameters()]
    optimiser = torch.optim.Adam(weights, lr=0.02)
    for step in range(steps):
        read, target = drawn(16, step)
        loss = binary_cross_entropy_with_logits(model(x0=words(read)).flatten(), target)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 10 == 9:
            print(f"  step {step + 1}: loss {loss.item():.3f}")
    read, target = drawn(100, 10_000)
    with torch.no_grad():
        found = model(x0=words(read)).flatten() > 0
    return (found == target.bool()).float().mean().item()


start = time.perf_counter()
far = accuracy(bigbird(64, random=1, global_last=0))
print(f"BigBird: {far:.0%} of 100 new sequences, {time.perf_counter() - start:.0f} s")
near = accuracy(window(96))
print(f"a window of 96 to each side: {near:.0%}; {time.perf_counter() - start:.0f} s")
assert far >= 0.95
assert near <= 0.85
