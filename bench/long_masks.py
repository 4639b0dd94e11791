"""Masks over a million tokens: planning, memory and a step of training on a CPU.

PYTHONPATH=src:bench python bench/long_masks.py [tokens]

Two speakers alone are 2.5·10¹¹ pairs of a million tokens: one step, of about 20 minutes on one
core; with fewer tokens, and of the others, two steps.
"""

import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from measure import commit, write, written

from edgewise import R, V
from edgewise.graphs import causal, window

sys.path.append(str(Path(__file__).parents[1]))  # masks are written as in the tests
from tests.ground.mask_corpus import MaskCase, derived, per_token, same

D = 8
NEAR = (
    (R.sentence(V.I, V.S), R.sentence(V.J, V.S)),
    (R.mention(V.I, V.C), R.mention(V.J, V.C)),
)
EARLIER = R.special.leq(V.J, V.I)
CASES = {
    "two speakers": MaskCase("", same("speaker", [EARLIER]), None),
    "two speakers in a window": MaskCase(
        "", same("speaker", [(causal() & window(255))(V.I, V.J)]), None
    ),
    "1,000 documents × roles": MaskCase(
        "", (*same("document"), R._role(V.I, V.A), R._role(V.J, V.A), EARLIER), None
    ),
    "same sentence or coreferent, and earlier": MaskCase(
        "", (R._near(V.I, V.J), EARLIER), None, derived(*NEAR)
    ),
}


def tables(n):
    random = np.random.default_rng(0)
    token = random.permutation(n)[: n // 8]
    return {
        "speaker": per_token(n, random.integers(0, 2, n)),
        "document": per_token(n, np.arange(n) * 1000 // n),
        "role": per_token(n, random.integers(0, 8, n)),
        "sentence": per_token(n, np.cumsum(random.random(n) < 1 / 25)),
        "mention": np.stack([np.sort(token), random.integers(0, n // 32, len(token))]),
    }


def measured(name, n):
    case = CASES[name]
    model = case.program(D).compile(R.out, seed=0, fill=0.0)
    x = torch.randn(n, D, generator=torch.Generator().manual_seed(0))
    inputs = case.inputs(tables(n))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    data = model.ground(**inputs)
    explained = model.explain(data, h=x, stage="kernels").to_json()["kernels"]
    row = {"mask": name, "tokens": n, "commit": commit()}
    row["plan_cpu_s"] = round(time.process_time() - start, 2)
    step = explained["relations"][-1]["steps"][0]
    row |= {"pairs": step["pairs"], "kernel": step["kernel"], "chosen": step["mask"][0]}
    row["plan_mb"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    kept(row)  # a step that is interrupted leaves the plan
    for number in range(1 if name == "two speakers" and n > 100_000 else 2):
        start = time.process_time()
        loss = model(data, h=x).square().mean()
        loss.backward()
        row[f"step_{number}_cpu_s"] = round(time.process_time() - start, 2)
    row["peak_mb"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    kept(row | {"loss": float(loss.detach())})


def kept(row):
    print(row, flush=True)
    write("long_masks", {**written("long_masks"), f"{row['mask']}, {row['tokens']:,} tokens": row})


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    if len(sys.argv) > 2:
        measured(sys.argv[2], n)
        return
    for name in CASES:  # each in a process of its own, for its memory
        subprocess.run([sys.executable, __file__, str(n), name], check=True)


if __name__ == "__main__":
    main()
