"""Attention over a grid of cases: head size × dtype × pattern × shared keys × length × batch.

Beside SDPA, FlexAttention on both of its backends and FlashAttention 4, in one run.

PYTHONPATH=src:bench python3 bench/grid_gpu.py [--cells 0-9,30] [--part 1/3] [--warm 14]
    [--seconds 400] [--resume FILE] [words ...]
PYTHONPATH=src:bench python3 bench/grid_gpu.py --list | --alone [words ...] | --check [words ...]

Cells whose name has all the words are run, of those whose numbers are given (--list prints them);
a part takes every third of them. After so many seconds the run ends: its results name the cells
that are not done, and --resume takes those of such a file that are. With --warm so many processes
compile the peers' kernels for these cells first, within a third of the time. --alone leaves the
peers out and writes no results. --check runs small cells on a CPU, Triton's kernels in its
interpreter, against float64, and times nothing. `flash_attn` is used where it can be imported.
"""

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

if "--check" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

import torch
from grid_cells import BF16, F16, F32, PATTERNS, Cell, cells, slopes
from measure import commit, gpu_ms, skip, write, written
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention

from edgewise.graphs import full
from edgewise.kernels.attention import attention, prepare
from edgewise.scores import alibi

PEERS = ("sdpa", "flex", "flex_flash", "fa4")
SECONDS = 0.15  # of calls, for each time
WAYS = ("forward", "both")


class Run:
    """A cell with its tensors, and what each implementation makes of them."""

    def __init__(self, cell: Cell, device: str) -> None:
        self.cell, self.work, self.device = cell, PATTERNS[cell.pattern](cell.n), device
        torch.manual_seed(0)
        of_keys = (cell.batch, cell.keys, cell.n, cell.d)
        rows = cell.queries or cell.n
        shapes = ((cell.batch, cell.heads, rows, cell.d), of_keys, of_keys)
        learns = cell.queries is None
        self.tensors = [torch.randn(s, device=device).to(cell.dtype) for s in shapes]
        self.tensors = [x.requires_grad_(learns) for x in self.tensors]
        self.offset, self.options = cell.n - rows, {}
        if self.offset and self.work.graph != full():
            self.options["offset"] = self.offset
        if cell.ragged:
            self.options["lengths"] = torch.randint(1, cell.n + 1, (cell.batch,), device=device)
        if cell.pattern == "alibi":  # the table of slopes follows q to its device
            self.options["bias"] = alibi(cell.heads)
            self.work = replace(self.work, score_mod=slopes(cell.heads))
        elif self.work.score is not None:
            self.options["score"] = self.work.score

    def ours(self, *tensors: Tensor, **more: Any) -> Tensor:
        return attention(*(tensors or self.tensors), self.work.graph, **self.options, **more)

    @property
    def kernel(self) -> str:
        """What is chosen on a GPU, which need not be here."""
        metas = [torch.empty_like(x, device="meta") for x in self.tensors]
        device = self.device if self.cell.ragged else "cuda"  # lengths are compared there
        return prepare(*metas, self.work.graph, device=device, **self.options).choice.name

    def peer(self, name: str) -> Callable[[], Tensor] | None:
        """A call of a peer, None where it cannot say this cell."""
        return getattr(self, f"_{name}")()

    def _sdpa(self) -> Callable[[], Tensor] | None:
        q, k, v = self.tensors
        shared, work, offset = self.cell.heads != self.cell.keys, self.work, self.offset
        if self.cell.ragged:
            there = torch.arange(self.cell.n, device=q.device) < self.options["lengths"][:, None]
            mask = there[:, None, None]
            return lambda: scaled_dot_product_attention(q, k, v, mask, enable_gqa=shared)
        if offset and q.shape[-2] == 1 and work.flash is not None:  # a slice of the cache
            left = work.flash.get("window_size", (self.cell.n, 0))[0]
            k, v = k[:, :, max(offset - left, 0) :], v[:, :, max(offset - left, 0) :]
            return lambda: scaled_dot_product_attention(q, k, v, enable_gqa=shared)
        if offset and self.cell.pattern == "causal":
            rows = torch.arange(q.shape[-2], device=q.device)[:, None] + offset
            mask = torch.arange(self.cell.n, device=q.device) <= rows
            return lambda: scaled_dot_product_attention(q, k, v, mask, enable_gqa=shared)
        if work.sdpa is None or (offset and work.sdpa):
            return None
        return lambda: scaled_dot_product_attention(q, k, v, is_causal=work.sdpa, enable_gqa=shared)

    def _flex(self, **options: Any) -> Callable[[], Tensor] | None:
        work, cell = self.work, self.cell
        if self.offset or cell.ragged:
            return None
        mask = work.graph.block_mask(cell.n, device=self.device)
        if work.mask is not None:
            mask.mask_mod = work.mask
        shared = cell.heads != cell.keys
        on_gpu, more = self.device == "cuda", {"kernel_options": options or None}
        run = flex_attention
        if on_gpu:
            # past dynamo's limit of variants it would compute all pairs: an error instead
            torch._dynamo.reset()
            torch._dynamo.config.fail_on_recompile_limit_hit = True
            run = torch.compile(flex_attention, dynamic=False, fullgraph=True)
        return lambda: run(*self.tensors, work.score_mod, mask, enable_gqa=shared, **more)

    def _flex_flash(self) -> Callable[[], Tensor] | None:
        return self._flex(BACKEND="FLASH") if self.device == "cuda" else None

    def _fa4(self) -> Callable[[], Tensor] | None:
        cell, work = self.cell, self.work
        if self.device != "cuda" or work.flash is None or cell.ragged or cell.dtype == F32:
            return None
        from flash_attn.cute import flash_attn_func

        q, k, v = (x.transpose(1, 2) for x in self.tensors)

        def call() -> Tensor:
            out = flash_attn_func(q, k, v, **work.flash)
            return (out[0] if isinstance(out, tuple) else out).transpose(1, 2)

        return call


