"""Recursion over time is a recurrent network: each state reads the one before it.

Equal to `torch.nn.RNN` step by step, and trained to remember the first of its inputs.
"""

import torch

from edgewise import F, Program, R, V

D, STEPS = 6, 8

rnn = Program(
    [
        R.h(0) <= R.x(0)["in":D, 1],
        R.h(V.T) <= (R.x(V.T)["in"], R.h(V.S)["back":D, D], R.special.next(V.S, V.T)),
        R.h / 1 | [F.tanh],
        R.last <= (R.h(STEPS - 1)["out":1, D]),
    ]
)


def facts(signal):
    return [R.x(t)[value] for t, value in enumerate(signal)]


torch.manual_seed(0)
weights = rnn.weights(seed=0)
signals = torch.randint(0, 2, (64, STEPS), dtype=torch.float64) * 2 - 1

theirs = torch.nn.RNN(1, D, bias=False, dtype=torch.float64)
theirs.weight_ih_l0.data = weights["in"].data.reshape(D, 1)
theirs.weight_hh_l0.data = weights["back"].data
states = theirs(signals[0][:, None])[0]
solution = rnn.solve(facts(signals[0]), weights=weights)
ours = torch.stack(list(solution[R.h(V.T)].values()))
print(f"largest difference from torch.nn.RNN: {(ours - states).abs().max():.1e}")
assert torch.allclose(ours, states, atol=1e-12)

optimiser = torch.optim.Adam(weights.values(), lr=0.03)
for step in range(75):
    batch = signals[torch.randint(0, 48, (4,))]
    scores = torch.stack([rnn.solve(facts(s), weights=weights)[R.last] for s in batch])
    loss = torch.nn.functional.soft_margin_loss(scores, batch[:, 0])
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    if step % 25 == 24:
        print(f"step {step + 1}: loss {loss.item():.3f}")

unseen = signals[48:]
scores = torch.stack([rnn.solve(facts(s), weights=weights)[R.last] for s in unseen])
right = int((scores.sign() == unseen[:, 0]).sum())
print(f"remembers the first input of {right} in {len(unseen)} signals")
assert right >= 15
