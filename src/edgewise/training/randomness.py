"""Randomness of a run: seeds drawn from the recipe's seed and the step, and determinism on a GPU.

Each step has its own seeds, so a resumed run draws what it would have drawn, and no generator
state is saved.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from edgewise.errors import caller
from edgewise.training.errors import NotRepeatable


def seed_of(seed: int, *names: object) -> int:
    """A seed for one purpose, such as `seed_of(0, "dropout", step)`.

    >>> seed_of(0, "batch", 1) == seed_of(0, "batch", 1) != seed_of(0, "batch", 2)
    True
    """
    words = "/".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.sha256(words.encode()).digest()[:7], "big")


def generator(seed: int, *names: object) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(seed, *names))


@contextmanager
def deterministic(enabled: bool) -> Iterator[None]:
    """Use deterministic algorithms of torch; raise if an operation has none."""
    if not enabled:
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read with the first product
    memory: Any = torch.utils.deterministic
    before = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    fills = memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    memory.fill_uninitialized_memory = False  # a debugging aid that costs time
    try:
        yield
    except RuntimeError as problem:
        if "deterministic implementation" not in str(problem):
            raise
        what = str(problem).split(" does not have")[0]
        raise NotRepeatable(
            f"torch has no deterministic algorithm for {what}",
            caller(),
            "leave out `deterministic`, or train on a CPU",
        ) from None
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warns)
        memory.fill_uninitialized_memory = fills
