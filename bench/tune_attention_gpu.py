"""Launch settings of the GPU kernels, timed, and profiles of what is not one kernel.

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

from edgewise.graphs import (
    bigbird,
    causal,
    from_edges,
    strided,
    tree,
    window,
)
from edgewise.kernels.attention import attention, case_of, choose
from edgewise.kernels.attention.triton import passes as triton_passes

RESULTS: list[dict] = []
BF16 = torch.bfloat16
SETTINGS = {  # warps, stages, registers
    "forward": [(4, 2, 128), (4, 3, 128), (4, 2, 112), (4, 2, 120), (4, 2, None)],
    "rows": [(4, 2, 128), (4, 3, 128), (4, 2, None)],
    "columns": [(4, 3, 168), (4, 2, 168), (4, 3, None)],
}


def note(**values) -> None:
    RESULTS.append(values)
    print(" ".join(f"{k}={v}" for k, v in values.items()), flush=True)


def inputs(n, heads=16, d=64, dtype=BF16, shared=1, m=None):
    torch.manual_seed(0)
    shapes = [(1, heads * shared, n, d), (1, heads, m or n, d), (1, heads, m or n, d)]
    return [torch.randn(s, device="cuda", dtype=dtype, requires_grad=True) for s in shapes]


def tune_blocks(name, graph, n):
    tensors = [x.detach() for x in inputs(n)]
    case, heads = case_of(*tensors, graph), tensors[0].shape[1]
    made = (case, (1, heads, heads), (False,) * 3, "cuda")
    usual = dict(triton_passes.LAUNCH)
    for step, settings in SETTINGS.items():
        for setting in settings:
            triton_passes.LAUNCH[step] = setting
            try:
                ms = do_bench(step_of(made, step, tensors), warmup=5, rep=20, return_mode="median")
                note(tune=name, step=step, setting=setting, ms=round(ms, 4))
            except Exception as error:  # a setting that does not fit the chip
                note(tune=name, step=step, setting=setting, failed=str(error)[:60])
        triton_passes.LAUNCH.update(usual)


def step_of(made, step, tensors):
    """One launch alone, on what a call before it has filled."""
    ahead, back = triton_passes.ForwardPass(*made), triton_passes.BackwardPass(*made)
    out, sums, scratch = ahead.results(triton_passes.like(tensors[0]))
    launches = ahead.steps(*tensors, out, sums, scratch)
    if step != "forward":
        ahead.run(*tensors, out, sums, scratch)
        grads = [torch.empty_like(x) for x in tensors]
        numbers = torch.empty(back.floats.size, device="cuda")
        launches = back.steps(*tensors, torch.randn_like(out), out, sums, *grads, numbers)
    launch, of_launch = launches[1 if step == "columns" else 0]
    launch(*of_launch)
    return lambda: launch(*of_launch)


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
    bar = window(256)
    big = bigbird(64)
    sections = {
        "window": lambda: tune_blocks("window", bar, 65536),
        "bigbird": lambda: tune_blocks("bigbird", big, 65536),
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
