"""DNA: two clusters of motifs, 4,000 letters apart, must occur together; BigBird learns it.

Half of the sequences have a cluster of the first motif near their start and one of the second 4,000
letters later; the others have only one of them. Letters are read as overlapping words of 6, as
DNABERT does, and the answer is read at a start mark: there BigBird attends to all words, a window
to the near ones, which know the first motif at most (3 of 4 answers are right then).
"""

import time

import torch
from torch.nn.functional import binary_cross_entropy_with_logits, pad

from edgewise import F, Program, R, V
from edgewise.graphs import bigbird, window

LETTERS, APART, WORD, COPIES, D = 4_240, 4_000, 6, 12, 16
MOTIFS = [torch.tensor([0, 2, 3, 1, 1, 0]), torch.tensor([3, 3, 1, 2, 0, 2])]
START = 4**WORD  # the mark before the first word


def program(near):
    return Program([
        *(R[name](V.I) <= R.x(V.I)[name:D, D] for name in "qkv"),
        (R.weights(V.I, V.J) <= (R.k(V.J).T, R.q(V.I), near(V.I, V.J)))
        | [F.product, F.softmax_agg(agg_terms=[V.J])],
        (R.y(V.I) <= (R.weights(V.I, V.J), R.v(V.J))) | [F.product],
        (R.z <= (R.x(0)["z":D, D], R.y(0)["z":D, D])) | [F.tanh],
        R.answer <= R.z["answer":1, D],
    ])  # fmt: skip


def drawn(count, seed):
    """Words of sequences, and whether they have both motifs."""
    draw = torch.Generator().manual_seed(seed)
    letters = torch.randint(4, (count, LETTERS), generator=draw)
    which = torch.randint(4, (count,), generator=draw)  # 0: the first, 1: the second, else both
    starts = torch.randint(20, 90, (count,), generator=draw)
    for sequence, case, start in zip(letters, which.tolist(), starts.tolist(), strict=True):
        for at, motif in enumerate(MOTIFS):
            if case in (at, 2, 3):
                sequence[start + APART * at :][: WORD * COPIES] = motif.repeat(COPIES)
    words = letters.unfold(1, WORD, 1) @ 4 ** torch.arange(WORD)
    return pad(words, (1, 0), value=START), (which > 1).float()


def accuracy(near, steps=110):
    torch.manual_seed(0)
    model, words = program(near).compile(R.answer, seed=0), torch.nn.Embedding(START + 1, D)
    torch.nn.init.normal_(words.weight, std=0.1)
    weights = [*model.parameters(), *words.parameters()]
    optimiser = torch.optim.Adam(weights, lr=0.02)
    rate = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.05, total_iters=steps)
    for step in range(steps):
        read, target = drawn(32, step)
        loss = binary_cross_entropy_with_logits(model(x=words(read)).flatten(), target)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 0.2)
        optimiser.step()
        rate.step()
        if step % 20 == 19:
            print(f"  step {step + 1}: loss {loss.item():.3f}", flush=True)
    read, target = drawn(200, 10_000)
    with torch.no_grad():
        found = model(x=words(read)).flatten() > 0
    return (found == target.bool()).float().mean().item()


start = time.perf_counter()
far, near = accuracy(bigbird(64, random=1)), accuracy(window(96), steps=20)
print(f"BigBird: {far:.0%} of 200 new sequences, a window of 96 to each side: {near:.0%}")
print(f"{time.perf_counter() - start:.0f} s")
assert far >= 0.95
assert near <= 0.85
