"""Kernels over edges, timed, and profiles of what is not one kernel. Settings of the block kernels
are timed by tune_blocks_gpu.py.

PYTHONPATH=src python3 bench/tune_attention_gpu.py
"""

import json
import os
import pathlib
import sys
import time
import traceback

import torch
from triton.testing import do_bench

from edgewise.graphs import causal, from_edges, strided, tree
from edgewise.kernels.attention import attention, case_of, choose

RESULTS: list[dict] = []
BF16 = torch.bfloat16


def note(**values) -> None:
    RESULTS.append(values)
    print(" ".join(f"{k}={v}" for k, v in values.items()), flush=True)


def inputs(n, heads=16, d=64, dtype=BF16, shared=1, m=None):
    torch.manual_seed(0)
    shapes = [(1, heads * shared, n, d), (1, heads, m or n, d), (1, heads, m or n, d)]
    return [torch.randn(s, device="cuda", dtype=dtype, requires_grad=True) for s in shapes]


def profile():
    """Where the time goes in the cases that are not one Triton kernel."""
    n = 65536
    trunk = [-1, *range(16383)]
    for b in range(48):
        first = 16384 + b * 1024
        trunk += [16383, *range(first, first + 1023)]
    for name, graph in (("strided", strided(64) & causal()), ("tree", tree(trunk))):
        tensors = inputs(n)
        for _ in range(3):
            attention(*tensors, graph).sum().backward()
        with torch.profiler.profile() as found:
            for _ in range(5):
                attention(*tensors, graph).sum().backward()
            torch.cuda.synchronize()
        print(name, found.key_averages().table(sort_by="cuda_time_total", row_limit=14,
                                               max_name_column_width=70))  # fmt: skip


def time_both(name, tensors, graph, kernel=None, **options):
    start = time.time()
    chosen = choose(case_of(*tensors, graph)).name
    planned = time.time() - start
    out = attention(*tensors, graph, kernel=kernel, **options)
    weight = torch.randn_like(out)
    ahead = do_bench(lambda: attention(*tensors, graph, kernel=kernel, **options).detach(),
                     warmup=10, rep=60, return_mode="median")  # fmt: skip

    def both():
        attention(*tensors, graph, kernel=kernel, **options).backward(weight)
        for x in tensors:
            x.grad = None

    ms = do_bench(both, warmup=10, rep=60, return_mode="median")
    note(time=name, kernel=kernel, chosen=chosen, plan_s=round(planned, 2), forward=round(ahead, 3),
         both=round(ms, 3))  # fmt: skip


def tune_edges():
    n, degree = 1 << 20, 16
    start = time.time()
    i = torch.arange(n).repeat_interleave(degree)
    graph = from_edges(torch.stack([i, torch.randint(n, (n * degree,))]))
    graph.rows(n)
    note(rows_s=round(time.time() - start, 1))
    flat = [torch.randn(n, 4, 16, device="cuda") for _ in range(3)]
    for layout in ("nodes", "heads"):
        tensors = [x.transpose(0, 1)[None] for x in flat]
        if layout == "heads":
            tensors = [x.contiguous() for x in tensors]
        tensors = [x.detach().requires_grad_() for x in tensors]
        time_both(f"edges {layout}", tensors, graph, "triton_csr")


def main():
    sections = {
        "edges": tune_edges,
        "profile": profile,
    }
    failed = []
    for name in sys.argv[1:] or sections:
        start = time.time()
        try:
            sections[name]()
        except Exception:
            traceback.print_exc()
            failed.append(name)
        note(section=name, seconds=round(time.time() - start, 1))
        out = pathlib.Path(os.environ.get("OUT", "."))
        (out / "tune_attention_gpu.json").write_text(json.dumps(RESULTS, indent=1))
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
