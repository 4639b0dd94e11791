"""Attention on a GPU against length and density: time, memory, TFLOP/s and the floor.

PYTHONPATH=src:bench python3 bench/attention_sweep.py [length density]

bf16, 16 heads of 64; the peer is dense SDPA, without a mask, as far as it takes less than a second.
"""

import gc
import sys

import torch
from attention_gpu import both_ways, inputs, rates
from measure import commit, skip, write, written
from torch.nn.functional import scaled_dot_product_attention

from edgewise.graphs import bigbird, causal, strided, window
from edgewise.kernels.attention import attention, case_of, choose

LENGTHS = [1 << k for k in range(10, 21)]
DENSITY_AT = 16384
RADII = [16, 64, 128, 256, 512, 1024, 2048, 4096, 8192]
ROWS: list[dict[str, object]] = []


def measured(name, graph, n):
    tensors = inputs(n)
    row = {"case": name, "n": n, "pairs": graph.count(n), "density": graph.count(n) / n**2}
    try:
        row["kernel"] = choose(case_of(*tensors, graph)).name
        ours = both_ways(lambda: attention(*tensors, graph), tensors)
        row["ours"] = {**ours, **rates(row["pairs"], n, ours)}
    except torch.cuda.OutOfMemoryError as error:
        row["failed"] = str(error)[:100]
    ROWS.append(row)
    print(row, flush=True)


def dense(n, name="SDPA, all pairs"):
    tensors = inputs(n)
    ours = both_ways(lambda: scaled_dot_product_attention(*tensors), tensors)
    row = {"case": name, "n": n, "pairs": n * n, "density": 1.0}
    ROWS.append({**row, "ours": {**ours, **rates(n * n, n, ours)}})
    print(ROWS[-1], flush=True)


def length():
    for n in LENGTHS:
        measured("window ±256", window(256), n)
        measured("causal window 256", window(255) & causal(), n)
        measured("BigBird", bigbird(64), n)
        measured("causal, every 64th", strided(64) & causal(), n)
        if n <= 65536:
            measured("causal", causal(), n)
            dense(n)
        gc.collect()
        torch.cuda.empty_cache()


def density():
    for radius in RADII:
        measured("window", window(radius), DENSITY_AT)
        measured("causal window", window(radius) & causal(), DENSITY_AT)
    for random in (1, 4, 16, 64):
        measured("BigBird with more random blocks", bigbird(64, random), DENSITY_AT)
    dense(DENSITY_AT)


SECTIONS = {"length": length, "density": density}


def main():
    if not torch.cuda.is_available():
        skip("there is no CUDA GPU here")
    results = written("attention_sweep")
    for name in sys.argv[1:] or SECTIONS:
        ROWS.clear()
        SECTIONS[name]()
        results[name] = {"commit": commit(), "rows": list(ROWS)}
        write("attention_sweep", results)


if __name__ == "__main__":
    main()
