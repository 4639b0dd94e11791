"""Settings of the block kernels, timed: blocks, warps, stages, and products of float32.

PYTHONPATH=src:bench python3 bench/tune_blocks_gpu.py [--workers 14] [--seconds 120] [words ...]

Each setting is compiled by one of many processes, which runs it on a small case and compares it
with float64; then all are timed, one after another, on a window ±256 over 8,192 tokens of 16 heads.
The fastest whose error is small is printed in the form of `SETTINGS` in
src/edgewise/kernels/attention/triton/settings.py. Words pick settings: "float32", "half", "128".
--check runs a few in Triton's interpreter, without a GPU.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from typing import Any

if "--check" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

import torch
from measure import skip, write
from torch import Tensor

from edgewise.graphs import cache, window
from edgewise.kernels.attention import attention, case_of
from edgewise.kernels.attention.contract import Case
from edgewise.kernels.attention.triton import passes, settings
from edgewise.kernels.attention.triton.settings import SETTINGS, Setting, kind_of

STEPS = ("forward", "rows", "columns")
FEATURES = {"float32": (64, 96, 128, 256), "half": (128, 256)}
EXACT = {"float32": 2e-5, "half": 2e-2}  # relative errors, by norm, that are fine


def candidates(kind: str, d: int) -> list[Setting]:
    """The setting that is in the table comes with each pass, see `jobs`."""
    if kind == "half":
        few = [(64, 4, 3), (64, 8, 2), (64, 8, 3), (128, 8, 2), (128, 8, 1), (128, 4, 2)]
        return [Setting(*x) for x in few if d <= 128 or x[0] * x[2] <= 128]
    three = {
        64: [(64, 4, 1), (64, 4, 2), (64, 8, 2), (64, 8, 1), (32, 4, 2), (32, 4, 1), (32, 8, 1)],
        128: [(64, 8, 1), (64, 8, 2), (64, 4, 1), (32, 4, 1), (32, 4, 2), (32, 8, 1)],
        256: [(64, 8, 1), (32, 8, 1), (32, 4, 1), (32, 8, 2), (16, 4, 1), (16, 8, 1)],
    }
    plain = {64: [(32, 4, 1)], 128: [(32, 4, 1)], 256: [(16, 4, 1)]}
    wide = 128 if d == 96 else d
    found = [Setting(*x, precision="tf32x3") for x in three[wide]]
    return found + [Setting(*x, precision="ieee") for x in plain[wide]]


def jobs(words: list[str]) -> list[dict[str, Any]]:
    found = []
    for kind, sizes in FEATURES.items():
        for d in sizes:
            for step in STEPS:
                wide = 128 if d == 96 else d
                usual = SETTINGS[kind, wide][step]
                for one in dict.fromkeys([usual, *candidates(kind, d)]):
                    job = {"kind": kind, "d": d, "step": step, "setting": list(one)}
                    names = {kind, str(d), step, one.precision}
                    if names.issuperset(words):
                        found.append({**job, "usual": one == usual})
    return found


def made(job: dict[str, Any], n: int, heads: int, device: str) -> tuple[Case, list[Tensor]]:
    torch.manual_seed(0)
    dtype = torch.float32 if job["kind"] == "float32" else torch.bfloat16
    dtype = torch.float16 if device == "cpu" and job["kind"] == "half" else dtype
    shape = (1, heads, n, job["d"])
    tensors = [torch.randn(shape, device=device).to(dtype) for _ in range(4)]  # the gradient too
    return case_of(*tensors[:3], window(256 if n > 512 else 40)), tensors


def use(case: Case, job: dict[str, Any]) -> None:
    """The setting in its pass; its like in the other half of the backward pass, which has the same
    block. Nothing that was prepared with another one is kept."""
    one, table = Setting(*job["setting"]), SETTINGS[kind_of(case)]
    table[job["step"]] = one
    if job["step"] != "forward":
        other = "rows" if job["step"] == "columns" else "columns"
        table[other] = one
    cache.clear()


class Launched:
    """One pass of a case with one setting, and what is computed before it."""

    def __init__(self, job: dict[str, Any], n: int, heads: int, device: str) -> None:
        self.job = job
        self.case, (self.q, self.k, self.v, self.g) = made(job, n, heads, device)
        self.how = (self.case, (1, heads, heads), (False,) * 3, device)
        use(self.case, job)

    def forward(self) -> list[Tensor]:
        found = passes.ForwardPass(*self.how)
        out, sums, scratch = found.results(passes.like(self.q))
        self.steps = found.steps(self.q, self.k, self.v, out, sums, scratch)
        self.run()
        return [out, sums]

    def backward(self, out: Tensor, sums: Tensor) -> list[Tensor]:
        """dq, dk and dv; `steps` is left with the launch that is tuned."""
        found = passes.BackwardPass(*self.how)
        results = found.results(passes.like(self.q))
        steps = found.steps(self.q, self.k, self.v, self.g, out, sums, *results)
        self.steps = steps
        self.run()
        self.steps = [steps[self.job["step"] == "columns"]]
        return list(results[:3])

    def run(self) -> None:
        for launch, tensors in self.steps:
            launch(*tensors)


def exact(job: dict[str, Any], n: int, heads: int, device: str) -> list[Tensor]:
    """The output, dq, dk and dv in float64; the log-sum-exp last."""
    case, tensors = made(job, n, heads, device)
    q, k, v = (x.double().requires_grad_() for x in tensors[:3])
    options = {"kernel": "reference", "return_lse": True}
    out, lse = attention(q, k, v, case.graph, **options)
    grads = torch.autograd.grad(out, (q, k, v), tensors[3].double())
    return [out.detach(), *grads, lse.detach()]


def error(job: dict[str, Any], device: str, n: int = 1024, heads: int = 2) -> float:
    right = exact(job, n, heads, device)
    launched = Launched(job, n, heads, device)
    if job["step"] == "forward":
        pairs = [(launched.forward()[0], right[0])]
    else:
        out, lse = right[0].to(launched.q.dtype), right[-1].float().contiguous()
        grads = launched.backward(out.contiguous(), lse.reshape(-1))
        at = (0,) if job["step"] == "rows" else (1, 2)
        pairs = [(grads[x], right[1 + x]) for x in at]
    return max(float((a.double() - b).norm() / b.norm()) for a, b in pairs)


def compiled(numbers: list[int]) -> None:
    """One line of JSON for each: which, and its error, or why it does not run."""
    every = jobs([])
    for number in numbers:
        found: dict[str, Any] = {"number": number}
        start = time.time()
        try:
            found["error"] = error(every[number], "cuda")
        except Exception as fault:  # out of shared memory, say
            found["failed"] = f"{type(fault).__name__}: {fault}"[:160]
        print(json.dumps(found | {"seconds": round(time.time() - start, 1)}), flush=True)


def compiled_apart(numbers: list[int], workers: int, seconds: float) -> dict[int, dict[str, Any]]:
    """What so many processes report within the time; each ends with it."""
    command = [sys.executable, __file__, "--compile"]
    found: dict[int, dict[str, Any]] = {}

    def read(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for text in process.stdout:
            if text.startswith("{"):
                row = json.loads(text)
                found[row["number"]] = row

    running = []
    for at in range(workers):
        if share := list(map(str, numbers[at::workers])):
            process = subprocess.Popen([*command, *share], stdout=subprocess.PIPE, text=True)
            reader = threading.Thread(target=read, args=(process,), daemon=True)
            reader.start()
            running.append((process, reader))
    end = time.time() + seconds
    for process, reader in running:
        reader.join(max(end - time.time(), 0.01))
        if reader.is_alive():
            process.kill()
    return dict(found)


def milliseconds(job: dict[str, Any]) -> float:
    launched = Launched(job, 8192, 16, "cuda")
    if job["step"] == "forward":
        launched.forward()
        launched.steps = launched.steps[:1]
    else:
        sums = torch.zeros(16 * 8192, device="cuda")  # numbers that the time does not depend on
        launched.backward(torch.zeros_like(launched.q), sums + 9)
    launched.run()
    times = []
    for _ in range(5):
        a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        a.record()
        for _ in range(3):
            launched.run()
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b) / 3)
    return round(sorted(times)[2], 4)


def timed(every: list[dict[str, Any]], given: argparse.Namespace) -> list[dict[str, Any]]:
    start, known = time.time(), jobs([])
    numbers = [known.index(job) for job in every]
    ready = compiled_apart(numbers, given.workers, 0.7 * given.seconds)
    print(f"{len(ready)} of {len(every)} compiled after {time.time() - start:.0f} s", flush=True)
    rows = []
    for number, job in zip(numbers, every, strict=True):
        row = {**job, **ready.get(number, {"failed": "it was not compiled in time"})}
        if "error" in row and time.time() - start < given.seconds:
            try:
                row["ms"] = milliseconds(job)
            except Exception as fault:
                row["failed"] = f"{type(fault).__name__}: {fault}"[:160]
        rows.append(row)
        print(" ".join(f"{name}={value}" for name, value in row.items()), flush=True)
    return rows


def best(rows: list[dict[str, Any]]) -> list[str]:
    """The fastest of each pass, in the form of the table; both passes backward with one block."""
    fine = [row for row in rows if "ms" in row and row["error"] <= EXACT[row["kind"]]]
    lines = []
    for kind, d in dict.fromkeys((row["kind"], row["d"]) for row in fine):
        of_pass = {x: [] for x in STEPS}
        for row in fine:
            if (row["kind"], row["d"]) == (kind, d):
                of_pass[row["step"]].append(row)
        picked: dict[str, dict[str, Any]] = {}
        if of_pass["forward"]:
            picked["forward"] = min(of_pass["forward"], key=lambda row: row["ms"])
        pairs = [
            (a, b) for a in of_pass["rows"] for b in of_pass["columns"]
            if a["setting"][0] == b["setting"][0]
        ]  # fmt: skip
        if pairs:
            both = min(pairs, key=lambda pair: pair[0]["ms"] + pair[1]["ms"])
            picked["rows"], picked["columns"] = both
        for step, row in picked.items():
            usual = [one["ms"] for one in of_pass[step] if one["usual"]]
            now = f"{usual[0]} ms now" if usual else "the one in the table was not timed"
            setting = Setting(*row["setting"])
            lines.append(f"{kind} {d} {step}: {setting}  # {row['ms']} ms, {now}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    if given.compile:
        compiled([int(number) for number in given.words])
        return
    every = jobs(given.words)
    if given.check:
        for job in every:
            found = error(job, "cpu", 70, 1)
            print(f"{job} error {found:.1e}", flush=True)
            assert found <= EXACT[job["kind"]], job
        return
    if not torch.cuda.is_available():
        skip("there is no CUDA GPU here; --check needs none")
    assert settings.has_engine(), "these are settings of a Hopper or Blackwell GPU"
    rows = timed(every, given)
    write("tune_blocks_gpu", rows)
    print("\n".join(best(rows)))


if __name__ == "__main__":
    main()
