"""The seed of the random numbers that weights are drawn with."""

from __future__ import annotations

import torch

_state = {"first": torch.seed() % 2**32}
_generator = torch.Generator().manual_seed(_state["first"])


def generator() -> torch.Generator:
    return _generator


def manual_seed(seed: int) -> None:
    """Draw as after every other call with this seed."""
    _generator.manual_seed(int(seed) % 2**63)


def initial_seed() -> int:
    """The seed at the start of the process."""
    return _state["first"]


def seed() -> int:
    """A new seed."""
    found = int(torch.randint(2**31, ()).item())
    manual_seed(found)
    return found
