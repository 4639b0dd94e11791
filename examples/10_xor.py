"""XOR, the smallest network that needs a hidden layer, in three lines of rules."""

import torch

from edgewise import F, Program, R, V

xor = Program(
    [
        R.hidden_layer(V.S) <= (R.input(V.S)["w1":8, 2], R.one["b1":8, 1]),
        R.hidden_layer / 1 | [F.tanh],
        R.output(V.S) <= (R.hidden_layer(V.S)["w2":1, 8], R.one["b2":0.0]),
        R.output / 1 | [F.sigmoid],
    ]
)

TABLE = {(0, 0): 0.0, (0, 1): 1.0, (1, 0): 1.0, (1, 1): 0.0}
facts = [R.one[1.0], *(R.input(s)[list(bits)] for s, bits in enumerate(TABLE))]
truth = torch.tensor(list(TABLE.values()), dtype=torch.float64)

weights = xor.weights(seed=0)
optimiser = torch.optim.Adam(weights.values(), lr=0.1)
for step in range(150):
    solution = xor.solve(facts, weights=weights)
    guesses = torch.stack(list(solution[R.output(V.S)].values()))
    loss = torch.nn.functional.binary_cross_entropy(guesses, truth)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    if step % 50 == 49:
        print(f"step {step + 1}: loss {loss.item():.4f}")

for bits, guess in zip(TABLE, guesses, strict=True):
    print(f"{bits[0]} xor {bits[1]} = {guess:.2f}")

assert torch.equal(guesses.round(), truth)
