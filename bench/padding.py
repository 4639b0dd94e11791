"""A batch of texts of mixed lengths through BERT: only real pairs, against all pairs masked.

PYTHONPATH=src:bench python3 bench/padding.py

Both compute the same rows, alternately in one process: the rules as they are, where padding is a
condition, and all pairs of the padded batch with a mask (what `torch` does with a padding mask).
"""

import statistics
import time

import torch
from measure import write

from edgewise import R, numbers, zoo
from edgewise.kernels.attention import present_rows

LENGTHS = {
    "mixed": [512, 40, 96, 300, 17, 128, 450, 64],
    "two": [256, 8],
    "long tail": [512, *[32] * 15],
    "equal": [256] * 8,
    "nearly equal": [256 - k for k in range(8)],
}
REPEATS = 5


def step(model, read, real) -> float:
    start = time.process_time()
    loss = model(**read)[real].square().mean()
    loss.backward()
    model.zero_grad(set_to_none=True)
    return time.process_time() - start


def measured(layers: int = 2) -> dict[str, dict[str, float]]:
    config = zoo.bert.Config(
        1000, size=256, heads=8, hidden=512, layers=layers, length=512, dropout=0.0
    )
    model = zoo.bert.program(config).compile(R.out, seed=0)
    found = {}
    worth = present_rows.worth_it
    for name, lengths in LENGTHS.items():
        n = max(lengths)
        real = torch.arange(n) < torch.tensor(lengths)[:, None]
        token = torch.randint(1000, (len(lengths), n), generator=torch.Generator().manual_seed(0))
        read = {
            "token": numbers(token), "segment": numbers(torch.zeros_like(token)),
            "mask": real.float().unsqueeze(-1),
        }  # fmt: skip
        times: dict[str, list[float]] = {"condition": [], "mask": []}
        for kind in times:
            present_rows.worth_it = worth if kind == "condition" else lambda *_: False
            step(model, read, real)
        for _ in range(REPEATS):
            for kind, seconds in times.items():
                present_rows.worth_it = worth if kind == "condition" else lambda *_: False
                seconds.append(step(model, read, real))
        present_rows.worth_it = worth
        kernels = model.explain(json=True, stage="kernels", **read)["kernels"]
        pairs = [s["pairs"] for r in kernels["relations"] for s in r["steps"] if "pairs" in s]
        found[name] = {
            **{f"{kind}_s": statistics.median(seconds) for kind, seconds in times.items()},
            "pairs": sum(pairs), "padded_pairs": layers * config.heads * len(lengths) * n * n,
        }  # fmt: skip
        print(name, found[name])
    return found


if __name__ == "__main__":
    write("padding", measured())
