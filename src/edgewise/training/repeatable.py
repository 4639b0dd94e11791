"""The same bits in every run: on a GPU torch adds up in any order, unless it is asked not to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from edgewise.errors import caller
from edgewise.training.errors import NotRepeatable


@contextmanager
def repeatable(asked: bool) -> Iterator[None]:
    """Algorithms of torch with one order of sums while it lasts; where there is none it raises."""
    if not asked:
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read with the first product
    memory: Any = torch.utils.deterministic
    before = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    fills = memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    memory.fill_uninitialized_memory = False  # for finding mistakes, at a price
    try:
        yield
    except RuntimeError as problem:
        if "deterministic implementation" not in str(problem):
            raise
        what = str(problem).split(" does not have")[0]
        raise NotRepeatable(
            f"torch has no algorithm for {what} that gives the same bits every time",
            caller(),
            "leave out `deterministic`, or train on a CPU",
        ) from None
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warns)
        memory.fill_uninitialized_memory = fills
