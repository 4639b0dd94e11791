"""A pruned model beside the full one: time and FLOPs with 0, 25, 50 and 75 % of heads pruned.

The encoder of all-MiniLM-L6-v2 (6 layers, 12 heads, d = 384) with random weights, on 256 tokens;
"full again" is the model with all heads, timed once more at the end: how much the times vary.
"""

import argparse
from typing import Any

import torch
from measure import cpu_seconds, write

from edgewise.inputs.kinds import numbers
from edgewise.language import R
from edgewise.pruning import prune
from edgewise.zoo import bert

SHARES = (0.0, 0.25, 0.5, 0.75)


def inputs(n: int) -> dict[str, Any]:
    token = torch.arange(n).remainder(1000)[None]
    zeros = torch.zeros_like(token)
    return {"token": numbers(token), "mask": torch.ones(1, n, 1), "segment": numbers(zeros)}


def flops(model: Any, read: dict[str, Any]) -> tuple[int, int]:
    """Of everything, and of attention with its projections."""
    found = model.explain(stage="kernels", json=True, **read)["kernels"]
    every = attention = 0
    for rule in found["relations"]:
        count = sum(int(work.get("flops") or 0) for work in rule["steps"])
        every += count
        last = rule["relation"].rpartition(".")[2]
        attention += count if last in ("q", "k", "v", "context", "attended") else 0
    return every, attention


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--layers", type=int, default=6)
    options.add_argument("--tokens", type=int, default=256)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    config = bert.Config(
        vocabulary=1000, size=384, heads=12, hidden=1536, layers=chosen.layers, dropout=0.0
    )
    full = bert.program(config).compile(R.out, seed=0).eval()
    read = inputs(chosen.tokens)
    rows = []
    for share in SHARES:
        gone = list(range(round(share * config.heads)))
        small = prune(full, {layer: gone for layer in range(config.layers)})
        with torch.inference_mode():
            time = cpu_seconds(lambda m=small: m(**read), 5)
        every, attention = flops(small, read)
        weights = sum(p.numel() for p in small.parameters())
        rows.append(
            {"pruned": share, **time, "flops": every, "attention_flops": attention}
            | {"weights": weights}
        )
    with torch.inference_mode():
        again = cpu_seconds(lambda: full(**read), 5)
    first = rows[0]
    for row in rows:
        row["times_faster"] = round(first["cpu_s"] / row["cpu_s"], 2)
        row["flops_share"] = round(row["flops"] / first["flops"], 3)
    write("pruning", {"tokens": chosen.tokens, "pruned": rows, "full again": again})


if __name__ == "__main__":
    main()