def error(run: Run, kernel: str | None = None) -> float:
    """Of our output and gradients at this size against float64, beside the reference's own: up to
    about 1 it is no further away."""
    cell, grads, plain = run.cell, run.cell.queries is None, "reference"
    found = []
    ways = ((torch.float64, plain), (cell.dtype, plain), (cell.dtype, kernel))
    for dtype, kernel in ways:
        tensors = [x.detach().to(dtype).requires_grad_(grads) for x in run.tensors]
        out = run.ours(*tensors, kernel=kernel)
        more = torch.autograd.grad(out.double().square().sum(), tensors) if grads else ()
        found.append([x.detach().double() for x in (out, *more)])
    worst = 0.0
    for right, simple, own in zip(*found, strict=True):
        rounding = torch.finfo(cell.dtype).eps * (1 + right.abs().max())
        allowed = (simple - right).abs().max() + rounding
        worst = max(worst, float((own - right).abs().max() / allowed))
    return worst


class FellBack(Exception):
    """A peer that stored a score for every pair did not run the kernel it was asked for."""


def timed_peer(name: str, run: Run) -> dict[str, float] | None:
    call, cell = run.peer(name), run.cell
    if call is None:
        return None
    found = both_ways(call, run)
    rows = cell.queries or cell.n
    scores = 2 * cell.batch * cell.heads * rows * cell.n / 2**30
    if name.startswith("flex") and scores > 0.5 and found["extra_gib"] >= scores:
        raise FellBack(f"{found['extra_gib']} GiB: the scores of all pairs are {scores:.1f}")
    return found


def both_ways(call: Callable[[], Tensor], run: Run) -> dict[str, float]:
    """Milliseconds forward and, where it learns, with the backward pass; GiB beyond the inputs."""
    learns = run.cell.queries is None
    weight = torch.randn_like(call())
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()

    def train() -> None:
        torch.autograd.grad(call(), run.tensors, weight)

    train() if learns else call()
    peak = (torch.cuda.max_memory_allocated() - before) / 2**30
    with torch.no_grad():
        times = {"forward": gpu_ms(call, SECONDS)}
    return (
        times | ({"both": gpu_ms(train, SECONDS)} if learns else {}) | {"extra_gib": round(peak, 3)}
    )


