"""Compile attention and train it on 16,384 tokens: a window of 64 to each side, nothing N×N.

Eight sensors take turns at random; each drifts slowly, and every reading is noisy. To denoise a
reading, it must attend to readings of the same sensor around it: queries and keys have to learn
which sensors are the same.
"""

import time

import torch

from edgewise import F, Program, R, V
from edgewise.graphs import window

N, SENSORS, AROUND = 16_384, 8, window(64)

program = Program(
    [
        R.q(V.I) <= R.sensor(V.I)[SENSORS, SENSORS],
        R.k(V.I) <= R.sensor(V.I)[SENSORS, SENSORS],
        (R.weights(V.I, V.J) <= (R.k(V.J).T, R.q(V.I), AROUND(V.I, V.J)))
        | [F.product, F.softmax_agg(agg_terms=[V.J])],
        (R.guess(V.I) <= (R.weights(V.I, V.J), R.reading(V.J))) | [F.product],
    ]
)

torch.manual_seed(0)
turn = torch.randint(SENSORS, (N,))
drift = torch.sin(torch.arange(N)[:, None] / 400 + torch.arange(SENSORS))
truth = 3 * drift.gather(1, turn[:, None]).squeeze(1)
sensor = torch.nn.functional.one_hot(turn, SENSORS).float()
reading = truth + torch.randn(N)

model = program.compile(R.guess, seed=0)
optimiser = torch.optim.Adam(model.parameters(), lr=0.2)
start = time.perf_counter()
for step in range(17):
    error = (model(sensor=sensor, reading=reading) - truth).square().mean()
    optimiser.zero_grad()
    error.backward()
    optimiser.step()
    if step % 8 == 0:
        print(f"step {step:>2}: mean squared error {error.item():.3f}")

pairs = AROUND.count(N)
seconds = (time.perf_counter() - start) / 17
print(f"{pairs:,} of {N * N:,} pairs, {seconds:.2f} s a step; a reading alone has an error of 1")
print(model.explain(stage="kernels", json=True)["kernels"]["relations"][-1]["steps"][0]["kernel"])
assert error < 0.15
