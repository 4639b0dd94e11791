"""The same rules on 65,536 words with a window: nothing is N×N."""

import random
import resource
import sys
import time
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Any

import torch

from edgewise.demo.model import attention, names, position_table, random_sentence
from edgewise.graphs import window
from edgewise.language import R, V

LENGTH, RADIUS = 65_536, 256


@dataclass(frozen=True)
class LongTextRun:
    """Time and memory of one training step on a long text."""

    pairs: int
    kernel: str
    ground_s: float
    step_s: float
    peak_gib: float
    finite: bool


def text(length: int, seed: int = 0) -> list[str]:
    """`length` words of random sentences."""
    choose = random.Random(seed)
    return list(
        islice(chain.from_iterable(random_sentence(choose).words for _ in repeat(None)), length)
    )


def step(trained: Any, length: int = LENGTH) -> LongTextRun:
    """Time the grounding of a long text and one forward and backward pass."""
    model = attention(window(RADIUS)(V.I, V.J)).compile(R.attention)
    model.load_state_dict(trained.state_dict())
    start = time.perf_counter()
    facts = [R.token(0, i, word) for i, word in enumerate(text(length))]
    data = model.ground(facts=facts + names(), position=position_table(length))
    grounded = time.perf_counter()
    model(data).data.square().sum().backward()
    done = time.perf_counter()
    explained = model.explain(data, stage="kernels", json=True)["kernels"]
    used = next(s for r in explained["relations"] for s in r["steps"] if "pairs" in s)
    gradients = [p.grad for p in model.parameters() if p.requires_grad]
    return LongTextRun(
        pairs=used["pairs"],
        kernel=used["kernel"],
        ground_s=grounded - start,
        step_s=done - grounded,
        peak_gib=peak_gib(),
        finite=all(g is not None and bool(torch.isfinite(g).all()) for g in gradients),
    )


def peak_gib() -> float:
    """Peak memory of this process in GiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak) / (2**30 if sys.platform == "darwin" else 2**20)  # bytes there, else KiB