def measured(cell: Cell, peers: tuple[str, ...] = PEERS) -> dict[str, Any]:
    row: dict[str, Any] = {"cell": cell.name, "done": True, "commit": commit()}
    row["error"] = round(error(Run(cell.small(), "cuda")), 3)
    run = Run(cell, "cuda")
    row["kernel"], row["ours"] = run.kernel, both_ways(run.ours, run)
    for name in peers:
        try:
            if (found := timed_peer(name, run)) is not None:
                row[name] = found
        except Exception as fault:  # what a peer refuses is part of the table
            row[f"{name}_failed"] = f"{type(fault).__name__}: {fault}"[:160]
    for way in WAYS:
        times = [row[name][way] for name in peers if way in row.get(name, {})]
        if times and way in row["ours"]:
            row[f"{way}_times_best"] = round(min(times) / row["ours"][way], 3)
    return row


def checked(cell: Cell) -> dict[str, Any]:
    """On a CPU: bf16 as fp16, which Triton's interpreter computes rightly."""
    small = cell.small()
    run = Run(replace(small, dtype=F16 if cell.dtype == BF16 else cell.dtype), "cpu")
    kernel = run.kernel
    row: dict[str, Any] = {"cell": cell.name, "kernel": kernel}
    row["error"] = round(error(run, kernel), 3)
    run.tensors = [x.detach() for x in run.tensors]
    out = run.ours().float()
    for name in ("sdpa", "flex"):
        if (call := run.peer(name)) is not None:
            row[name] = {"difference": round(float((call().float() - out).abs().max()), 5)}
    return row


def line(row: dict[str, Any]) -> str:
    """One row of the table: times ours and each peer's, forward / both."""

    def shown(values: dict[str, float] | None) -> str:
        ways = [x for x in ("difference", "forward", "both") if values and x in values]
        return " / ".join(f"{values[x]:.3g}" for x in ways) if values else "-"

    ratios = [row.get(f"{way}_times_best") for way in WAYS]
    best = " / ".join(f"{ratio:.2f}" for ratio in ratios if ratio is not None)
    texts = [row["cell"], row.get("kernel", ""), f"{row.get('error', math.nan):.2f}"]
    texts += [shown(row.get(name)) for name in ("ours", *PEERS)]
    return " | ".join([*texts, best or "-"])


def summary(rows: list[dict[str, Any]]) -> str:
    rows = [row for row in rows if row.get("done", True)]
    figures = [(row, way) for row in rows for way in WAYS if f"{way}_times_best" in row]
    if not figures:
        return f"{len(rows)} cells, the largest error {max(row['error'] for row in rows):.2f}"
    found = {(row["cell"], way): row[f"{way}_times_best"] for row, way in figures}
    mean = math.exp(sum(map(math.log, found.values())) / len(found))
    share = sum(x >= 1 for x in found.values()) / len(found)
    low = sorted((ratio, *which) for which, ratio in found.items() if ratio < 1)
    lines = [f"  {ratio:.2f} {way} {cell}" for ratio, cell, way in low]
    return "\n".join([
        *(["below the best peer:"] if low else []), *lines,
        f"{len(found)} figures of {len(rows)} cells, {share:.0%} at or above the best peer,"
        f" geometric mean {mean:.2f}×",
    ])  # fmt: skip


def warm(chosen: list[Cell], workers: int, seconds: float) -> None:
    """Every worker runs its share of the peers once, untimed: compilers cache on disk. What is not
    compiled in time is compiled when it is needed."""
    command = [sys.executable, __file__, "--compile", "--cells"]
    shares = [",".join(map(str, numbers(chosen[at::workers]))) for at in range(workers)]
    running = [subprocess.Popen([*command, share]) for share in shares if share]
    end = time.time() + seconds
    for process in running:
        try:
            process.wait(max(end - time.time(), 0.1))
        except subprocess.TimeoutExpired:
            process.kill()


def compiled(cell: Cell) -> None:
    run = Run(cell, "cuda")
    for name in ("flex", "flex_flash", "fa4", "ours"):
        try:
            call = run.ours if name == "ours" else run.peer(name)
            if call is not None:
                out = call()
                torch.autograd.grad(out, run.tensors, out) if out.requires_grad else None
        except Exception as fault:
            print(f"{cell.name}: {name}: {type(fault).__name__}", flush=True)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--cells", default="")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--warm", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=400)
    parser.add_argument("--resume", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--list", action="store_true")
    return parser.parse_args()


def numbers(chosen: list[Cell]) -> list[int]:
    every = cells()
    return [every.index(cell) for cell in chosen]


def selected(words: list[str], part: str, listed: str = "") -> list[Cell]:
    """Cells by the words of their names, by numbers such as `0-9,30`, and by part."""
    every = cells()
    if listed:
        ends = [[int(x) for x in run.split("-")] for run in listed.split(",")]
        every = [every[number] for run in ends for number in range(run[0], run[-1] + 1)]
    chosen = [cell for cell in every if all(word in cell.name for word in words)]
    at, parts = map(int, part.split("/"))
    return chosen[at - 1 :: parts]


def done_before(path: pathlib.Path | None) -> dict[str, dict[str, Any]]:
    """Rows of an earlier run that are done."""
    if path is None:
        return {}
    found = json.loads(path.read_text())["results"]
    return {name: row for name, row in found.items() if row.get("done", True)}


def saved(rows: dict[str, dict[str, Any]], chosen: list[Cell]) -> None:
    left = {c.name: {"cell": c.name, "done": False} for c in chosen if c.name not in rows}
    known = {name: row for name, row in written("grid_gpu").items() if name not in left}
    write("grid_gpu", known | rows | left)


def timed(given: argparse.Namespace, chosen: list[Cell], end: float) -> dict[str, dict[str, Any]]:
    rows = done_before(given.resume)
    left = [cell for cell in chosen if cell.name not in rows]
    if given.warm:
        warm(left, given.warm, (end - time.time()) / 3)
    for number, cell in enumerate(left):
        if time.time() > end:
            print(f"{len(left) - number} cells left: no time")
            break
        try:
            rows[cell.name] = measured(cell, () if given.alone else PEERS)
        except Exception as fault:  # of ours: the other cells are run all the same
            print(f"{cell.name}: {type(fault).__name__}: {fault}"[:300], flush=True)
            rows[cell.name] = {"cell": cell.name, "done": False, "error": math.inf}
            rows[cell.name]["failed"] = str(fault)[:300]
        print(line(rows[cell.name]), flush=True)
        if not given.alone:
            saved(rows, chosen)
        torch.cuda.empty_cache()
    return rows


def main() -> None:
    given, start = options(), time.time()
    chosen = selected(given.words, given.part, given.cells)
    if given.list:
        print("\n".join(f"{number} {cell.name}" for number, cell in enumerate(cells())))
        return
    if not given.check and not torch.cuda.is_available():
        skip("there is no CUDA GPU here; --check needs none")
    warnings.filterwarnings("ignore", message=".*aux_data")  # FlashAttention 4's
    if given.compile:
        for cell in chosen:
            compiled(cell)
        return
    print(" | ".join(["cell", "kernel", "error", "ours", *PEERS, "of the best"]))
    if given.check:
        warnings.filterwarnings("ignore")
        rows = {}
        for cell in chosen:
            rows[cell.name] = checked(cell)
            print(line(rows[cell.name]), flush=True)
    else:
        rows = timed(given, chosen, start + given.seconds)
    print(summary(list(rows.values())))
    if any(row["error"] > 2.5 for row in rows.values()):
        raise SystemExit("a cell is further from float64 than the reference: see its error")


if __name__ == "__main__":
    main()
